"""The effective configuration as YAML that the loader reads back, secrets hidden; and what differs between two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from broker.config.durations import format_duration, format_size
from broker.config.schema import keys_of
from broker.config.setting import AddressText, Duration, Entries, Section, Sections, Sequence, Size, Text, WholeOrAuto
from broker.config.settings import Settings

HIDDEN: Final = "***"


def effective_yaml(settings: Settings) -> str:
    """Return every key with its value. Left out are keys without a value, keys of plugins that `plugin_order` does not name,
    and keys of features that are not supported yet at their default: setting them draws a warning, or is refused."""
    values = yaml_values(settings)
    values["plugins"] = {name: keys for name, keys in values["plugins"].items() if name in settings.plugin_order}
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)
    return text


def yaml_values(settings: object) -> dict[str, Any]:
    """Return a settings object as the mapping that its YAML would be; durations, sizes and addresses as text."""
    values: dict[str, Any] = {}
    for key in keys_of(type(settings)):
        value = key.of(settings)
        if value is None:
            continue
        kind = key.setting.kind
        if key.setting.secret and isinstance(kind, Sequence):
            values[key.name] = [HIDDEN for _ in value]
        elif key.setting.secret:
            values[key.name] = HIDDEN if value else ""
        elif isinstance(kind, Section):
            values[key.name] = yaml_values(value)
        elif isinstance(kind, Sections):
            values[key.name] = [yaml_values(item) for item in value]
        elif isinstance(kind, Entries):
            values[key.name] = {name: _without_secrets(body, kind.secrets) for name, body in value}
        elif isinstance(kind, Text) and kind.is_url and "?" in value:
            values[key.name] = f"{value.partition('?')[0]}?{HIDDEN}"
        elif isinstance(kind, Sequence):
            values[key.name] = [str(item) for item in value]
        elif isinstance(kind, Duration):
            values[key.name] = format_duration(value)
        elif isinstance(kind, Size):
            values[key.name] = format_size(value) if key.setting.is_extension else value
        elif isinstance(kind, AddressText):
            values[key.name] = str(value)
        elif isinstance(kind, WholeOrAuto) and value.isdigit():
            values[key.name] = int(value)
        else:
            values[key.name] = value
    return values


def _without_secrets(body: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(body, dict):
        return {key: HIDDEN if key in secrets else _without_secrets(value, secrets) for key, value in body.items()}
    if isinstance(body, list):
        return [_without_secrets(item, secrets) for item in body]
    return body


def secrets_of(settings: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each key that has a secret, and the secret."""
    for key in keys_of(type(settings)):
        value, kind, path = key.of(settings), key.setting.kind, f"{prefix}{key.name}"
        if not value:
            continue
        if key.setting.secret:
            for text in value if isinstance(kind, Sequence) else (value,):
                yield path, text
        elif isinstance(kind, Text) and kind.is_url and "?" in value:  # its query may have a key
            yield path, value
        elif isinstance(kind, Section):
            yield from secrets_of(value, f"{path}.")
        elif isinstance(kind, Entries):
            for name, body in value:
                for text in _texts_of(body, kind.secrets):
                    if "@" in text:  # a URI with a user
                        yield f"{path}.{name}", text


def _texts_of(body: Any, keys: tuple[str, ...], is_wanted: bool = False) -> Iterator[str]:
    if isinstance(body, dict):
        for key, value in body.items():
            yield from _texts_of(value, keys, key in keys)
    elif isinstance(body, list):
        for item in body:
            yield from _texts_of(item, keys, is_wanted)
    elif is_wanted and isinstance(body, str):
        yield body


def changed_keys(old: object, new: object, prefix: str = "") -> list[str]:
    """Return the paths of the keys whose values differ between two settings of one class. A list counts as one value."""
    assert type(old) is type(new)
    changed: list[str] = []
    for key in keys_of(type(old)):
        old_value, new_value = key.of(old), key.of(new)
        if old_value == new_value:
            continue
        path = f"{prefix}{key.name}"
        if isinstance(key.setting.kind, Section) and old_value is not None and new_value is not None:
            changed += changed_keys(old_value, new_value, f"{path}.")
        else:
            changed.append(path)
    return changed
