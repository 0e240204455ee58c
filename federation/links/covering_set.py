"""Interest in filters, and the covering set of a link: the fewest filters that have all topics of those that are of interest.

Interest comes from clients of this domain, or over links from domains whose clients have it, along a path of domains. A filter
covers another one only if the interest in it includes that in the other: then messages go as far.

A filter that another one covers is not subscribed at the upstream. When the covering one goes, those below it are subscribed
first, so that no message is lost in between. A filter with wildcards may cover very many filters. They are looked at in
portions (`go_on`); until then the link subscribes to more filters than it needs, never to fewer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, cast

from broker.routing.names import has_wildcard
from broker.routing.trie import Node, Trie
from federation.links.bridging.headers import HOPS_MAX, INTERESTS_MAX, Interest
from federation.topics.filters import covers, filter_of, levels_of

Interests = tuple[Interest, ...]
"""The interests in one filter, sorted, none of which includes another. () is no interest."""

CLIENT: Final = Interest((), HOPS_MAX)
CLIENTS: Final[Interests] = (CLIENT,)
NO_INTEREST: Final[Interests] = ()

_ANY_LEVEL: Final = b"\0"  # in no filter: only `+` and `#` match it


def _includes(one: Interest, other: Interest) -> bool:
    """Return whether one is passed on wherever the other one is. An interest of clients only does not stand for one of a domain
    behind them: messages that are passed on have numbers."""
    return (
        len(one.path) >= min(2, len(other.path))
        and one.hops - len(one.path) >= other.hops - len(other.path)
        and set(one.path) <= set(other.path)
    )


def merged(interests: Iterable[Interest]) -> Interests:
    """The interests that no other one includes. At most INTERESTS_MAX of them: those that go furthest."""
    found: list[Interest] = []
    for interest in sorted(set(interests), key=lambda each: (len(each.path) - each.hops, each.path)):
        if not any(_includes(other, interest) for other in found):
            found.append(interest)
    return tuple(found[:INTERESTS_MAX])


def include(interests: Interests, others: Interests) -> bool:
    """Return whether each of `others` is included in one of `interests`."""
    if interests == others:
        return True
    return all(any(_includes(interest, other) for interest in interests) for other in others)


class Entry:
    """interests   those in the filter
    subscribed  those with which the link subscribes to it; () for a filter that it does not subscribe to
    """

    __slots__ = ("interests", "subscribed", "topic_filter")

    def __init__(self, topic_filter: bytes) -> None:
        self.topic_filter = topic_filter
        self.interests: Interests = NO_INTEREST
        self.subscribed: Interests = NO_INTEREST


class CoveringSet:
    """`filters_max` at most; further ones wait in `refused` until there is room."""

    def __init__(self, filters_max: int) -> None:
        self._filters_max = filters_max
        self._entries: dict[bytes, Entry] = {}
        self._subscribed = Trie()
        self._covered = Trie()  # all other entries
        self._before: dict[bytes, Interests] = {}  # of changed filters: at the last `take_changes`
        self._walks: OrderedDict[bytes, Walk] = OrderedDict()  # through the filters below those that changed
        self.refused: OrderedDict[bytes, Entry] = OrderedDict()

    def set(self, topic_filter: bytes, interests: Interests) -> None:
        """Change the interests in a filter."""
        topic_filter = filter_of(*levels_of(topic_filter))
        entry = self._entries.get(topic_filter)
        if entry is None:
            entry = self._entries[topic_filter] = Entry(topic_filter)
            self._covered.set(topic_filter, entry)
        entry.interests = interests
        self._decide(entry)

    def go_on(self, steps: int) -> int:
        """Look at filters below those that changed, about `steps` of them. Returns how many there were: fewer when it is
        done."""
        looked = 0
        while self._walks and looked < steps:
            topic_filter, walk = next(reversed(self._walks.items()))  # so that few walks wait at a time
            while walk.nodes and looked < steps:
                looked += 1
                for entry in walk.next_entries():
                    self._look_at(entry, walk.entry)
            if not walk.nodes and self._walks.get(topic_filter) is walk:
                del self._walks[topic_filter]
                if walk.entry.subscribed and self._is_needless(walk.entry):
                    self._unsubscribe(walk.entry)
        while self.refused and len(self._subscribed) < self._filters_max:
            looked += 1
            self._decide(self.refused.popitem(last=False)[1])
        return looked

    def is_settled(self) -> bool:
        """Return whether `go_on` has nothing to look at."""
        return not self._walks

    def interests_of(self, topic_filter: bytes) -> Interests:
        """Return those in a filter of the set; () for any other one."""
        entry = self._entries.get(topic_filter)
        return NO_INTEREST if entry is None else entry.subscribed

    def take_changes(self) -> tuple[list[bytes], list[bytes]]:
        """(filters to subscribe to, filters to unsubscribe from) since the last call, in this order, so that nothing is lost in
        between. A filter whose interests changed is subscribed to again."""
        subscribe: list[bytes] = []
        unsubscribe: list[bytes] = []
        for topic_filter, before in self._before.items():
            interests = self.interests_of(topic_filter)
            if interests != before:
                (subscribe if interests else unsubscribe).append(topic_filter)
        self._before = {}
        return subscribe, unsubscribe

    def _look_at(self, entry: Entry, wide: Entry) -> None:
        """A filter that may be below `wide`, which changed."""
        if not covers(wide.topic_filter, entry.topic_filter):
            return
        if not entry.subscribed:
            self._decide(entry)
        elif entry is not wide and wide.subscribed and wide.interests and include(wide.interests, entry.subscribed):
            self._walks.pop(entry.topic_filter, None)  # whatever is below it is below `wide`
            self._unsubscribe(entry)

    def _decide(self, entry: Entry) -> None:
        """Subscribe to a filter, or no more."""
        before = entry.subscribed
        if not self._is_needless(entry):
            if before == entry.interests:
                return
            if not before:
                if len(self._subscribed) >= self._filters_max and not self._covers_another(entry):
                    self.refused[entry.topic_filter] = entry
                    return
                self._covered.delete(entry.topic_filter)
                self._subscribed.set(entry.topic_filter, entry)
            self._before.setdefault(entry.topic_filter, before)
            entry.subscribed = entry.interests
        elif not before:
            self.refused.pop(entry.topic_filter, None)
            if not entry.interests:
                self._forget(entry)
            return
        elif not has_wildcard(entry.topic_filter):
            self._unsubscribe(entry)
            return
        if has_wildcard(entry.topic_filter):
            self._walks[entry.topic_filter] = Walk(entry, self._covered.root, self._subscribed.root)

    def _unsubscribe(self, entry: Entry) -> None:
        self._before.setdefault(entry.topic_filter, entry.subscribed)
        entry.subscribed = NO_INTEREST
        self._subscribed.delete(entry.topic_filter)
        self._covered.set(entry.topic_filter, entry)
        if not entry.interests:
            self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        del self._entries[entry.topic_filter]
        self._covered.delete(entry.topic_filter)

    def _covers_another(self, entry: Entry) -> bool:
        """Return whether a filter covers one of the set: then there are not more of them in the end."""
        walk = Walk(entry, self._subscribed.root)
        while walk.nodes:
            for other in walk.next_entries():
                if covers(entry.topic_filter, other.topic_filter) and include(entry.interests, other.subscribed):
                    return True
        return False

    def _is_needless(self, entry: Entry) -> bool:
        """Return whether a filter is of no interest, or covered by another one of the set."""
        if not entry.interests:
            return True
        for value in self._subscribed.match(_any_topic(entry.topic_filter)):
            other = cast(Entry, value)
            if (
                other is not entry
                and other.interests
                and covers(other.topic_filter, entry.topic_filter)
                and include(other.interests, entry.interests)
            ):
                return True
        return False


class Walk:
    """The filters below one that changed, the general ones first, so that each that is subscribed to stays. Filters may be
    added and removed meanwhile: a node's path never changes, and each change is decided by itself.

    nodes  those that are not visited, the next one last
    """

    def __init__(self, entry: Entry, *roots: Node) -> None:
        self.entry = entry
        self.nodes = list(roots)
        self._levels, self._is_open = levels_of(entry.topic_filter)

    def next_entries(self) -> list[Entry]:
        """Visit a node."""
        node = self.nodes.pop()
        self.nodes += self._children(node)
        return [cast(Entry, value) for value in (node.hash_value, node.value) if value is not None]

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
