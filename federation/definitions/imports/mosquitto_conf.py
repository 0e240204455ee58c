"""The bridge sections of a mosquitto.conf, as lines of words. mosquitto.conf(5), "Configuring Bridges", has their meaning."""

from __future__ import annotations

from typing import Final, NamedTuple

from federation.definitions.imports.imported import ImportFault

LINE_CHARACTERS_MAX: Final = 65_535 * 2  # a topic and its prefixes


class Option(NamedTuple):
    """A line: its key and what stands behind it. `text` is the rest as it is, `words` the same cut at blanks."""

    line: int
    key: str
    text: str
    words: tuple[str, ...]


class Bridge(NamedTuple):
    """A section: from `connection NAME` to the next one, to `listener`, or to the end."""

    line: int
    name: str
    options: list[Option]


class ConfigFile(NamedTuple):
    """includes: the lines with `include_dir`, whose files are not read."""

    bridges: list[Bridge]
    includes: list[int]


def parse_config(text: str) -> ConfigFile:
    """The bridges of a file. Raises ImportFault for a connection without a name, or with one that occurs twice."""
    bridges: list[Bridge] = []
    includes: list[int] = []
    options: list[Option] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > LINE_CHARACTERS_MAX:
            raise ImportFault(f"line {number}: more than {LINE_CHARACTERS_MAX} characters")
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, *words = stripped.split()
        rest = stripped[len(key) :].strip()
        if key == "connection":
            if not rest:
                raise ImportFault(f"line {number}: connection has no name")
            if any(bridge.name == rest for bridge in bridges):
                raise ImportFault(f'line {number}: there are two connections "{rest}"')
            options = []
            bridges.append(Bridge(number, rest, options))
        elif key == "listener":
            options = None
        elif key == "include_dir":
            includes.append(number)
        elif options is not None:
            options.append(Option(number, key, rest, tuple(words)))
    return ConfigFile(bridges, includes)
