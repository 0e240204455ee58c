"""Interest of a cluster in topics, and what each link passes on of it to its upstream.

`ClusterInterest` knows the interests in every filter of the cluster: of this node's clients and links, and of the other nodes.
Each `LinkInterest` makes of them the covering set within its policies. Interest of clients is passed on to every upstream. That
which came over a link has the path of domains that it passed and the number of links that messages may pass on their way back:
it is passed on only as far as these allow, so that no two domains keep each other's interest alive.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from broker.broker import Broker
from broker.hooks import InterestObserver
from broker.origin import HeaderError
from federation.links.bridging.bridging import LinkBridging
from federation.links.bridging.headers import Interest, parse_interest
from federation.links.bridging.routes import parse_note
from federation.links.covering_set import CLIENT, CLIENTS, NO_INTEREST, CoveringSet, Interests, merged
from federation.topics.mapping import TopicMapping
from federation.topics.scope import Scope

FILTERS_MAX: Final = 200_000  # of one link at its upstream
STEPS_PER_CALL: Final = 1_000  # changed filters, and filters below them, of all links together
UNKNOWN: Final = b""  # the domain of an upstream that has not answered CONNECT


def parse_interests(note: bytes) -> Interests:
    """Read the interests of a node in a filter, as an InterestObserver gets them. A header that cannot be read is left out."""
    has_clients, headers = parse_note(note)
    found = [CLIENT] if has_clients else []
    for header in headers:
        try:
            found.append(parse_interest(header))
        except HeaderError:
            continue
    return merged(found)


def passed_on(interests: Interests, domain: bytes, max_hops: int, upstream: bytes | None) -> Interests:
    """Return the interests with which this `domain` subscribes to a filter at an upstream; () for not at all.

    max_hops  of the link
    upstream  its domain; UNKNOWN, which may be one of ours; None for a broker of another kind
    """
    if upstream is None:
        if CLIENT not in interests:
            return NO_INTEREST
        interests = CLIENTS  # as before CONNACK: so nothing changes for most filters
    found: list[Interest] = []
    for path, hops in interests:
        passed = len(path)
        if passed < hops and domain not in path and upstream not in path:
            found.append(Interest((*path, domain), min(hops, max_hops + passed)))
    return merged(found) if len(found) > 1 else tuple(found)


class Tally:
    """Counts the interests in one filter: one for each subscription, or each filter, that they come from."""

    __slots__ = ("_count", "_first", "_others")

    def __init__(self) -> None:
        # Most filters have interests of one kind only. A dict for each of them would take most of the memory.
        self._first: Interests = NO_INTEREST
        self._count = 0
        self._others: dict[Interests, int] | None = None

    def add(self, interests: Interests) -> None:
        if self._count == 0 and self._others is None:
            self._first = interests
        if interests == self._first:
            self._count += 1
        elif self._others is None:
            self._others = {interests: 1}
        else:
            self._others[interests] = self._others.get(interests, 0) + 1

    def remove(self, interests: Interests) -> None:
        """Undo one `add`."""
        if interests == self._first:
            assert self._count > 0
            self._count -= 1
            return
        others = self._others
        assert others is not None
        others[interests] -= 1
        if others[interests] == 0:
            del others[interests]
            if not others:
                self._others = None

    def is_empty(self) -> bool:
        return self._count == 0 and self._others is None

    def interests(self) -> Interests:
        """All of them together."""
        others = self._others
        if others is None:
            return self._first if self._count else NO_INTEREST
        found = [each for interests in others for each in interests]
        if self._count:
            found += self._first
        return merged(found)


class Tallies:
    """The interests by filter."""

    def __init__(self) -> None:
        self._tallies: dict[bytes, Tally] = {}

    def add(self, topic_filter: bytes, interests: Interests) -> None:
        tally = self._tallies.get(topic_filter)
        if tally is None:
            tally = self._tallies[topic_filter] = Tally()
        tally.add(interests)

    def remove(self, topic_filter: bytes, interests: Interests) -> None:
        """Undo one `add`."""
        tally = self._tallies[topic_filter]
        tally.remove(interests)
        if tally.is_empty():
            del self._tallies[topic_filter]

    def of(self, topic_filter: bytes) -> Interests:
        tally = self._tallies.get(topic_filter)
        return NO_INTEREST if tally is None else tally.interests()

    def filters(self) -> list[bytes]:
        return list(self._tallies)


class LinkInterest:
    """The interest of one link at its upstream: filters as the upstream names the topics.

    scope         the topics of its policies
    upstream      as in `passed_on`
    covering_set  the filters to which it subscribes
    """

    def __init__(
        self,
        scope: Scope,
        mapping: TopicMapping,
        domain: bytes,
        max_hops: int,
        keeps_all: bool = False,
        filters_max: int = FILTERS_MAX,
    ) -> None:
        """`keeps_all`: subscribe to the patterns of the policies themselves, whatever clients do (`interest: all`)."""
        self.scope = scope
        self.upstream: bytes | None = UNKNOWN
        self.covering_set = CoveringSet(filters_max)
        self._mapping = mapping
        self._domain = domain
        self._max_hops = max_hops
        self._keeps_all = keeps_all
        self._passed_on: dict[bytes, Interests] = {}  # by local filter
        self._tallies = Tallies()  # by filter at the upstream: those that it comes from
        self._known: dict[Interests, Interests] = {}  # `passed_on` for interests that were seen: there are few
        self._keep_all()

    def set_upstream(self, upstream: bytes | None) -> None:
        """The upstream has said which domain it is. `ClusterInterest.repeat` follows."""
        self.upstream = upstream
        self._known.clear()
        self._keep_all()

    def _keep_all(self) -> None:
        if self._keeps_all:
            interests = passed_on(CLIENTS, self._domain, self._max_hops, self.upstream)
            for pattern in self.scope.patterns:
                for mapped in self._mapping.map_filter_out(pattern):
                    self.covering_set.set(mapped, interests)

    def change(self, topic_filter: bytes, interests: Interests) -> None:
        """The cluster has these interests in a filter; () for none any more."""
        if self._keeps_all:
            return
        after = self._known.get(interests)
        if after is None:
            after = self._known[interests] = passed_on(interests, self._domain, self._max_hops, self.upstream)
        before = self._passed_on.get(topic_filter, NO_INTEREST)
        if after == before:
            return
        if after:
            self._passed_on[topic_filter] = after
        else:
            del self._passed_on[topic_filter]
        for part in self.scope.parts(topic_filter):
            for mapped in self._mapping.map_filter_out(part):
                if after:
                    self._tallies.add(mapped, after)
                if before:
                    self._tallies.remove(mapped, before)
                self.covering_set.set(mapped, self._tallies.of(mapped))

    @property
    def changes_topics(self) -> bool:
        """Return whether `map_in` is to be asked about each topic."""
        return bool(self._mapping.rules) or self.scope.is_shared

    def map_out(self, topic: bytes) -> bytes | None:
        """The upstream's name of a local topic. None for a message that is not pushed there."""
        return self._mapping.map_out(topic) if self.scope.has(topic) else None

    def map_in(self, topic: bytes) -> bytes | None:
        """The local name of a topic of the upstream. None for a message to drop: the mapping does not name it, or another
        policy has the topic."""
        local = self._mapping.map_in(topic)
        return local if local is not None and self.scope.has(local) else None


