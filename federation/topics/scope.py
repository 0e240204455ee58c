"""The topics of a link: the patterns of its policies, less the topics that a higher policy takes.

A topic belongs to the highest policy whose pattern matches it, and to no other. A subscription that spans two policies is
asked of both upstreams; what an upstream sends of the other's topics is dropped (`Scope.has`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.routing.names import filter_matches
from federation.topics.filters import covers, intersection

_ANY_LEVEL: Final = (b"+", b"#")


def near_policies(policies: Iterable[tuple[bytes, bool]]) -> list[tuple[bytes, bool]]:
    """The policies that decide which topics a link has, as `Scope` takes them: its own ones, and the others above one of these
    whose first level may be the same. A change of any other policy is nothing to the link."""
    ranked = list(policies)
    levels = {pattern.partition(b"/")[0] for pattern, is_own in ranked if is_own}
    is_any = not levels.isdisjoint(_ANY_LEVEL)
    while ranked and not ranked[-1][1]:
        ranked.pop()
    return [
        (pattern, is_own)
        for pattern, is_own in ranked
        if is_own or is_any or (level := pattern.partition(b"/")[0]) in levels or level in _ANY_LEVEL
    ]


class Scope:
    """`policies`: (topic filter, whether the policy is one of the link's) of all policies for topics, the highest first.

    is_shared  a higher policy that is not the link's has some topics of the link's patterns
    """

    def __init__(self, policies: Iterable[tuple[bytes, bool]]) -> None:
        self._policies = list(policies)
        own = [index for index, (_, is_own) in enumerate(self._policies) if is_own]
        # The link's patterns, by a first level without wildcards, and those that begin with one: (place, pattern).
        self._by_level: dict[bytes, list[tuple[int, bytes]]] = {}
        self._any_level: list[tuple[int, bytes]] = []
        self.patterns: list[bytes] = []
        self.is_shared = False
        for index in own:
            pattern = self._policies[index][0]
            if any(covers(higher, pattern) for higher, _ in self._policies[:index]):
                continue  # it has no topic of its own
            self.patterns.append(pattern)
            for higher, is_own in self._policies[:index]:
                if not is_own and intersection(higher, pattern) is not None:
                    self.is_shared = True
            level = pattern.partition(b"/")[0]
            if level in _ANY_LEVEL:
                self._any_level.append((index, pattern))
            else:
                self._by_level.setdefault(level, []).append((index, pattern))

    def has(self, topic: bytes) -> bool:
        """Return whether a topic belongs to one of the link's policies."""
        level = topic.partition(b"/")[0]
        candidates = (*self._any_level, *self._by_level.get(level, ()))
        found = [index for index, pattern in candidates if filter_matches(pattern, topic)]
        if not found or not self.is_shared:
            return bool(found)
        higher = self._policies[: min(found)]
        return not any(filter_matches(pattern, topic) for pattern, is_own in higher if not is_own)

    def parts(self, topic_filter: bytes) -> list[bytes]:
        """Filters for the topics of `topic_filter` that belong to the link, in no order; one may cover another."""
        level = topic_filter.partition(b"/")[0]
        if level in _ANY_LEVEL:
            candidates = [*self._any_level, *(each for found in self._by_level.values() for each in found)]
        else:
            candidates = self._any_level + self._by_level.get(level, [])
        found: list[bytes] = []
        for index, pattern in candidates:
            part = intersection(topic_filter, pattern)
            if part is not None and part not in found and not self._is_taken(part, index):
                found.append(part)
        return found

    def _is_taken(self, part: bytes, index: int) -> bool:
        """Return whether another link's policy above the one at `index` has all topics of a filter."""
        return any(covers(higher, part) for higher, is_own in self._policies[:index] if not is_own)
