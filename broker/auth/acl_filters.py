"""Access rules without placeholders: what they give and deny."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, NamedTuple

from broker.authorization import ALLOW, DENY, NO_OPINION, Verdict
from broker.routing.overlap import overlapping
from broker.routing.trie import Trie

# What a rule gives. DENIED takes both.
DENIED: Final = 0
READ: Final = 1
PUBLISH: Final = 2

EXACT: Final = 1_000_000  # more than any number of levels
NOT_DENIED: Final = 2_000_000


class Rule(NamedTuple):
    """topic_filter  of a pattern: may have %u for the user name and %c for the client id
    gives         READ, PUBLISH, READ | PUBLISH, or DENIED
    """

    topic_filter: str
    gives: int


class Given:
    """One filter gives READ, PUBLISH or both."""

    __slots__ = ("gives", "topic_filter")

    def __init__(self, topic_filter: bytes) -> None:
        self.topic_filter = topic_filter
        self.gives = DENIED


class FilterRules:
    """The rules of one user: topic filters without placeholders.

    The last answer is kept: a route asks for one topic and all of its receivers.

    steps  of a slice (broker/slices.py) that its questions took
    """

    def __init__(self, rules: list[Rule]) -> None:
        self.steps = 0
        self._denied = Trie()  # filter -> `open_from`
        self._given = Trie()  # filter -> Given
        self._topic = b""
        self._wanted = DENIED
        self._verdict = NO_OPINION
        for rule in rules:
            topic_filter = rule.topic_filter.encode()
            if rule.gives == DENIED:
                self._denied.set(topic_filter, open_from(topic_filter))
                continue
            known = self._given.get(topic_filter)
            given = known if isinstance(known, Given) else Given(topic_filter)
            given.gives |= rule.gives
            self._given.set(topic_filter, given)

    def judge(self, topic: bytes, wanted: int) -> Verdict:
        if topic is not self._topic or wanted != self._wanted:
            self._verdict = self._judge(topic, wanted)
            self._topic = topic
            self._wanted = wanted
        return self._verdict

    def _judge(self, topic: bytes, wanted: int) -> Verdict:
        denied = self._denied.match(topic)
        self.steps += self._denied.visited
        if denied:
            return DENY
        found = self._given.match(topic)
        self.steps += self._given.visited
        for given in found:
            assert isinstance(given, Given)
            if given.gives & wanted:
                return ALLOW
        return NO_OPINION

    def denied_from(self, topic: bytes) -> int:
        """Return `open_from` of the denial that has the fewest levels; NOT_DENIED without one."""
        least = NOT_DENIED
        for found in self._denied.match(topic):
            assert isinstance(found, int)
            least = min(least, found)
        self.steps += 1 + self._denied.visited
        return least

    def has_denials(self) -> bool:
        return len(self._denied) > 0

    def readable(self, topic_filter: bytes) -> list[bytes]:
        """Filters that give READ and have a topic in common with the filter, before denials."""
        found: list[bytes] = []
        for given in overlapping(self._given, topic_filter):
            assert isinstance(given, Given)
            if given.gives & READ:
                found.append(given.topic_filter)
        self.steps += len(found) + self._given.visited
        return found


def open_from(topic_filter: bytes) -> int:
    """Return the fewest levels from which on a filter matches however many follow; EXACT for one without `#`."""
    if topic_filter == b"#":
        return 1
    return topic_filter.count(b"/") if topic_filter.endswith(b"/#") else EXACT
