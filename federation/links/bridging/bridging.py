"""Links as the broker's side sees them: clients that are links of other domains, their interest, and which messages they get.

A client is a link when its CONNECT has the header and its account has the role `link`; without connect deciders no role is
needed.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.bridge_end import Arrival, BridgeEnd
from broker.bridging import Bridge, Bridging
from broker.broker import Broker
from broker.codec import properties as props
from broker.codec.packets import Connect, Properties
from broker.codec.reason_codes import IMPLEMENTATION_SPECIFIC_ERROR, NOT_AUTHORIZED
from broker.errors import MqttError, ProtocolViolation
from broker.hooks import NO_GROUPS, Peer, RemoteRoute
from broker.listener_facts import ListenerFacts
from broker.message import Message, Publication
from broker.origin import NO_DOMAIN, HeaderError
from broker.publisher import Publisher
from broker.routing.subscription import FilterEntry, Subscription
from federation.links.bridging.ends import (
    DROP_DUPLICATE,
    DROP_REASONS,
    RemoteEnd,
)
from federation.links.bridging.group_consumers import GroupConsumers
from federation.links.bridging.headers import (
    FENCED,
    JOBS_TAG,
    NAME_TEXT,
    LinkWelcome,
    encode_welcome,
    headers_of,
    parse_connect,
)
from federation.links.bridging.own_domain import NEW, SEEN, OwnDomain
from federation.links.bridging.routes import LinkBridge, Notes, needs_numbers
from federation.trust import name_fault

NO_ROLE: Final = "role"  # why a client is no link, in CONNACK
AHEAD_MAX: Final = 60_000  # milliseconds that the clock of another node may be ahead


class LinkBridging(Bridging):
    """home     this domain
    consumers  jobs of shared groups for other nodes and domains
    notes    what interest says along
    refused  clients that asked to be a link, and are none: their account does not have the role
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.broker = broker
        self.home = OwnDomain(broker)
        self.consumers = GroupConsumers(self.home)
        self.notes = Notes()
        self.refused = 0
        for reason in DROP_REASONS:
            broker.counters.drops.setdefault(reason, [0, 0, 0])

    # --- clients

    def connect(self, packet: Connect, listener: ListenerFacts) -> BridgeEnd | None:
        is_node, names = listener.is_node, listener.node_names
        if names is not None:
            before, tag, name = packet.client_id.partition(f"{JOBS_TAG}-")
            if before or not tag or name_fault(names, name):
                raise MqttError(
                    NOT_AUTHORIZED, f"the certificate is for {', '.join(names)}; a node connects under its own name"
                )
        headers = headers_of(packet.properties)
        if not headers:
            if is_node:
                raise MqttError(NOT_AUTHORIZED, "this address is for the other nodes of the cluster")
            return None
        if len(headers) > 1:
            raise ProtocolViolation(f"CONNECT has {len(headers)} user properties {NAME_TEXT}, may have one")
        try:
            end = RemoteEnd(self.consumers, parse_connect(headers[0]), is_node)
        except HeaderError as error:
            raise ProtocolViolation(f"user property {NAME_TEXT} of CONNECT: {error.text}") from None
        if is_node and end.domain != self.home.name:
            raise MqttError(
                IMPLEMENTATION_SPECIFIC_ERROR,
                f"a node of this cluster has the domain {end.name}, this one {self.home.name.decode()}: "
                "`plugins.links.domain` is the same on all nodes of a cluster",
            )
        if not is_node and end.domain != NO_DOMAIN and end.domain == self.home.name:
            raise MqttError(
                IMPLEMENTATION_SPECIFIC_ERROR,
                f"the link comes from a domain of the name {end.name}, which is the name of this one: "
                "give one of the two another `plugins.links.domain`",
            )
        return end

    def accepted(self, client_id: str, end: BridgeEnd, has_role: bool, answer: Properties) -> bool:
        settings = self.broker.settings
        remote = cast(RemoteEnd, end)
        if has_role:
            self._check_epoch(client_id, remote)
            welcome = LinkWelcome(
                self.home.name,
                remote.connect.version,
                "",
                settings.link_max_queued_messages,
                settings.link_max_queued_bytes,
                self.consumers.is_open,
            )
        else:
            self.refused += 1
            welcome = LinkWelcome(NO_DOMAIN, remote.connect.version, NO_ROLE, -1, -1)
        answer[props.USER_PROPERTY] = [(NAME_TEXT, encode_welcome(welcome).decode())]
        return has_role

    def _check_epoch(self, client_id: str, end: RemoteEnd) -> None:
        """Two nodes of a domain may both believe to run one link. While the one with the higher epoch is connected, the other
        one does not take its session over. Raises MqttError."""
        session = self.broker.sessions.get(client_id)
        if session is None or session.connection is None:
            return
        present = session.connection.bridge_end
        if (
            isinstance(present, RemoteEnd)
            and present.domain == end.domain
            and 0 < end.connect.epoch < present.connect.epoch
        ):
            raise MqttError(
                IMPLEMENTATION_SPECIFIC_ERROR,
                f"{FENCED}: another node of {end.name} holds the session with epoch {present.connect.epoch}",
            )

    def restored(self, value: bytes) -> BridgeEnd:
        return RemoteEnd(self.consumers, parse_connect(value))

    # --- interest

    def interest_changed(self, entry: FilterEntry | None, subscription: Subscription) -> bool:
        return self.notes.change(entry, subscription)

    def note(self, topic_filter: bytes) -> bytes:
        return self.notes.of(topic_filter)

    # --- messages

    def route(self, topic: bytes, subscriptions: list[Subscription], remote: RemoteRoute | None) -> Bridge | None:
        peers: dict[Peer, None] = {}
        is_numbered = False
        if remote is not None:
            for peer, note in remote.notes:
                peers[peer] = None
                is_numbered = is_numbered or needs_numbers(note)
        if not subscriptions and not peers:
            return None
        return LinkBridge(self.home, subscriptions, list(peers), is_numbered)

    def publish(self, bridge: Bridge | None, sent: Publication, now: float) -> None:
        if bridge is not None:
            cast(LinkBridge, bridge).number(sent)
        if isinstance(sent, Message) and sent.retain:
            sent.retain = self._stays_retained(bridge, sent, now)

    def _stays_retained(self, bridge: Bridge | None, message: Message, now: float) -> bool:
        """Note when a retained message was published, where domains are linked. What a client publishes here is newer than
        what is here, whatever the clocks say. False for a message of another node that has waited while a newer one came, or
        the topic's was deleted. A time that is far from coming is now."""
        if self.home.name == NO_DOMAIN and bridge is None:
            return True
        broker = self.broker
        held = broker.retained.get(message.topic)
        payload = b""
        if held is None or held.expires_at <= now:
            newest = self.home.deletions.time_of(message.topic)
        else:
            payload = held.payload
            newest = 0 if held.origin is None else held.origin.published_at_ms
        origin = message.origin or self.home.no_origin
        at = origin.published_at_ms
        milliseconds = int((now + broker.wall_offset) * 1000)
        if at == 0:
            at = max(milliseconds, broker.retained.versions.time_ms(now), newest + 1)
            message.origin = origin.timed(at)
        elif at > milliseconds + AHEAD_MAX:
            at = milliseconds
            message.origin = origin.timed(at)
        elif at < newest or (
            at == newest and message.payload < payload
        ):  # of one millisecond all domains keep the same one
            return False
        if not message.payload and message.origin is not None:
            self.home.deletions.note(message.topic, message.origin)
        return True

    def published(
        self,
        end: BridgeEnd,
        bridge: Bridge | None,
        sent: Publication,
        arrival: Arrival,
        publisher: Publisher | None,
        now: float,
    ) -> None:
        if arrival.passed and isinstance(sent, Message):
            self._deliver_shorter(bridge, sent, arrival.passed, publisher, now)
            if bridge is not None:
                for peer in bridge.peers:
                    self.broker.router.forward(peer, sent, NO_GROUPS, publisher, now)
        origin = sent.origin
        if origin is not None and origin is not end.origin:
            self.home.duplicates.note(origin, arrival.passed, True)

    def _deliver_shorter(
        self, bridge: Bridge | None, message: Message, passed: int, publisher: Publisher | None, now: float
    ) -> None:
        """Deliver a copy that has passed fewer links than `passed` to links. Where the message is held as retained, links that
        subscribe later get this copy."""
        retained = self.broker.retained
        held = retained.get(message.topic) if message.retain else None
        origin = message.origin
        if held is not None and held.origin is not None and held.origin.node and origin is not None:
            other = held.origin
            if (origin.node, origin.sequence, origin.path[:1]) == (other.node, other.sequence, other.path[:1]):
                retained.put(message.copy())
        if bridge is not None:
            cast(LinkBridge, bridge).deliver_copy(message, passed, publisher, now)

    def receive(self, bridge: Bridge | None, message: Message, publisher: Publisher | None, now: float) -> bool:
        origin = message.origin
        if origin is not None and origin.may_come_again():
            passed = self.home.duplicates.judge(origin, False)
            if passed == SEEN:
                self.broker.counters.drop_of_topic(DROP_DUPLICATE, 1, message.qos, message.topic)
                return False
            self.home.duplicates.note(origin, passed, False)
            if passed != NEW:
                self._deliver_shorter(bridge, message, passed, publisher, now)
                return False
        message.retain = message.retain and self._stays_retained(bridge, message, now)
        return True


def bridging_of(broker: Broker) -> LinkBridging:
    """That of a broker, which is made where it has none."""
    if broker.bridging is None:
        broker.bridging = LinkBridging(broker)
    return cast(LinkBridging, broker.bridging)
