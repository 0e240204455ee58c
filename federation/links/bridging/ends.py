"""The other ends of links, as their sessions on this node know them.

RemoteEnd   another domain, whose link has connected here, or another node of the cluster, whose queue link has
OwnEnd      the upstream of a link of this node (topic_link.py, queue_link.py)
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from broker.bridge_end import Arrival, BridgeEnd
from broker.codec.packets import Subscribe, Unsubscribe
from broker.codec.reason_codes import SUCCESS, UNSPECIFIED_ERROR
from broker.errors import ProtocolViolation
from broker.message import Message, Publication
from broker.origin import NAME, NO_DOMAIN, HeaderError, Origin, split_properties
from broker.routing.shared import SharedGroup
from broker.session.control import ClientUnsubscribing, Subscribing
from broker.session.session import Session
from broker.slices import Work
from federation.links.bridging.group_consumers import GroupConsumers
from federation.links.bridging.headers import (
    INTERESTS_MAX,
    NAME_TEXT,
    NO_LIMIT,
    VIA,
    LinkConnect,
    came_from,
    canonical_interest,
    encode_connect,
    headers_of,
    parse_interest,
    parse_limit,
    parse_only_asked,
    queue_of,
    received,
    unquoted,
)
from federation.links.bridging.own_domain import LATE, NEW, SEEN

DROP_HEADER: Final = "link_header"
DROP_PATH: Final = "link_path"
DROP_HOPS: Final = "link_hops"
DROP_DUPLICATE: Final = "link_duplicate"
DROP_TOPIC: Final = "link_topic"
DROP_RETAINED: Final = "link_retained"
DROP_REASONS: Final = (DROP_HEADER, DROP_PATH, DROP_HOPS, DROP_DUPLICATE, DROP_TOPIC, DROP_RETAINED)
TAKEN: Final = Arrival()
TOPICS_MAX: Final = 10_000  # whose answer is remembered; a full memory is cleared
TOPIC_BYTES_MAX: Final = 1024  # longer topics are not remembered, which bounds the bytes of the memory


@mypyc_attr(allow_interpreted_subclasses=True)
class LinkEnd(BridgeEnd):
    """connect      what its CONNECT says; of an upstream, what that of this node says
    addresses    of a broker of another kind, as short digests, the one of the connection first; () for a domain
    asked        filters that were subscribed to on this connection
    is_explicit  messages without an origin get one on the way there: the other end does not know where they come from
    """

    def __init__(
        self, consumers: GroupConsumers, connect: LinkConnect, is_node: bool = False, is_own: bool = False
    ) -> None:
        domain, ttl = connect.domain, connect.message_ttl
        kept = encode_connect(domain, connect.max_hops, connect.relays, ttl, takes_deletions=connect.takes_deletions)
        super().__init__(domain.decode(), Origin((domain,)), is_own, is_node, kept, ttl)
        self.home = consumers.home
        self.consumers = consumers
        self.connect = connect
        self.domain = connect.domain
        self.max_hops = connect.max_hops
        self.relays = connect.relays
        self.deletions = self.home.deletions if connect.takes_deletions else None
        self.addresses: tuple[bytes, ...] = ()
        self.is_explicit = False
        self.asked: set[bytes] = set()

    # --- the session

    def subscribing(self, client_id: str, packet: Subscribe, identifier: int) -> Work:
        """A queue link asks for jobs, up to a limit; other links say who is interested in the filters."""
        headers = headers_of(packet.properties)
        session = self.home.broker.sessions[client_id]
        try:
            for header in headers if self.consumers.is_open else []:
                limit = parse_limit(header)
                if limit != NO_LIMIT:
                    return LinkSubscribing(self, session, packet, identifier, (), limit)
            interests = self._interests(headers)
        except HeaderError as error:
            raise ProtocolViolation(f"user property {NAME_TEXT} of SUBSCRIBE: {error.text}") from None
        if self.is_node:
            raise ProtocolViolation("SUBSCRIBE of another node of the cluster that asks for no jobs")
        return LinkSubscribing(self, session, packet, identifier, interests, NO_LIMIT)

    def _interests(self, headers: list[bytes]) -> tuple[bytes, ...]:
        """Read the interests of a SUBSCRIBE. Raises HeaderError and ProtocolViolation."""
        if len(headers) > INTERESTS_MAX:
            raise ProtocolViolation(
                f"SUBSCRIBE has {len(headers)} user properties {NAME_TEXT}, at most {INTERESTS_MAX}"
            )
        for header in headers:
            last = parse_interest(header).path[-1]
            if self.domain not in (last, NO_DOMAIN):
                raise ProtocolViolation(
                    f"user property {NAME_TEXT} of SUBSCRIBE: the path ends with {last.decode()}, "
                    f"must end with the domain of the link, {self.domain.decode()}"
                )
        return tuple(sorted([canonical_interest(header) for header in headers]))

    def unsubscribing(self, client_id: str, packet: Unsubscribe) -> Work:
        """With the header, filters end that the link has not asked for on this connection."""
        session = self.home.broker.sessions[client_id]
        filters = packet.topic_filters
        try:
            if any(parse_only_asked(header) for header in headers_of(packet.properties)):
                filters = filters + [full for full in session.subscriptions if full not in self.asked]
        except HeaderError as error:
            raise ProtocolViolation(f"user property {NAME_TEXT} of UNSUBSCRIBE: {error.text}") from None
        return LinkUnsubscribing(self, session, filters, len(packet.topic_filters))

    # --- messages from the other end

    def takes(self, topic: bytes) -> bool:
        """Return whether the other end may publish to a topic."""
        raise AssertionError("a subclass implements this")

    def receive(self, sent: Publication, is_resent: bool) -> Arrival:
        sent.origin = self.origin
        if sent.properties and NAME in sent.properties:
            sent.properties, headers = split_properties(sent.properties)
            if headers:
                return self._received(headers, sent, is_resent)
        return self._judged(sent, self.origin, 0)

    def _received(self, headers: list[bytes], sent: Publication, is_resent: bool) -> Arrival:
        """As `receive`, for a message with headers."""
        home = self.home.name
        try:
            origin = sent.origin = received(headers, self.domain, self.addresses[0] if self.addresses else b"")
        except HeaderError:
            return Arrival(DROP_HEADER)
        if home != NO_DOMAIN and home in origin.path and not self.is_node:
            return Arrival(DROP_PATH)
        if self.is_own and len(origin.path) > self.max_hops:
            return Arrival(DROP_HOPS)
        if origin.others is not None and LATE in origin.others and not self._is_outdated(sent.topic, origin):
            return Arrival(DROP_DUPLICATE)
        return self._judged(sent, origin, self.home.duplicates.judge(origin, is_resent))

    def _judged(self, sent: Publication, origin: Origin, passed: int) -> Arrival:
        """The meaning of a message of an origin. `passed`: what DuplicateWindow.judge says of it."""
        if queue_of(origin):
            return Arrival(DROP_HEADER)
        if passed == SEEN:
            return Arrival(DROP_DUPLICATE)
        if not self.takes(sent.topic):
            return Arrival(DROP_TOPIC)
        return TAKEN if passed == NEW else Arrival("", passed)

    def _is_outdated(self, topic: bytes, deletion: Origin) -> bool:
        """Return whether the retained message of a topic is older than its deletion elsewhere."""
        held = self.home.broker.retained.get(topic)
        return held is not None and (held.origin is None or held.origin.published_at_ms < deletion.published_at_ms)

    # --- messages to the other end

    def set_addresses(self, addresses: tuple[bytes, ...]) -> None:
        """The other end is a broker of another kind."""
        self.addresses = addresses
        self.origin = came_from(Origin((NO_DOMAIN,)), addresses[0])

    def refuses(self, origin: Origin) -> bool:
        return self.refuses_path(origin) or self.refuses_hops(origin)

    def refuses_path(self, origin: Origin) -> bool:
        """Return whether a message of this origin was in the domain already, or came from the broker of another
        kind."""
        if self.domain != NO_DOMAIN:
            return self.domain in origin.path
        if not self.addresses or origin.others is None or VIA not in origin.others:
            return False
        passed = origin.others[VIA].split(b",")
        return True in [address in passed for address in self.addresses]

    def refuses_hops(self, origin: Origin) -> bool:
        """Return whether a message of this origin has passed as many links as the domain allows."""
        return len(origin.path) >= self.max_hops

    def carried(self, message: Message) -> bytes:
        origin = message.origin
        if origin is None:
            if not self.is_explicit:
                return b""
            origin = self.home.no_origin
        return origin.leaving(self.home.name)

    def group_of(self, message: Message) -> SharedGroup | None:
        name = queue_of(message.origin)
        return self.consumers.group_of(unquoted(name)) if name else None

    def rejected(self, client_id: str, packet_id: int, now: float) -> None:
        self.consumers.refuse(self.home.broker.sessions[client_id], packet_id, now)


class LinkSubscribing(Subscribing):
    """`limit`: jobs that a queue link asks for; NO_LIMIT for ordinary subscriptions."""

    def __init__(
        self, end: LinkEnd, session: Session, packet: Subscribe, identifier: int, along: tuple[bytes, ...], limit: int
    ) -> None:
        super().__init__(end.home.broker, session, packet.filters, identifier, along)
        self._end = end
        self._limit = limit

    def handle(self, index: int) -> int:
        full = self.requests[index].topic_filter
        if self._limit != NO_LIMIT:
            return self._end.consumers.consume(self.session, full, self._limit)
        code = super().handle(index)
        if code < UNSPECIFIED_ERROR:
            self._end.asked.add(full)
        return code


class LinkUnsubscribing(ClientUnsubscribing):
    def __init__(self, end: LinkEnd, session: Session, full_filters: list[bytes], answered: int) -> None:
        super().__init__(end.home.broker, session, full_filters, answered)
        self._end = end

    def handle(self, index: int) -> int:
        full = self.full_filters[index]
        self._end.asked.discard(full)
        return SUCCESS if self._end.consumers.end(self.session, full) else super().handle(index)


class RemoteEnd(LinkEnd):
    """Another node of the cluster asks for jobs, and publishes nothing."""

    def takes(self, topic: bytes) -> bool:
        return not self.is_node


@mypyc_attr(allow_interpreted_subclasses=True)
class OwnEnd(LinkEnd):
    def __init__(
        self,
        consumers: GroupConsumers,
        domain: bytes,
        max_hops: int,
        dropped: dict[str, int],
        relays: bool = False,
        is_node: bool = False,
        message_ttl: float = -1.0,
    ) -> None:
        super().__init__(consumers, LinkConnect(domain, max_hops, relays, message_ttl=message_ttl), is_node, True)
        self.dropped = dropped
        self._topics: dict[bytes, bool] = {}

    def takes(self, topic: bytes) -> bool:
        """Return whether messages of a topic come in. Answers are kept."""
        if len(topic) > TOPIC_BYTES_MAX:
            return self.has_topic(topic)
        known = self._topics.get(topic)
        if known is None:
            if len(self._topics) >= TOPICS_MAX:
                self._topics.clear()
            known = self._topics[topic] = self.has_topic(topic)
        return known

    def has_topic(self, topic: bytes) -> bool:
        """Return whether the link is for a topic. A subclass decides."""
        return True

    def receive(self, sent: Publication, is_resent: bool) -> Arrival:
        if sent.retain and not self.home.broker.settings.retain_available:
            return Arrival(DROP_RETAINED)  # no SUBSCRIBE of MQTT 3.1.1 asks for messages without it
        return super().receive(sent, is_resent)
