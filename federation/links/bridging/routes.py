"""The links of a route: which of them get a message, with which header, and which copies are new."""

# compiled with mypyc
from __future__ import annotations

from typing import cast

from broker.bridging import Bridge
from broker.codec.runs import Run
from broker.hooks import Peer
from broker.message import Message, Publication
from broker.origin import NO_DOMAIN, Origin
from broker.publisher import Publisher
from broker.routing.route import Receiver
from broker.routing.subscriber import Subscriber
from broker.routing.subscription import Subscription
from federation.links.bridging.ends import LinkEnd
from federation.links.bridging.notes import is_relayed
from federation.links.bridging.own_domain import NEW, OwnDomain


class LinkBridge(Bridge):
    """receivers    link sessions on this node
    peers        the other nodes that have link sessions for the topic
    is_numbered  messages get a sequence number, because they may come to a domain on two paths
    """

    __slots__ = ("_home", "is_numbered", "peers", "receivers")

    def __init__(
        self, home: OwnDomain, subscriptions: list[Subscription], peers: list[Peer], is_numbered: bool
    ) -> None:
        self._home = home
        self.peers = peers
        self.is_numbered = is_numbered
        merged: dict[Subscriber, Receiver] = {}
        for subscription in subscriptions:
            session = subscription.session
            receiver = merged.get(session)
            if receiver is None:
                merged[session] = Receiver(subscription)
            else:
                receiver.merge(subscription)  # one copy for each domain, whatever `delivery_mode` is
            if cast(LinkEnd, session.bridge_end).relays or is_relayed(subscription.along):
                self.is_numbered = True
        self.receivers = list(merged.values())
        for receiver in self.receivers:
            receiver.end_merge()

    def begin(self, sent: Publication) -> None:
        """Give a message its number, where copies of it may come to one domain."""
        if isinstance(sent, Run):
            if self.is_numbered:
                for message in sent.messages():
                    self.begin(message)
            return
        origin = sent.origin
        if (self.is_numbered or sent.qos == 2) and (origin is None or not origin.node):
            node, sequence = self._home.next_number()
            sent.origin = (origin or self._home.no_origin).numbered(node, sequence)

    def deliver(self, sent: Publication, publisher: Publisher | None, now: float) -> None:
        self.deliver_copy(sent, NEW, publisher, now)

    def deliver_copy(self, sent: Publication, passed: int, publisher: Publisher | None, now: float) -> None:
        """Deliver a copy. `passed`: links that one before has passed, NEW for none. Domains of ours look at each copy by
        themselves; a broker of another kind gets this one only where that one went too far. A run stays one where its messages
        need no header."""
        origin = sent.origin
        self._home.broker.slices.steps += len(self.receivers)
        for receiver in self.receivers:
            session = receiver.session
            if receiver.no_local and session.client_id == sent.client_id:
                continue
            end = cast("LinkEnd | None", session.bridge_end)
            if end is not None and origin is not None:
                if passed and end.domain == NO_DOMAIN and passed < end.max_hops:
                    continue
                if self._is_skipped(end, origin, sent.count):
                    continue
            if isinstance(sent, Message):
                qos = min(receiver.qos, sent.qos)
                retain = sent.retain and receiver.retain_as_published
                session.deliver(sent, qos, retain, receiver.identifiers, publisher, now)
                continue
            run = cast(Run, sent)
            is_split = origin is not None or self.is_numbered or len(receiver.identifiers) > 0
            if is_split or (end is not None and end.is_explicit):
                for message in run.messages():
                    session.deliver(message, 0, False, receiver.identifiers, publisher, now)
            else:
                session.deliver_run(run, publisher, now)

    def splits(self, peer: Peer, run: Run) -> bool:
        return peer in self.peers and (run.origin is not None or self.is_numbered)

    def _is_skipped(self, end: LinkEnd, origin: Origin, count: int) -> bool:
        """Return whether `count` messages of this origin do not go to a domain, which is counted."""
        if end.refuses_path(origin):
            self._home.path_skipped += count
            return True
        if end.refuses_hops(origin):
            self._home.hops_skipped += count
            return True
        return False
