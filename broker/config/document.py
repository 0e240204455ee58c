"""docs/configuration.md and configs/default_config.yml, written from the annotations of the settings."""

from __future__ import annotations

import textwrap
from typing import Any, Final

from broker.config.durations import format_duration, format_size
from broker.config.schema import Key, keys_of
from broker.config.setting import (
    AddressText,
    Choice,
    Duration,
    Flag,
    Section,
    Sections,
    Sequence,
    Size,
    Source,
    Text,
    Whole,
)
from broker.config.settings import Settings

COLUMNS: Final = 112

INTRODUCTION: Final = """\
# Configuration

Written by `scripts/build_docs` from `broker/config/settings*.py`; changes belong there.

A node reads one YAML file: `gmqttd start -c FILE`, by default `gmqtt.yml` in the home directory. A file of gmqttd (the
Go broker) starts this node unchanged. `gmqttd check -c FILE` prints the effective configuration, or every fault with
its line. An unknown key is a fault; a key whose feature is not there yet is accepted with a warning. A key without a
value is a key that is not set.

- *Durations* are written with units: `1h30m`, `20s`, `500ms`. *Sizes* are bytes, or `64KiB`, `16MiB`, `1GiB`.
- *Addresses* are `HOST:PORT`, `:PORT` (every interface) or `[::1]:PORT`; `tcp://` in front is allowed, and
  `unix:///PATH` for the API. Port 0 takes any free port.
- *Extension*: a key of ours that gmqttd does not know (and ignores).
- *Not there yet*: what happens instead while the feature is missing.
"""

DEFAULT_FILE_HEAD: Final = """\
# Every key with its default. Lines that begin with "#" before a key are examples of keys without a default.
# Written by scripts/build_docs from the settings; docs/configuration.md says more.
"""


def configuration_markdown() -> str:
    """The text of docs/configuration.md."""
    parts = [INTRODUCTION]
    _describe_section(Settings, "", parts)
    return "\n".join(parts)


def _describe_section(section: type[Any], path: str, parts: list[str]) -> None:
    keys = keys_of(section)
    heading = f"`{path}`" if path else "The file"
    doc = " ".join((section.__doc__ or "").split())
    rows = [
        "| key | value | default | meaning |",
        "| --- | --- | --- | --- |",
        *(f"| `{key.name}` | {_kind_text(key)} | {_default_text(key)} | {_meaning(key)} |" for key in keys),
    ]
    parts.append(f"## {heading}\n\n{doc}\n\n" + "\n".join(rows) + "\n")
    for key in keys:
        if key.section is not None:
            brackets = "[]" if isinstance(key.setting.kind, Sections) else ""
            _describe_section(key.section, f"{path}.{key.name}{brackets}".removeprefix("."), parts)


def _meaning(key: Key) -> str:
    setting = key.setting
    parts = [setting.doc, setting.price]
    if setting.later:
        parts.append(f"*Not there yet: {setting.later}.*")
    parts += [f"*`{word}` is not there yet: {instead}.*" for word, instead in setting.later_words]
    parts += [f"Also written `{alias}`." for alias in setting.aliases]
    if setting.source is Source.EXTENSION:
        parts.append("*Extension.*")
    return " ".join(part for part in parts if part).replace("|", "\\|")


def _kind_text(key: Key) -> str:
    match key.setting.kind:
        case Whole(minimum, maximum):
            return f"{minimum}..{maximum}"
        case Size(minimum, maximum):
            return f"size, {format_size(minimum)}..{format_size(maximum)}"
        case Duration(minimum):
            return f"duration, at least {format_duration(minimum)}" if minimum else "duration"
        case Flag():
            return "true, false"
        case Choice(words):
            return ", ".join(words)
        case Text():
            return "text"
        case AddressText():
            return "address"
        case Sequence(of):
            return "list of addresses" if isinstance(of, AddressText) else "list of words"
        case Section():
            return "section"
        case Sections():
            return "list of sections"


def _default_text(key: Key) -> str:
    if key.setting.required:
        return "(required)"
    if key.setting.default_text:
        return key.setting.default_text
    if isinstance(key.setting.kind, Section):
        return ""
    if key.name == "listeners":
        return '`[{address: ":1883"}]`'
    text = _yaml_value(key)
    return f"`{text}`" if text not in ("''", "[]") else ""


def _yaml_value(key: Key) -> str:
    """The default as YAML in one line."""
    value = key.default()
    match key.setting.kind:
        case Size():
            # gmqttd reads its own keys as plain numbers only.
            return format_size(value) if key.setting.source is Source.EXTENSION else str(value)
        case Duration():
            return format_duration(value)
        case Flag():
            return "true" if value else "false"
        case AddressText():
            return f'"{value}"'
        case Sequence() | Sections():
            return "[" + ", ".join(str(item) for item in value) + "]"
        case Text():
            return f'"{value}"' if value else "''"
        case _:
            return str(value)


def default_yaml() -> str:
    """The text of configs/default_config.yml: it loads as `Settings()` without a warning."""
    lines = [DEFAULT_FILE_HEAD]
    _write_section(Settings, 0, lines)
    return "\n".join(lines).rstrip() + "\n"


def _write_section(section: type[Any], depth: int, lines: list[str]) -> None:
    indent = "  " * depth
    for key in keys_of(section):
        setting = key.setting
        lines += [f"{indent}# {line}" for line in textwrap.wrap(_meaning(key), COLUMNS - len(indent))]
        if key.name == "listeners":
            lines += [f"{indent}listeners:", f'{indent}  - address: ":1883"']
            lines += [f"{indent}#    {inner.name}:" for inner in keys_of(_section_of(key))[1:]]
        elif isinstance(setting.kind, Section) and not key.setting.default_text:
            lines.append(f"{indent}{key.name}:")
            _write_section(_section_of(key), depth + 1, lines)
        elif isinstance(setting.kind, Sections):
            lines.append(f"{indent}{key.name}: []")
            example = getattr(keys_of(_section_of(key))[0].setting.kind, "example", "")
            lines.append(f'{indent}#  - address: "{example if key.name == "grpc" else "tcp://127.0.0.1:8083"}"')
        elif setting.default_text:
            example = getattr(setting.kind, "example", "")
            lines.append(f'{indent}# {key.name}: "{example}"')
        else:
            lines.append(f"{indent}{key.name}: {_yaml_value(key)}")
        if depth == 0:
            lines.append("")


def _section_of(key: Key) -> type[Any]:
    assert key.section is not None
    return key.section
