"""The other ends of links, as their sessions on this node know them.

RemoteEnd   another domain, whose link has connected here
NodeEnd     another node of the cluster, whose queue link has connected here
OwnEnd      the upstream of a link of this node (topic_link.py, queue_link.py)
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from broker.bridge_end import NOT_HANDLED, Arrival, BridgeEnd
from broker.codec.packets import Subscribe, Unsubscribe
from broker.codec.reason_codes import CLIENT_IDENTIFIER_NOT_VALID
from broker.config.settings_mqtt import MqttSettings
from broker.errors import MqttError, ProtocolViolation
from broker.message import Message, Publication
from broker.origin import NAME, NO_DOMAIN, HeaderError, Origin, split_properties
from broker.routing.retained import TopicMessages
from broker.routing.shared import SharedGroup
from federation.links.bridging.group_consumers import GroupConsumers
from federation.links.bridging.headers import (
    NAME_TEXT,
    NO_LIMIT,
    VIA,
    WANTS_MAX,
    LinkConnect,
    came_from,
    canonical_want,
    encode_connect,
    encode_limit,
    headers_of,
    parse_limit,
    parse_only_asked,
    parse_want,
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
    """domain       its name; NO_DOMAIN for a broker without one, or of another kind
    max_hops     messages go there while they have passed fewer links
    relays       its interest may come from domains behind it, whatever its SUBSCRIBEs say: messages have sequence numbers
    message_ttl  seconds that a message may wait for the domain here, -1 for no limit
    addresses    of a broker of another kind, as short digests, the one of the connection first; () for a domain
    takes_deletions  its subscriptions bring deletions of retained messages, too
    asked        filters that were subscribed to on this connection
    is_released  any user may take up the session
    is_explicit  messages without an origin get one on the way there: the other end does not know where they come from
    """

    __slots__ = (
        "addresses",
        "asked",
        "consumers",
        "domain",
        "home",
        "is_explicit",
        "is_released",
        "max_hops",
        "message_ttl",
        "relays",
        "takes_deletions",
    )

    def __init__(
        self,
        consumers: GroupConsumers,
        domain: bytes,
        max_hops: int,
        relays: bool = False,
        is_own: bool = False,
        is_node: bool = False,
    ) -> None:
        super().__init__(domain.decode(), Origin((domain,)), is_own, is_node)
        self.home = consumers.home
        self.consumers = consumers
        self.domain = domain
        self.max_hops = max_hops
        self.relays = relays
        self.message_ttl = -1.0
        self.addresses: tuple[bytes, ...] = ()
        self.is_explicit = False
        self.is_released = False
        self.takes_deletions = False
        self.asked: set[bytes] = set()

    # --- the session

    def session_expiry_max(self, settings: MqttSettings) -> float:
        return settings.link_session_expiry

    def limits(self, settings: MqttSettings) -> tuple[int, int, int, float]:
        return (
            settings.link_max_queued_messages,
            settings.link_max_queued_bytes,
            settings.link_max_inflight,
            self.message_ttl,
        )

    def subscriptions_max(self, settings: MqttSettings) -> int:
        return settings.link_max_subscriptions

    def encode(self) -> bytes:
        return encode_connect(
            self.domain, self.max_hops, self.relays, self.message_ttl, takes_deletions=self.takes_deletions
        )

    def check_taker(self, is_same_user: bool, domain: str) -> None:
        if not (is_same_user or self.is_released or domain.encode() == self.domain):
            raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, "the session belongs to a link of another user")

    def release(self) -> None:
        self.is_released = True

    # --- messages from the other end

    def takes(self, topic: bytes) -> bool:
        """Return whether the other end may publish to a topic."""
        return True

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

    def published(self, sent: Publication, arrival: Arrival) -> None:
        origin = sent.origin
        if origin is not None and origin is not self.origin:
            self.home.duplicates.note(origin, arrival.passed, True)

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

    # --- subscriptions

    def deletions(self) -> TopicMessages | None:
        return self.home.deletions if self.takes_deletions and len(self.home.deletions) else None

    def along(self, packet: Subscribe) -> tuple[bytes, ...]:
        """The limit of jobs that a queue link asks for, or who wants the filters."""
        headers = headers_of(packet.properties)
        wants: list[bytes] = []
        try:
            if self.consumers.is_open:
                for header in headers:
                    limit = parse_limit(header)
                    if limit != NO_LIMIT:
                        return (encode_limit(limit),)
            if len(headers) > WANTS_MAX:
                raise ProtocolViolation(
                    f"SUBSCRIBE has {len(headers)} user properties {NAME_TEXT}, at most {WANTS_MAX}"
                )
            for header in headers:
                want = parse_want(header)
                if self.domain not in (want.path[-1], NO_DOMAIN):
                    raise ProtocolViolation(
                        f"user property {NAME_TEXT} of SUBSCRIBE: the path ends with {want.path[-1].decode()}, "
                        f"must end with the domain of the link, {self.domain.decode()}"
                    )
                wants.append(canonical_want(header))
        except HeaderError as error:
            raise ProtocolViolation(f"user property {NAME_TEXT} of SUBSCRIBE: {error.text}") from None
        return tuple(sorted(wants))

    def subscribe(self, client_id: str, full: bytes, along: tuple[bytes, ...]) -> int:
        limit = NO_LIMIT if len(along) != 1 else parse_limit(along[0])
        if limit == NO_LIMIT:
            return NOT_HANDLED
        return self.consumers.consume(self.home.broker.sessions[client_id], full, limit)

    def subscribed(self, full: bytes) -> None:
        self.asked.add(full)

    def unsubscribes(self, packet: Unsubscribe, full_filters: list[bytes]) -> list[bytes]:
        """Those that the link has not asked for on this connection, where the header says so."""
        for header in headers_of(packet.properties):
            try:
                if parse_only_asked(header):
                    return [full for full in full_filters if full not in self.asked]
            except HeaderError as error:
                raise ProtocolViolation(f"user property {NAME_TEXT} of UNSUBSCRIBE: {error.text}") from None
        return []

    def unsubscribe(self, client_id: str, full: bytes) -> bool:
        self.asked.discard(full)
        return self.consumers.end(self.home.broker.sessions[client_id], full)


class RemoteEnd(LinkEnd):
    """`connect`: what its CONNECT says."""

    __slots__ = ("connect",)

    def __init__(self, consumers: GroupConsumers, connect: LinkConnect, is_node: bool = False) -> None:
        super().__init__(consumers, connect.domain, connect.max_hops, connect.relays, False, is_node)
        self.connect = connect
        self.message_ttl = connect.message_ttl
        self.takes_deletions = connect.takes_deletions


class NodeEnd(RemoteEnd):
    """It asks for jobs, and publishes nothing."""

    def takes(self, topic: bytes) -> bool:
        return False

    def along(self, packet: Subscribe) -> tuple[bytes, ...]:
        found = super().along(packet)
        if len(found) != 1 or parse_limit(found[0]) == NO_LIMIT:
            raise ProtocolViolation("SUBSCRIBE of another node of the cluster that asks for no jobs")
        return found


@mypyc_attr(allow_interpreted_subclasses=True)
class OwnEnd(LinkEnd):
    """dropped  messages of the upstream that were not published here, by reason"""

    __slots__ = ("_topics", "dropped")

    def __init__(
        self,
        consumers: GroupConsumers,
        domain: bytes,
        max_hops: int,
        dropped: dict[str, int],
        relays: bool = False,
        is_node: bool = False,
    ) -> None:
        super().__init__(consumers, domain, max_hops, relays, True, is_node)
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

    def count_refused(self, reason: str, count: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count