class ClusterInterest(InterestObserver):
    """The interests of the cluster by filter. A shared group counts as interest in its filter: it gets one copy in the whole
    domain.

    `appeared` gets the share name and the filter of each group that has its first member on this node."""

    def __init__(self, appeared: dict[tuple[bytes, bytes], None] | None = None) -> None:
        self._appeared = {} if appeared is None else appeared
        self._tallies = Tallies()
        self._of_links: dict[
            tuple[str, bytes, bytes], Interests
        ] = {}  # by node, share name and filter; others are CLIENTS
        self._changed: OrderedDict[bytes, None] = OrderedDict()
        self._links: list[LinkInterest] = []
        self._new: dict[LinkInterest, list[bytes]] = {}  # links that came, with the filters that they do not have yet

    def observe(self, broker: Broker) -> None:
        """Take the interest that is there, and see changes from now on."""
        for share_name, topic_filter in broker.local_interest():
            self.interest_added("", share_name, topic_filter, broker.interest_note(share_name, topic_filter))
        for node, share_name, topic_filter, note in broker.forwarder.remote_interest():
            self.interest_added(node, share_name, topic_filter, note)
        broker.interest_observer = self

    def interest_added(self, node: str, share_name: bytes, topic_filter: bytes, note: bytes) -> None:
        interests = CLIENTS
        if note:
            interests = self._of_links[(node, share_name, topic_filter)] = parse_interests(note)
        self.add(topic_filter, interests)
        if share_name and not node:
            self._appeared[(share_name, topic_filter)] = None

    def interest_removed(self, node: str, share_name: bytes, topic_filter: bytes) -> None:
        self.remove(topic_filter, self._of_links.pop((node, share_name, topic_filter), CLIENTS))

    def note_changed(self, node: str, topic_filter: bytes, note: bytes) -> None:
        # Added first: so no link sees the filter without any interest in it.
        before = self._of_links.pop((node, b"", topic_filter), CLIENTS)
        self.interest_added(node, b"", topic_filter, note)
        self.remove(topic_filter, before)

    def add(self, topic_filter: bytes, interests: Interests = CLIENTS) -> None:
        """The interest of one node in a filter."""
        self._tallies.add(topic_filter, interests)
        self._changed[topic_filter] = None

    def remove(self, topic_filter: bytes, interests: Interests = CLIENTS) -> None:
        """Undo one `add`."""
        self._tallies.remove(topic_filter, interests)
        self._changed[topic_filter] = None

    def interests_of(self, topic_filter: bytes) -> Interests:
        return self._tallies.of(topic_filter)

    def add_link(self, link: LinkInterest) -> None:
        """Pass everything on to the link, with the next calls of `pass_on`, and changes from now on."""
        self._links.append(link)
        if filters := self._tallies.filters():
            self._new[link] = filters[::-1]

    def is_complete(self, link: LinkInterest) -> bool:
        """Return whether a link that was added has everything by now."""
        return link not in self._new

    def repeat(self, link: LinkInterest) -> None:
        """Pass everything on to a link again, because its upstream is another one. Little changes for most filters."""
        for topic_filter in self._tallies.filters():
            link.change(topic_filter, self.interests_of(topic_filter))

    def remove_link(self, link: LinkInterest) -> None:
        self._links.remove(link)
        self._new.pop(link, None)

    def has_changes(self) -> bool:
        """Return whether `pass_on` has something to do."""
        return bool(self._changed or self._new) or not all(link.covering_set.is_settled() for link in self._links)

    def pass_on(self, steps: int = STEPS_PER_CALL) -> bool:
        """Pass changed filters on to the links, in about so many steps. True when there are more."""
        changed = self._changed
        steps -= self._go_on(steps)
        while changed and steps > 0:
            topic_filter, _ = changed.popitem(last=False)
            interests = self.interests_of(topic_filter)
            for link in self._links:
                link.change(topic_filter, interests)
                steps -= 1
        # A new link may get a filter twice that has changed meanwhile, which changes nothing.
        while self._new and steps > 0:
            link, filters = next(iter(self._new.items()))
            while filters and steps > 0:
                topic_filter = filters.pop()
                link.change(topic_filter, self.interests_of(topic_filter))
                steps -= 1
            if not filters:
                del self._new[link]
        self._go_on(steps)
        return self.has_changes()

    def _go_on(self, steps: int) -> int:
        looked = 0
        for link in self._links:
            if looked < steps:
                looked += link.covering_set.go_on(steps - looked)
        return looked


@dataclass(frozen=True, slots=True)
class Domain:
    """This domain, as all links of a node know it.

    interest  that of the cluster
    due       of Effects: the links with something to do
    """

    name: bytes
    broker: Broker
    bridging: LinkBridging
    interest: ClusterInterest
    rng: random.Random
    due: dict[str, bool]
