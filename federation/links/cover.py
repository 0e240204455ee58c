"""The fewest filters that have all topics of many filters, kept while these change.

A filter that another one covers is not told to the upstream. When the covering one goes, those below it are told first, so
that no message is lost in between. A filter covers another one only if its wants include those of the other.
"""

from __future__ import annotations

from typing import Final, cast

from broker.routing.names import has_wildcard
from broker.routing.trie import Node, Trie
from federation.links.filters import covers, filter_of, levels_of
from federation.links.wants import NOBODY, Wants, include

_ANY_LEVEL: Final = b"\0"  # in no filter: only `+` and `#` match it


class CoverEntry:
    """A filter that is wanted, and whether the upstream is told of it."""

    __slots__ = ("is_told", "topic_filter", "wants")

    def __init__(self, topic_filter: bytes, wants: Wants) -> None:
        self.topic_filter = topic_filter
        self.wants = wants
        self.is_told = False


class Cover:
    """filters_max  told at most; further ones wait in `refused` until there is room"""

    def __init__(self, filters_max: int) -> None:
        self._filters_max = filters_max
        self._entries: dict[bytes, CoverEntry] = {}
        self._told = Trie()
        self._below = Trie()  # the entries that are not told
        self._before: dict[bytes, Wants] = {}  # of changed filters: as `take_changes` told them
        self.refused: dict[bytes, CoverEntry] = {}

    def __len__(self) -> int:
        return len(self._told)

    def set(self, topic_filter: bytes, wants: Wants) -> None:
        """Want a filter; with () no more."""
        topic_filter = filter_of(*levels_of(topic_filter))
        entry = self._entries.get(topic_filter)
        if entry is not None:
            if entry.wants == wants:
                return
            self._remove(entry)
        if wants:
            entry = CoverEntry(topic_filter, wants)
            self._entries[topic_filter] = entry
            self._below.set(topic_filter, entry)
            if not self._is_covered(entry):
                self._tell(entry)

    def wants_of(self, topic_filter: bytes) -> Wants:
        """The wants of a filter that is told; () of any other one."""
        entry = self._entries.get(topic_filter)
        return entry.wants if entry is not None and entry.is_told else NOBODY

    def filters(self) -> list[bytes]:
        """All filters that are told."""
        return [topic_filter for topic_filter, _ in self._told.items()]

    def take_changes(self) -> tuple[list[bytes], list[bytes]]:
        """(filters to subscribe to, filters to unsubscribe from) since the last call, in this order. A filter whose wants
        changed is subscribed to again."""
        while self.refused and len(self._told) < self._filters_max:
            entry = self.refused.pop(next(iter(self.refused)))
            if not self._is_covered(entry):
                self._tell(entry)
        subscribe: list[bytes] = []
        unsubscribe: list[bytes] = []
        for topic_filter, before in self._before.items():
            wants = self.wants_of(topic_filter)
            if wants != before:
                (subscribe if wants else unsubscribe).append(topic_filter)
        self._before = {}
        return subscribe, unsubscribe

    def _remove(self, entry: CoverEntry) -> None:
        topic_filter = entry.topic_filter
        if not entry.is_told:
            del self._entries[topic_filter]
            self.refused.pop(topic_filter, None)
            self._below.delete(topic_filter)
            return
        self._note(entry)
        del self._entries[topic_filter]
        self._told.delete(topic_filter)
        if has_wildcard(topic_filter):
            # The general ones first: then each that is told stays.
            for below in sorted(entries_below(self._below, topic_filter), key=_generality):
                if not self._is_covered(below):
                    self._tell(below)

    def _tell(self, entry: CoverEntry) -> None:
        """Tell the upstream, and not those that the filter covers."""
        covered: list[CoverEntry] = []
        if has_wildcard(entry.topic_filter):
            covered = [
                below for below in entries_below(self._told, entry.topic_filter) if include(entry.wants, below.wants)
            ]
        if len(self._told) - len(covered) >= self._filters_max:
            self.refused[entry.topic_filter] = entry
            return
        for below in covered:
            self._note(below)
            below.is_told = False
            self._told.delete(below.topic_filter)
            self._below.set(below.topic_filter, below)
        self._note(entry)
        entry.is_told = True
        self._below.delete(entry.topic_filter)
        self._told.set(entry.topic_filter, entry)
        self.refused.pop(entry.topic_filter, None)

    def _note(self, entry: CoverEntry) -> None:
        self._before.setdefault(entry.topic_filter, entry.wants if entry.is_told else NOBODY)

    def _is_covered(self, entry: CoverEntry) -> bool:
        """Whether a filter that is told covers this one, which is not."""
        for value in self._told.match(_any_topic(entry.topic_filter)):
            other = cast(CoverEntry, value)
            if covers(other.topic_filter, entry.topic_filter) and include(other.wants, entry.wants):
                return True
        return False


def entries_below(trie: Trie, wide: bytes) -> list[CoverEntry]:
    """The entries of a tree whose filters `wide` covers."""
    levels, is_open = levels_of(wide)
    count = len(levels)
    found: list[CoverEntry] = []
    waiting: list[Node] = [trie.root]
    while waiting:
        node = waiting.pop()
        for value in (node.value, node.hash_value):
            if value is not None:
                entry = cast(CoverEntry, value)
                if covers(wide, entry.topic_filter):
                    found.append(entry)
        depth = node.depth
        children: list[Node] = []
        if depth >= count or levels[depth] == b"+":
            if depth < count or is_open:
                if node.plus is not None:
                    children.append(node.plus)
                if node.children is not None:
                    children.extend(node.children.values())
        elif node.children is not None:
            child = node.children.get(levels[depth])
            if child is not None:
                children.append(child)
        waiting += [child for child in children if child.depth == depth + 1 or _leads_below(child, levels)]
    return found


def _leads_below(node: Node, levels: list[bytes]) -> bool:
    """Whether the levels above `#` cover those of a node, as far as both go."""
    return all(level in (b"+", found) for level, found in zip(levels, node.path.split(b"/"), strict=False))


def _any_topic(topic_filter: bytes) -> bytes:
    """A topic that every filter matches which covers `topic_filter`."""
    levels, _ = levels_of(topic_filter)
    return b"/".join([_ANY_LEVEL if level == b"+" else level for level in levels])


def _generality(entry: CoverEntry) -> tuple[int, bool, int]:
    """Sorts a filter before all filters that it covers."""
    levels, is_open = levels_of(entry.topic_filter)
    return len(levels), not is_open, -levels.count(b"+")
