"""Links as receivers of messages: the interest of links in a filter, and those of them that get a message of a route.

Interest carries a note to other nodes and to the plugin `links`:

    b""                           of clients, and of no link
    b"1" HEADER… or b"0" HEADER…  of links, with b"1" of clients, too; each HEADER is b"\\n" and a header of SUBSCRIBE
                                  (federation/links/bridging/headers.py)
    b"1n" …, b"0n" …              one of the links relays to further domains: messages need numbers

A shared group counts as clients.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.bridging import Bridge
from broker.codec.runs import Run
from broker.hooks import Peer
from broker.message import Message, Publication
from broker.origin import NO_DOMAIN, Origin
from broker.publisher import Publisher
from broker.routing.route import Receiver
from broker.routing.subscriber import Subscriber
from broker.routing.subscription import FilterEntry, Subscription
from federation.links.bridging.ends import LinkEnd
from federation.links.bridging.headers import INTERESTS_MAX, encode_interest
from federation.links.bridging.own_domain import NEW, OwnDomain

CLIENTS_ONLY: Final = b""
LINKS: Final = b"0"
LINKS_AND_CLIENTS: Final = b"1"
NUMBERS: Final = b"n"
NOTE_BYTES_MAX: Final = 32_768  # further headers of one filter are left out


class Notes:
    """Those of one node."""

    def __init__(self) -> None:
        self._links: dict[bytes, dict[Subscriber, Subscription]] = {}  # subscriptions of links, by filter
        self._notes: dict[bytes, bytes] = {}  # by filter, of those that links want

    def of(self, topic_filter: bytes) -> bytes:
        return self._notes.get(topic_filter, CLIENTS_ONLY)

    def change(self, entry: FilterEntry | None, subscription: Subscription) -> bool:
        """As Bridging.interest_changed."""
        topic_filter, session = subscription.topic_filter, subscription.session
        links = self._links.get(topic_filter)
        if links is None and session.bridge_end is None:
            return False
        if links is None:
            links = self._links[topic_filter] = {}
        links.pop(session, None)
        if entry is not None and session in entry.subscriptions and session.bridge_end is not None:
            links[session] = subscription
        before = self._notes.pop(topic_filter, CLIENTS_ONLY)
        if entry is None or not links:
            del self._links[topic_filter]
            return before != CLIENTS_ONLY
        note = self._notes[topic_filter] = encode_note(list(links.values()), len(entry.subscriptions) > len(links))
        return note != before


def encode_note(subscriptions: list[Subscription], has_clients: bool) -> bytes:
    """The note of a filter to which links have subscribed."""
    headers: dict[bytes, None] = {}
    relays = False
    for subscription in subscriptions:
        end = cast(LinkEnd, subscription.session.bridge_end)
        relays = relays or end.relays or is_relayed(subscription.along)
        if end.is_own:
            continue  # a link of this node that pushes: it takes what is here, and asks for nothing from elsewhere
        for header in subscription.along or (encode_interest((end.domain,), end.max_hops),):
            headers[header] = None
    note = LINKS_AND_CLIENTS if has_clients else LINKS
    if relays:
        note += NUMBERS
    for count, header in enumerate(sorted(headers)):
        if count == INTERESTS_MAX or len(note) + len(header) >= NOTE_BYTES_MAX:
            break
        note += b"\n" + header
    return note


def parse_note(note: bytes) -> tuple[bool, list[bytes]]:
    """(whether clients want the filter, headers of links) of a note."""
    headers = note.split(b"\n")
    return not headers[0].startswith(LINKS), headers[1:]


def needs_numbers(note: bytes) -> bool:
    """Return whether one of the links of a note relays messages to further domains."""
    return note[1:2] == NUMBERS


def is_relayed(headers: tuple[bytes, ...]) -> bool:
    """Return whether one of the headers of a SUBSCRIBE has a path of two domains and more: the interest is that of the
    first one, and the last one relays the messages."""
    return True in [b"," in header.rpartition(b" path=")[2] for header in headers]


class LinkBridge(Bridge):
    """receivers  link sessions on this node"""

    __slots__ = ("_home", "receivers")

    def __init__(
        self, home: OwnDomain, subscriptions: list[Subscription], peers: list[Peer], is_numbered: bool
    ) -> None:
        super().__init__(peers, is_numbered)
        self._home = home
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

    def number(self, sent: Publication) -> None:
        """Give a message its number, where copies of it may come to one domain."""
        if isinstance(sent, Run):
            if self.is_numbered:
                for message in sent.messages():
                    self.number(message)
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
            if receiver.no_local and receiver.own is None and session.client_id == sent.client_id:
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

    def _is_skipped(self, end: LinkEnd, origin: Origin, count: int) -> bool:
        """Return whether `count` messages of this origin do not go to a domain, which is counted."""
        if end.refuses_path(origin):
            self._home.path_skipped += count
            return True
        if end.refuses_hops(origin):
            self._home.hops_skipped += count
            return True
        return False
