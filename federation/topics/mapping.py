"""Topic mapping of a link: which topic of the upstream is which topic here.

A rule is `UPSTREAM -> LOCAL`. UPSTREAM is a topic filter; LOCAL has `{1}` for what its first `+` stands for, `{2}` for the
second, and `{#}` at its end for what `#` stands for:

    eu/# -> {#}               the prefix eu/ is removed from what comes in
    # -> from/eu/{#}          the prefix from/eu/ is added to what comes in
    a/+/b/# -> x/{1}/{#}      captured levels

Each capture stands in LOCAL once, and no two rules share a topic on either side. So a mapping can be reversed, which every
link needs: messages go one way, interest goes the other. A topic that no rule names does not cross the link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from broker.codec.wire import STRING_BYTES_MAX
from broker.errors import MqttError
from broker.routing.names import TOPIC_LEVELS_MAX, check_topic_filter, filter_matches, has_wildcard
from federation.topics.filters import covers, filter_of, intersection

RULES_MAX: Final = 100  # of one mapping
ARROW: Final = "->"
EXAMPLE: Final = "a/+/b/# -> x/{1}/{#}"
_CAPTURE: Final = re.compile(r"\{([1-9][0-9]{0,2})\}")
_REST: Final = "{#}"

Level = bytes | int
"""A level of one side of a rule: its text, or the number of a capture."""


class MappingError(ValueError):
    """A rule that is no mapping. The text names the rule and what would be right."""


class Side:
    """One side of a rule. `filter` matches all its topics."""

    def __init__(self, levels: tuple[Level, ...], is_open: bool) -> None:
        self.levels = levels
        self.is_open = is_open
        found = [b"+" if isinstance(level, int) else level for level in levels]
        # Without levels of its own the rest is the whole topic, which has at least one level.
        self.filter = filter_of(found, is_open) if found else b"#"

    def captures(self, levels: list[bytes]) -> tuple[dict[int, bytes], list[bytes]]:
        """(captured level by number, rest) of the levels of a topic or filter that `filter` covers."""
        own = self.levels
        numbered = {level: levels[index] for index, level in enumerate(own) if isinstance(level, int)}
        return numbered, levels[len(own) :]

    def levels_with(self, numbered: dict[int, bytes], rest: list[bytes]) -> list[bytes]:
        """The inverse of `captures`."""
        return [numbered[level] if isinstance(level, int) else level for level in self.levels] + rest


class Rule:
    """One rule, as text and as its two sides."""

    def __init__(self, text: str, upstream: Side, local: Side) -> None:
        self.text = text
        self.upstream = upstream
        self.local = local


class TopicMapping:
    """The rules of one link. No rules: every topic has the same name on both sides.

    Raises MappingError for a text that is no rule, and for rules that share topics.
    """

    def __init__(self, rules: Iterable[str] = ()) -> None:
        self.rules = tuple(parse_rule(text) for text in rules)
        if len(self.rules) > RULES_MAX:
            raise MappingError(f"{len(self.rules)} mapping rules, at most {RULES_MAX}")
        for index, rule in enumerate(self.rules):
            for other in self.rules[:index]:
                _check_apart(other, rule)

    def map_in(self, topic: bytes) -> bytes | None:
        """The local name of a topic of the upstream; None when it does not cross the link."""
        if not self.rules:
            return topic
        for rule in self.rules:
            if filter_matches(rule.upstream.filter, topic):
                return _map_topic(topic, rule.upstream, rule.local)
        return None

    def map_out(self, topic: bytes) -> bytes | None:
        """The upstream's name of a local topic; None when it does not cross the link."""
        if not self.rules:
            return topic
        for rule in self.rules:
            if filter_matches(rule.local.filter, topic):
                return _map_topic(topic, rule.local, rule.upstream)
        return None

    def map_filter_in(self, topic_filter: bytes) -> list[bytes]:
        """Local filters that match the local names of all topics that an upstream filter matches."""
        return self._map_filter(topic_filter, True)

    def map_filter_out(self, topic_filter: bytes) -> list[bytes]:
        """Filters at the upstream that match all topics there whose local names a local filter matches."""
        return self._map_filter(topic_filter, False)

    def _map_filter(self, topic_filter: bytes, is_in: bool) -> list[bytes]:
        if not self.rules:
            return [topic_filter]
        found: list[bytes] = []
        for rule in self.rules:
            source, target = (rule.upstream, rule.local) if is_in else (rule.local, rule.upstream)
            mapped = _map_filter(topic_filter, source, target)
            if mapped is not None:
                found.append(mapped)
        return found


