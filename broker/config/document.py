"""docs/configuration.md and configs/default_config.yml are written from the fields of the settings, plugins included."""

from __future__ import annotations

import textwrap
from typing import Any, Final

from broker.config.durations import format_duration, format_size
from broker.config.schema import Key, keys_of
from broker.config.setting import (
    AddressText,
    Choice,
    Duration,
    Entries,
    Flag,
    Section,
    Sections,
    Sequence,
    Size,
    SizeOrShare,
    Text,
    Whole,
    WholeOrAuto,
)
from broker.config.settings import Settings

COLUMNS: Final = 112

INTRODUCTION: Final = """\
# Configuration

Written by `scripts/build_docs` from `broker/config/settings*.py` and the settings of the plugins; changes belong there.

A node reads one YAML file: `gmqttd start -c FILE`, by default `gmqtt.yml` in the home directory, else
`/etc/gmqtt/gmqttd.yml`, the default of the Go broker. A file of the Go broker starts this node unchanged.
`gmqttd check -c FILE` prints the effective configuration, or every fault with its line.

- An unknown key is a fault. A key without a value is a key that is not set.
- A key whose feature is *not supported yet* draws a warning, which says what happens instead. With a name in `plugin_order`
  that is not installed the node does not start; `--allow-missing` turns that fault into a warning too.
- `plugin_order` takes any installed plugin. Its keys stand in `plugins.NAME`, are checked and printed as all others, and
  have an effect only where `plugin_order` names it. `gmqttd defaults` prints all keys of all installed plugins.

- *Durations* are written with units: `1h30m`, `20s`, `500ms`. *Sizes* are bytes, or `64KiB`, `16MiB`, `1GiB`.
- *Addresses* are `HOST:PORT`, `:PORT` (every interface) or `[::1]:PORT`; `tcp://` in front is allowed, and
  `unix:///PATH` for listeners and the API. Port 0 takes any free port.
- *Variables of the environment*: `${NAME}` in a value is the variable `NAME`; where it is not set, the content of the file
  that `NAME_FILE` names (a secret of a container). `${NAME:-text}` has a default, `$${` is a plain `${`.
- `GMQTTD_MQTT__MAX_INFLIGHT=50` sets `mqtt.max_inflight`, whatever the file says: `__` stands between the names of nested
  keys, `GMQTTD_LISTENERS__0__ADDRESS` is the first listener's. Lists and mappings are written as YAML in one line
  (`GMQTTD_PLUGIN_ORDER='[admin, federation]'`). An empty variable sets nothing.
- *Extension*: a key that the Go broker does not know (and ignores).
"""

DEFAULT_FILE_HEAD: Final = """\
# Every key with its default; docs/configuration.md says more. Written by `gmqttd defaults`.
# Keys behind "#" have no default, or no effect as long as plugin_order does not name their plugin.
"""


def configuration_markdown() -> str:
    """Return the text of docs/configuration.md."""
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
    parts += [f"Also written `{alias}`." for alias in setting.aliases]
    if setting.is_extension:
        parts.append("*Extension.*")
    return " ".join(part for part in parts if part).replace("|", "\\|")


def _kind_text(key: Key) -> str:
    match key.setting.kind:
        case Whole(minimum, maximum):
            return f"{minimum}..{maximum}"
        case WholeOrAuto(minimum, maximum):
            return f"{minimum}..{maximum}, auto"
        case Size(minimum, maximum):
            return f"size, {format_size(minimum)}..{format_size(maximum)}"
        case SizeOrShare(minimum):
            return f"0, size of at least {format_size(minimum)}, or share such as `60%`"
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
        case Entries(what=what):
            return f"mapping of names to {what}"


def _default_text(key: Key) -> str:
    if key.is_required:
        return "(required)"
    if key.setting.default_text:
        return key.setting.default_text
    if isinstance(key.setting.kind, Section):
        return ""
    text = _yaml_value(key)
    return f"`{text}`" if text not in ("''", "[]", "{}") else ""


def _yaml_value(key: Key) -> str:
    """Return the default as YAML in one line."""
    value = key.default()
    match key.setting.kind:
        case Size():
            # The Go broker reads its own sizes as numbers only.
            return format_size(value) if key.setting.is_extension else str(value)
        case Duration():
            return format_duration(value)
        case Flag():
            return "true" if value else "false"
        case AddressText():
            return f'"{value}"'
        case Sequence(of=Text()):
            return "[" + ", ".join(f'"{item}"' for item in value) + "]"
        case Sequence() | Sections():
            return "[" + ", ".join(str(item) for item in value) + "]"
        case Entries():
            return "{}"
        case Text():
            return f'"{value}"' if value else "''"
        case _:
            return str(value)


def default_yaml() -> str:
    """Return the text of configs/default_config.yml: it loads as `Settings()` without a warning."""
    lines = [DEFAULT_FILE_HEAD]
    _write_section(Settings, "", lines)
    return "\n".join(lines).rstrip() + "\n"


def _write_section(section: type[Any], path: str, lines: list[str]) -> None:
    depth = path.count(".")
    indent = "  " * depth
    for key in keys_of(section):
        setting = key.setting
        key_lines = [f"{indent}# {line}" for line in textwrap.wrap(_meaning(key), COLUMNS - len(indent))]
        if key.name == "listeners" and depth == 0:
            key_lines += [f"{indent}listeners:", f'{indent}  - address: "{key.default()[0].address}"']
            key_lines += [f"{indent}#    {inner.name}:" for inner in keys_of(_section_of(key))[1:]]
        elif isinstance(setting.kind, Section) and not setting.default_text:
            key_lines.append(f"{indent}{key.name}:")
            _write_section(_section_of(key), f"{path}{key.name}.", key_lines)
        elif isinstance(setting.kind, Sections):
            key_lines.append(f"{indent}{key.name}: []")
            example = getattr(keys_of(_section_of(key))[0].setting.kind, "example", "")
            key_lines.append(f'{indent}#  - address: "{example if key.name == "grpc" else "tcp://127.0.0.1:8083"}"')
        elif setting.default_text:
            example = getattr(setting.kind, "example", "")
            key_lines.append(f'{indent}# {key.name}: "{example}"' if example else f"{indent}# {key.name}:")
        else:
            key_lines.append(f"{indent}{key.name}: {_yaml_value(key)}")
        if isinstance(setting.kind, Section) and path == "plugins.":
            key_lines = [f"#{line}" for line in key_lines]
        lines += key_lines
        if depth == 0:
            lines.append("")


def _section_of(key: Key) -> type[Any]:
    assert key.section is not None
    return key.section
