"""Interest of a cluster in topics, and what each link tells its upstream of it.

`ClusterInterest` knows the wants of every filter of the cluster: of this node's clients and links, and of the other nodes. Each
`LinkInterest` makes of them the fewest filters within its policies.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from broker.broker import Broker
from broker.hooks import InterestObserver
from federation.links.bridging.bridging import LinkBridging
from federation.links.cover import Cover
from federation.links.wants import CLIENTS, NOBODY, Tally, Upstream, Wants, parse_wants
from federation.topics.mapping import TopicMapping
from federation.topics.scope import Scope

FILTERS_MAX: Final = 200_000  # of one link at its upstream
STEPS_PER_CALL: Final = 1_000  # changed filters, and filters below them, of all links together


class LinkInterest:
    """The interest of one link at its upstream: filters as the upstream names the topics.

    keeps_all  the patterns of the policies themselves, whatever clients want (`interest: all`)
    """

    def __init__(
        self,
        scope: Scope,
        mapping: TopicMapping,
        upstream: Upstream,
        keeps_all: bool = False,
        filters_max: int = FILTERS_MAX,
    ) -> None:
        self._scope = scope
        self._mapping = mapping
        self._upstream = upstream
        self._keeps_all = keeps_all
        self._cover = Cover(filters_max)
        self._told: dict[bytes, Wants] = {}  # local filters: the wants that the upstream is told of
        self._tallies: dict[bytes, Tally] = {}  # filters at the upstream, with those that they come from
        self._known: dict[Wants, Wants] = {}  # Upstream.told for wants that were seen: there are few
        self._keep_all()

    def set_upstream(self, upstream: Upstream) -> None:
        """The upstream has said which domain it is. `ClusterInterest.tell` follows."""
        self._upstream = upstream
        self._known.clear()
        self._keep_all()

    def _keep_all(self) -> None:
        if self._keeps_all:
            wants = self._upstream.told(CLIENTS)
            for pattern in self._scope.patterns:
                for mapped in self._mapping.map_filter_out(pattern):
                    self._cover.set(mapped, wants)

    def change(self, topic_filter: bytes, wants: Wants) -> None:
        """The wants of a filter in the cluster; () when it is wanted no more."""
        if self._keeps_all:
            return
        told = self._known.get(wants)
        if told is None:
            told = self._known[wants] = self._upstream.told(wants)
        before = self._told.get(topic_filter, NOBODY)
        if told == before:
            return
        if told:
            self._told[topic_filter] = told
        else:
            del self._told[topic_filter]
        for part in self._scope.parts(topic_filter):
            for mapped in self._mapping.map_filter_out(part):
                tally = self._tallies.get(mapped)
                if tally is None:
                    tally = self._tallies[mapped] = Tally()
                if told:
                    tally.add(told)
                if before:
                    tally.remove(before)
                found = tally.wants()
                if not found:
                    del self._tallies[mapped]
                self._cover.set(mapped, found)

    def go_on(self, steps: int) -> int:
        """Look at filters that the changed ones cover, about `steps` of them. Returns how many there were."""
        return self._cover.go_on(steps) if steps > 0 else 0

    def is_settled(self) -> bool:
        """Return whether `go_on` has nothing to look at."""
        return self._cover.is_settled()

    def take_changes(self) -> tuple[list[bytes], list[bytes]]:
        """(filters to subscribe to, filters to unsubscribe from), in this order, so that nothing is lost in between. A filter
        that is there already is subscribed to again when its wants changed."""
        return self._cover.take_changes()

    def wants_of(self, topic_filter: bytes) -> Wants:
        """Return who wants one of the `filters`, as the upstream is told."""
        return self._cover.wants_of(topic_filter)

    @property
    def refused(self) -> int:
        """Number of filters that wait because the link has as many as it may."""
        return len(self._cover.refused)

    @property
    def patterns(self) -> list[bytes]:
        """The patterns of the link's policies, less those of which a higher policy takes everything."""
        return self._scope.patterns

    @property
    def changes_topics(self) -> bool:
        """Return whether `map_in` is to be asked about each topic."""
        return bool(self._mapping.rules) or self._scope.is_shared

    def has(self, topic: bytes) -> bool:
        """Return whether a local topic belongs to the link."""
        return self._scope.has(topic)

    def map_out(self, topic: bytes) -> bytes | None:
        """The upstream's name of a local topic. None for a message that is not pushed there."""
        return self._mapping.map_out(topic) if self._scope.has(topic) else None

    def map_in(self, topic: bytes) -> bytes | None:
        """The local name of a topic of the upstream. None for a message to drop: the mapping does not name it, or another
        policy has the topic."""
        local = self._mapping.map_in(topic)
        return local if local is not None and self._scope.has(local) else None


