"""Contexts: servers and how they are reached, under a name, in a file of the user (docs/cli.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from gmqttctl.errors import CommandError

FILE_NAME: Final = "contexts.yml"
KEYS: Final = ("servers", "tokenFile", "tls", "tlsCaFile", "tlsCertFile", "tlsKeyFile")
"""Options of the data source, and the file of the token: a context has no secret itself."""


def file_path() -> Path:
    """`$XDG_CONFIG_HOME/gmqttctl/contexts.yml`, `~/.config/gmqttctl/contexts.yml` on most machines."""
    return Path(click.get_app_dir("gmqttctl")) / FILE_NAME


class Contexts:
    """current  name of the one that commands use, "" for none
    by_name  name -> values of KEYS that were given
    """

    def __init__(self) -> None:
        self.current = ""
        self.by_name: dict[str, dict[str, str]] = {}

    def get(self, name: str) -> dict[str, str]:
        """Raises CommandError for an unknown name."""
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise CommandError(
                f'there is no context "{name}" in {file_path()}; known: {known}. To make it: gmqttctl context add'
            )
        return found


def read_contexts() -> Contexts:
    """The file, or no contexts where there is none. Raises CommandError."""
    contexts = Contexts()
    path = file_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return contexts
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    import yaml

    try:
        found: Any = yaml.safe_load(text) or {}
        contexts.current = str(found.get("current", ""))
        for name, values in found.get("contexts", {}).items():
            unknown = set(values) - set(KEYS)
            if unknown:
                raise ValueError(f'context "{name}": {", ".join(sorted(unknown))} is unknown, may be {", ".join(KEYS)}')
            contexts.by_name[str(name)] = {key: _text(value) for key, value in values.items()}
    except (yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
        raise CommandError(f"{path} is no file of contexts: {error}; correct it, or delete it") from None
    return contexts


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def write_contexts(contexts: Contexts) -> None:
    """Raises CommandError."""
    import yaml

    path = file_path()
    text = yaml.safe_dump({"current": contexts.current, "contexts": contexts.by_name}, allow_unicode=True)
    beside = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from None
