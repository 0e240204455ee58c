"""The bridge sections of a mosquitto.conf as lines of words, and its `topic` lines: filters on both sides, and the rule of a
mapping between them. mosquitto.conf(5), "Configuring Bridges", has their meaning."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.errors import MqttError
from broker.routing.names import check_topic_filter
from federation.definitions.imports.imported import ImportFault
from federation.topics.filters import covers

LINE_CHARACTERS_MAX: Final = 65_535 * 2  # a topic and its prefixes
DIRECTIONS: Final = ("out", "in", "both")
EMPTY: Final = '""'  # how an empty pattern or prefix is written


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


class Topic(NamedTuple):
    """One line. `local` and `remote` are the filters of both sides; `prefixes` is what they differ by."""

    line: int
    direction: str
    qos: int
    local: str
    remote: str
    prefixes: tuple[str, str]

    def goes(self, direction: str) -> bool:
        return self.direction in (direction, "both")

    def rule(self) -> str:
        """The mapping from `remote` to `local`: the wildcards of the pattern are its captures."""
        levels = []
        count = 0
        for level in self.local.split("/"):
            count += level == "+"
            levels.append({"+": f"{{{count}}}", "#": "{#}"}.get(level, level))
        return f"{self.remote} -> {'/'.join(levels)}"


def parse_topic(option: Option) -> Topic:
    """Read `topic PATTERN [[[out | in | both] QOS] LOCAL-PREFIX REMOTE-PREFIX]`. Raises ImportFault, with the line."""
    words = option.words
    place = f"line {option.line}: topic"
    if not 1 <= len(words) <= 5:
        raise ImportFault(f"{place}: expected is PATTERN out|in|both QOS LOCAL-PREFIX REMOTE-PREFIX")
    pattern, direction, qos, *prefixes = (*words, *("out", "0", EMPTY, EMPTY)[len(words) - 1 :])
    pattern, local_prefix, remote_prefix = ("" if word == EMPTY else word for word in (pattern, *prefixes))
    if direction not in DIRECTIONS:
        raise ImportFault(f"{place}: the direction is not one of {', '.join(DIRECTIONS)}")
    if qos not in ("0", "1", "2"):
        raise ImportFault(f"{place}: the QoS is not one of 0, 1, 2")
    if not pattern and not (local_prefix and remote_prefix):
        raise ImportFault(f"{place}: an empty pattern {EMPTY} needs both prefixes, which are the topics then")
    for prefix in (local_prefix, remote_prefix):
        if "+" in prefix or "#" in prefix:
            raise ImportFault(f"{place}: a prefix has no wildcards")
    local, remote = local_prefix + pattern, remote_prefix + pattern
    for topic_filter in (local, remote):
        try:
            check_topic_filter(topic_filter.encode())
        except MqttError as error:
            raise ImportFault(f"{place}: {error.text}; a prefix in front of a wildcard ends with /") from None
        if topic_filter.startswith("$share/"):
            raise ImportFault(f"{place}: a link has no shared subscription")
    return Topic(option.line, direction, int(qos), local, remote, (local_prefix, remote_prefix))


def mapping_of(topics: list[Topic]) -> list[str]:
    """The rules of the mapping of some lines; none when every topic has one name on both sides.

    A line whose topics another line with the same prefixes has needs no rule of its own.
    """
    if all(topic.local == topic.remote for topic in topics):
        return []
    kept: list[Topic] = []
    for topic in topics:
        if not any(_includes(other, topic) for other in kept):
            kept = [other for other in kept if not _includes(topic, other)]
            kept.append(topic)
    return [topic.rule() for topic in kept]


def _includes(wide: Topic, narrow: Topic) -> bool:
    return wide.prefixes == narrow.prefixes and covers(wide.local.encode(), narrow.local.encode())