def parse_rule(text: str) -> Rule:
    """Raise MappingError unless `text` is `UPSTREAM -> LOCAL`."""
    parts = text.split(ARROW)
    if len(parts) != 2:
        raise MappingError(f'mapping "{_shown(text)}" is not UPSTREAM {ARROW} LOCAL, such as "{EXAMPLE}"')
    upstream_text, local_text = parts[0].strip(), parts[1].strip()
    upstream = _parse_upstream(text, upstream_text)
    local = _parse_local(text, local_text)
    wanted = {level for level in upstream.levels if isinstance(level, int)}
    found = [level for level in local.levels if isinstance(level, int)]
    for number in sorted(wanted.symmetric_difference(found)):
        if number in wanted:
            raise _fault(
                text, f"two topics would become one: {{{number}}} is missing in {_shown(local_text)}, for the + in it"
            )
        raise _fault(text, f"{{{number}}} stands for no +: {_shown(upstream_text)} has {len(wanted)}")
    if len(found) != len(wanted):
        raise _fault(text, f"a capture stands in {_shown(local_text)} more than once")
    if upstream.is_open != local.is_open:
        if upstream.is_open:
            raise _fault(text, f"two topics would become one: {_REST} is missing at the end of {_shown(local_text)}")
        raise _fault(text, f"{_REST} stands for no #: {_shown(upstream_text)} has none")
    return Rule(f"{upstream_text} {ARROW} {local_text}", upstream, local)


def _parse_upstream(text: str, side_text: str) -> Side:
    if "{" in side_text or "}" in side_text:
        raise _fault(text, f"captures belong on the right of {ARROW}; {_shown(side_text)} has + and #")
    topic_filter = _encoded(side_text)
    if topic_filter.startswith(b"$share/"):
        raise _fault(text, "a shared filter names no topics: leave $share/NAME/ out")
    _check_filter(text, topic_filter)
    levels = topic_filter.split(b"/")
    is_open = levels[-1] == b"#"
    if is_open:
        levels.pop()
    count = 0
    numbered: list[Level] = []
    for level in levels:
        if level == b"+":
            count += 1
            numbered.append(count)
        else:
            numbered.append(level)
    return Side(tuple(numbered), is_open)


def _parse_local(text: str, side_text: str) -> Side:
    found: list[Level] = []
    parts = side_text.split("/")
    is_open = parts[-1] == _REST
    if is_open:
        parts.pop()
    for part in parts:
        capture = _CAPTURE.fullmatch(part)
        if capture is not None:
            found.append(int(capture.group(1)))
            continue
        if "{" in part or "}" in part:
            raise _fault(text, f"{_shown(part)} is no capture: {{1}} is a whole level, {_REST} the whole last level")
        level = _encoded(part)
        if has_wildcard(level):
            raise _fault(text, f"{_shown(side_text)} has a wildcard: write {{1}} for the first +, {_REST} for #")
        found.append(level)
    if side_text.startswith("$"):
        raise _fault(text, f"{_shown(side_text)} begins with $: such topics are about a node and stay on it")
    side = Side(tuple(found), is_open)
    _check_filter(text, side.filter if side_text else b"")
    return side


def _check_filter(text: str, topic_filter: bytes) -> None:
    try:
        check_topic_filter(topic_filter)
    except MqttError as error:
        raise _fault(text, error.text) from None


def _check_apart(first: Rule, second: Rule) -> None:
    """Raise MappingError when two rules share a topic."""
    for name, one, other in (
        ("of the upstream", first.upstream, second.upstream),
        ("here", first.local, second.local),
    ):
        common = intersection(one.filter, other.filter)
        if common is not None:
            raise MappingError(
                f'mappings "{_shown(first.text)}" and "{_shown(second.text)}" collide: topics {name} that match '
                f"{_shown(common.decode())} belong to both"
            )


def _map_topic(topic: bytes, source: Side, target: Side) -> bytes | None:
    numbered, rest = source.captures(topic.split(b"/"))
    levels = target.levels_with(numbered, rest)
    mapped = b"/".join(levels)
    if not mapped or len(mapped) > STRING_BYTES_MAX or len(levels) > TOPIC_LEVELS_MAX:
        return None  # is no topic name
    # A first level with $ that was captured: the wildcard of the other side does not match it [MQTT-4.7.2-1].
    return mapped if filter_matches(target.filter, mapped) else None


def _map_filter(topic_filter: bytes, source: Side, target: Side) -> bytes | None:
    common = intersection(topic_filter, source.filter)
    if common is None:
        return None
    levels = common.split(b"/")
    if source.levels and levels == [b"#"]:
        levels = [b"+", b"#"]  # the same topics
    numbered, rest = source.captures(levels)
    mapped_levels = target.levels_with(numbered, rest)
    mapped = b"/".join(mapped_levels)
    if not mapped or len(mapped) > STRING_BYTES_MAX or len(mapped_levels) > TOPIC_LEVELS_MAX:
        return None
    return mapped if covers(target.filter, mapped) else None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # refused by the check of UTF-8, with the name of the rule


def _fault(text: str, fault: str) -> MappingError:
    return MappingError(f'mapping "{_shown(text)}": {fault}')


def _shown(text: str) -> str:
    """A text for an error: printable, at most 80 characters of it."""
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= 80 else shown[:80] + "..."