class ClusterInterest(InterestObserver):
    """Wants by filter. A shared group counts as interest in its filter: it gets one copy in the whole domain.

    `appeared` gets the share name and the filter of each group that has its first member on this node."""

    def __init__(self, appeared: dict[tuple[bytes, bytes], None] | None = None) -> None:
        self._appeared = {} if appeared is None else appeared
        self._tallies: dict[bytes, Tally] = {}
        self._of_links: dict[tuple[str, bytes, bytes], Wants] = {}  # (node, share name, filter) that links want
        self._changed: OrderedDict[bytes, None] = OrderedDict()
        self._links: list[LinkInterest] = []
        self._untold: dict[LinkInterest, list[bytes]] = {}  # filters that new links are not told of yet

    def observe(self, broker: Broker) -> None:
        """Take the interest that is there, and be told of changes from now on."""
        for share_name, topic_filter in broker.local_interest():
            self.interest_added("", share_name, topic_filter, broker.interest_note(share_name, topic_filter))
        for node, share_name, topic_filter, wants in broker.forwarder.remote_interest():
            self.interest_added(node, share_name, topic_filter, wants)
        broker.interest_observer = self

    def interest_added(self, node: str, share_name: bytes, topic_filter: bytes, note: bytes) -> None:
        wants = CLIENTS
        if note:
            wants = self._of_links[(node, share_name, topic_filter)] = parse_wants(note)
        self.add(topic_filter, wants)
        if share_name and not node:
            self._appeared[(share_name, topic_filter)] = None

    def interest_removed(self, node: str, share_name: bytes, topic_filter: bytes) -> None:
        self.remove(topic_filter, self._of_links.pop((node, share_name, topic_filter), CLIENTS))

    def note_changed(self, node: str, topic_filter: bytes, note: bytes) -> None:
        # Added first: so no link sees the filter without anybody who wants it.
        before = self._of_links.pop((node, b"", topic_filter), CLIENTS)
        self.interest_added(node, b"", topic_filter, note)
        self.remove(topic_filter, before)

    def add(self, topic_filter: bytes, wants: Wants = CLIENTS) -> None:
        """The interest of one node in a filter."""
        tally = self._tallies.get(topic_filter)
        if tally is None:
            tally = self._tallies[topic_filter] = Tally()
        tally.add(wants)
        self._changed[topic_filter] = None

    def remove(self, topic_filter: bytes, wants: Wants = CLIENTS) -> None:
        """Undo one `add`."""
        tally = self._tallies[topic_filter]
        tally.remove(wants)
        if tally.is_empty():
            del self._tallies[topic_filter]
        self._changed[topic_filter] = None

    def wants_of(self, topic_filter: bytes) -> Wants:
        tally = self._tallies.get(topic_filter)
        return NOBODY if tally is None else tally.wants()

    def add_link(self, link: LinkInterest) -> None:
        """Tell the link everything, with the next calls of `pass_on`, and changes from now on."""
        self._links.append(link)
        if self._tallies:
            self._untold[link] = list(reversed(self._tallies))

    def has_told(self, link: LinkInterest) -> bool:
        """Return whether a link that was added knows everything by now."""
        return link not in self._untold

    def tell(self, link: LinkInterest) -> None:
        """Tell a link again what it knows, because its upstream is another one. Little changes for most filters."""
        for topic_filter, tally in self._tallies.items():
            link.change(topic_filter, tally.wants())

    def remove_link(self, link: LinkInterest) -> None:
        self._links.remove(link)
        self._untold.pop(link, None)

    def has_changes(self) -> bool:
        """Return whether `pass_on` has something to do."""
        return bool(self._changed or self._untold) or not all(link.is_settled() for link in self._links)

    def pass_on(self, steps: int = STEPS_PER_CALL) -> bool:
        """Tell the links of changed filters, in about so many steps. True when there are more."""
        changed = self._changed
        steps -= self._go_on(steps)
        while changed and steps > 0:
            topic_filter, _ = changed.popitem(last=False)
            wants = self.wants_of(topic_filter)
            for link in self._links:
                link.change(topic_filter, wants)
                steps -= 1
        steps -= self._tell_new(steps)
        self._go_on(steps)
        return self.has_changes()

    def _tell_new(self, steps: int) -> int:
        """Tell new links of about so many filters. Returns how many there were. A link may be told twice of one that
        has changed meanwhile, which changes nothing."""
        told = 0
        for link, filters in list(self._untold.items()):
            while filters and told < steps:
                topic_filter = filters.pop()
                link.change(topic_filter, self.wants_of(topic_filter))
                told += 1
            if not filters:
                del self._untold[link]
        return told

    def _go_on(self, steps: int) -> int:
        looked = 0
        for link in self._links:
            looked += link.go_on(steps - looked)
        return looked


@dataclass(frozen=True, slots=True)
class Domain:
    """This domain, as all links of a node know it.

    interest  what the cluster wants
    due       of Effects: the links with something to do
    """

    name: bytes
    broker: Broker
    bridging: LinkBridging
    interest: ClusterInterest
    rng: random.Random
    due: dict[str, None]
