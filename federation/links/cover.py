"""The fewest filters that have all topics of many filters, kept while these change.

A filter that another one covers is not told to the upstream. When the covering one goes, those below it are told first, so
that no message is lost in between. A filter covers another one only if its wants include those of the other.

A filter with wildcards may have very many filters below it. They are looked at in portions (`go_on`); until then the upstream
is told of more filters than it needs, never of fewer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, cast

from broker.routing.names import has_wildcard
from broker.routing.trie import Node, Trie
from federation.links.wants import NOBODY, Wants, include
from federation.topics.filters import covers, filter_of, levels_of

_ANY_LEVEL: Final = b"\0"  # in no filter: only `+` and `#` match it


class CoverEntry:
    """wanted  the wants of the filter in the cluster
    told    the wants that the upstream is told of; () for a filter that it is not told
    """

    __slots__ = ("told", "topic_filter", "wanted")

    def __init__(self, topic_filter: bytes) -> None:
        self.topic_filter = topic_filter
        self.wanted: Wants = NOBODY
        self.told: Wants = NOBODY


class Cover:
    """filters_max  told at most; further ones wait in `refused` until there is room"""

    def __init__(self, filters_max: int) -> None:
        self._filters_max = filters_max
        self._entries: dict[bytes, CoverEntry] = {}
        self._told = Trie()
        self._below = Trie()  # the entries that are not told
        self._before: dict[bytes, Wants] = {}  # of changed filters: as `take_changes` told them
        self._looks: OrderedDict[bytes, Look] = OrderedDict()  # by filter: those below it are to be looked at
        self.refused: OrderedDict[bytes, CoverEntry] = OrderedDict()

    def set(self, topic_filter: bytes, wants: Wants) -> None:
        """Want a filter; with () no more."""
        topic_filter = filter_of(*levels_of(topic_filter))
        entry = self._entries.get(topic_filter)
        if entry is None:
            entry = self._entries[topic_filter] = CoverEntry(topic_filter)
            self._below.set(topic_filter, entry)
        entry.wanted = wants
        self._judge(entry)

    def go_on(self, steps: int) -> int:
        """Look at filters below those that changed, about `steps` of them. Returns how many were looked at: fewer when it is
        done."""
        looked = 0
        while self._looks and looked < steps:
            topic_filter, look = next(reversed(self._looks.items()))  # so that few looks wait at a time
            looked += look.advance(self, steps - looked)
            if look.is_done() and self._looks.get(topic_filter) is look:
                del self._looks[topic_filter]
                if look.entry.told and self._is_needless(look.entry):
                    self._untell(look.entry)
        while self.refused and len(self._told) < self._filters_max:
            looked += 1
            self._judge(self.refused.popitem(last=False)[1])
        return looked

    def is_settled(self) -> bool:
        """Return whether `go_on` has nothing to look at."""
        return not self._looks

    def wants_of(self, topic_filter: bytes) -> Wants:
        """The wants of a filter that is told; () of any other one."""
        entry = self._entries.get(topic_filter)
        return NOBODY if entry is None else entry.told

    def take_changes(self) -> tuple[list[bytes], list[bytes]]:
        """(filters to subscribe to, filters to unsubscribe from) since the last call, in this order. A filter whose wants
        changed is subscribed to again."""
        subscribe: list[bytes] = []
        unsubscribe: list[bytes] = []
        for topic_filter, before in self._before.items():
            told = self.wants_of(topic_filter)
            if told != before:
                (subscribe if told else unsubscribe).append(topic_filter)
        self._before = {}
        return subscribe, unsubscribe

    # --- for the looks ---

    def judge_told(self, entry: CoverEntry, wide: CoverEntry) -> None:
        """A filter that is told, below another one."""
        if entry is not wide and entry.told and covers(wide.topic_filter, entry.topic_filter):
            if wide.told and wide.wanted and include(wide.wanted, entry.told):
                self._looks.pop(entry.topic_filter, None)  # whatever is below it is below `wide`
                self._untell(entry)

    def judge_below(self, entry: CoverEntry, wide: CoverEntry) -> None:
        """A filter that is not told, below another one."""
        if not entry.told and covers(wide.topic_filter, entry.topic_filter):
            self._judge(entry)

    def _judge(self, entry: CoverEntry) -> None:
        """Tell the upstream of a filter, or no more."""
        told = entry.told
        if not self._is_needless(entry):
            if told == entry.wanted:
                return
            if not told:
                if len(self._told) >= self._filters_max and not self._makes_room(entry):
                    self.refused[entry.topic_filter] = entry
                    return
                self._below.delete(entry.topic_filter)
                self._told.set(entry.topic_filter, entry)
            self._before.setdefault(entry.topic_filter, told)
            entry.told = entry.wanted
        elif not told:
            self.refused.pop(entry.topic_filter, None)
            if not entry.wanted:
                self._forget(entry)
            return
        elif not has_wildcard(entry.topic_filter):
            self._untell(entry)
            return
        if has_wildcard(entry.topic_filter):
            self._looks[entry.topic_filter] = Look(entry, self._told, self._below)

    def _untell(self, entry: CoverEntry) -> None:
        self._before.setdefault(entry.topic_filter, entry.told)
        entry.told = NOBODY
        self._told.delete(entry.topic_filter)
        self._below.set(entry.topic_filter, entry)
        if not entry.wanted:
            self._forget(entry)

    def _forget(self, entry: CoverEntry) -> None:
        del self._entries[entry.topic_filter]
        self._below.delete(entry.topic_filter)

    def _makes_room(self, entry: CoverEntry) -> bool:
        """Return whether a filter that is not told covers one that is: then there are not more of them in the end."""
        look = Look(entry, self._told, self._below)
        return any(
            covers(entry.topic_filter, other.topic_filter) and include(entry.wanted, other.told)
            for other in look.told_entries()
        )

    def _is_needless(self, entry: CoverEntry) -> bool:
        """Return whether a filter is not wanted, or covered by another one that is told."""
        if not entry.wanted:
            return True
        for value in self._told.match(_any_topic(entry.topic_filter)):
            other = cast(CoverEntry, value)
            if (
                other is not entry
                and other.wanted
                and covers(other.topic_filter, entry.topic_filter)
                and include(other.wanted, entry.wanted)
            ):
                return True
        return False


class Look:
    """Looks at the filters below one that changed: first at those that are told, then at the others. The general ones come
    first, so that each that is told stays."""

    def __init__(self, entry: CoverEntry, told: Trie, below: Trie) -> None:
        self.entry = entry
        self._levels, self._is_open = levels_of(entry.topic_filter)
        self._told: list[Node] = [told.root]
        self._below: list[Node] = [below.root]

    def is_done(self) -> bool:
        return not self._told and not self._below

    def told_entries(self) -> Iterator[CoverEntry]:
        """Those of its entries that are told. Nothing may change meanwhile."""
        waiting = self._told
        while waiting:
            node = waiting.pop()
            waiting += self._children(node)
            for value in (node.hash_value, node.value):
                if value is not None:
                    yield cast(CoverEntry, value)

    def advance(self, cover: Cover, steps: int) -> int:
        """Look at about `steps` nodes. Returns how many there were. Filters may be added and removed between two calls: a
        node's path never changes, and each change is judged by itself."""
        looked = 0
        while looked < steps and not self.is_done():
            is_told = bool(self._told)
            waiting = self._told if is_told else self._below
            node = waiting.pop()
            looked += 1
            waiting += self._children(node)
            for value in (node.hash_value, node.value):
                if value is not None and is_told:
                    cover.judge_told(cast(CoverEntry, value), self.entry)
                elif value is not None:
                    cover.judge_below(cast(CoverEntry, value), self.entry)
        return looked

    def _children(self, node: Node) -> list[Node]:
        """The branches that may have filters below the one that changed, the one to visit first as the last."""
        levels = self._levels
        depth = node.depth
        found: list[Node] = []
        if depth >= len(levels) and not self._is_open:
            return found
        if depth >= len(levels) or levels[depth] == b"+":
            if node.children is not None:
                found.extend(node.children.values())
            if node.plus is not None:
                found.append(node.plus)
        elif node.children is not None:
            child = node.children.get(levels[depth])
            if child is not None:
                found.append(child)
        return [child for child in found if child.depth == depth + 1 or _leads_below(child, levels)]


def _leads_below(node: Node, levels: list[bytes]) -> bool:
    """Return whether the levels above `#` cover those of a node, as far as both go."""
    return all(level in (b"+", found) for level, found in zip(levels, node.path.split(b"/"), strict=False))


def _any_topic(topic_filter: bytes) -> bytes:
    """A topic that every filter matches which covers `topic_filter`."""
    levels, _ = levels_of(topic_filter)
    return b"/".join([_ANY_LEVEL if level == b"+" else level for level in levels])
