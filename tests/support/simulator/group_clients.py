"""Members of shared groups that come and go, and publishers, for schedules of groups."""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.broker import Broker
from broker.codec.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeFilter,
    Unsubscribe,
    Will,
)
from broker.codec.properties import RECEIVE_MAXIMUM, SESSION_EXPIRY_INTERVAL, SUBSCRIPTION_IDENTIFIER
from broker.message import NEVER
from simulator.client import ClientEnd

SESSION_SECONDS: Final = 7200


class Copy:
    """One message that a member got. is_ended: it has sent PUBACK, or PUBREC."""

    def __init__(self, payload: bytes, topic_filter: str, qos: int, at: float) -> None:
        self.payload = payload
        self.topic_filter = topic_filter
        self.qos = qos
        self.at = at
        self.is_ended = False


class Member(ClientEnd):
    """A client of MQTT 5 with subscriptions, each with an identifier, so that it is known for which one a message came.

    is_durable  its session outlives connections
    copies      what it got; a repetition with DUP of what it had acknowledged is none
    """

    def __init__(self, client_id: str, filters: dict[str, int], is_durable: bool, receive_maximum: int) -> None:
        super().__init__()
        self.client_id = client_id
        self.filters = filters
        self.is_durable = is_durable
        self.copies: list[Copy] = []
        self.is_open = False
        self.is_accepted = False  # CONNACK came
        self.will: Published | None = None  # of the connection
        self.granted: set[str] = set()
        self._names = dict(enumerate(filters, 1))
        self._properties: Properties = {RECEIVE_MAXIMUM: receive_maximum}
        if is_durable:
            self._properties[SESSION_EXPIRY_INTERVAL] = SESSION_SECONDS
        self._answers: deque[tuple[Packet, Copy | None]] = deque()
        self._open: dict[int, Copy] = {}  # by packet identifier, of QoS 2 until PUBREL
        self._packet_id = 0
        self._subscribing: dict[int, str] = {}

    def connect(self, broker: Broker, will: Will | None, now: float) -> None:
        self.is_open = True
        self.granted.clear()
        if not self.is_durable:
            self._open.clear()
        connect = Connect(
            client_id=self.client_id,
            protocol_version=5,
            clean_start=not self.is_durable,
            will=will,
            properties=self._properties,
        )
        self.open(broker, connect, now)
        for number, topic_filter in self._names.items():
            self._subscribe(number, topic_filter, now)

    def _subscribe(self, number: int, topic_filter: str, now: float) -> None:
        packet_id = self._next_id()
        self._subscribing[packet_id] = topic_filter
        filters = [SubscribeFilter(topic_filter.encode(), self.filters[topic_filter])]
        self.send(Subscribe(packet_id, filters, {SUBSCRIPTION_IDENTIFIER: number}), now)

    def unsubscribe(self, topic_filter: str, now: float) -> None:
        self.granted.discard(topic_filter)
        self.send(Unsubscribe(self._next_id(), [topic_filter.encode()], {}), now)

    def subscribe_again(self, now: float) -> None:
        for number, topic_filter in self._names.items():
            if topic_filter not in self.granted:
                self._subscribe(number, topic_filter, now)

    def disconnect(self, is_clean: bool, now: float) -> None:
        if is_clean:
            self.send(Disconnect(), now)
        else:
            self._broker.connection_lost(self._connection, now)
        self.lose()

    def lose(self) -> None:
        self.is_open = self.is_accepted = False
        self._answers.clear()
        self._subscribing.clear()

    def forget_session(self) -> None:
        """The node has lost it."""
        self._open.clear()

    def answer(self, count: int, now: float) -> None:
        while count and self._answers and self.is_open:
            count -= 1
            packet, copy = self._answers.popleft()
            if copy is not None:
                copy.is_ended = True
            self.send(packet, now)

    @property
    def is_done(self) -> bool:
        return self.is_open and len(self.granted) == len(self.filters) and not self._answers

    def take(self, now: float) -> bool:
        busy = self.is_open and super().take(now)
        if self.is_open and self._connection.closed:
            self.lose()
            return True
        return busy

    def handle_packet(self, packet: Packet, now: float) -> None:
        if isinstance(packet, Publish):
            self._receive(packet, now)
        elif isinstance(packet, PubRel):
            self._open.pop(packet.packet_id, None)
            self._answers.append((PubComp(packet.packet_id), None))
        elif isinstance(packet, ConnAck):
            self.is_accepted = packet.reason_code == 0
        elif isinstance(packet, SubAck):
            assert packet.reason_codes[0] < 0x80
            self.granted.add(self._subscribing.pop(packet.packet_id))

    def _receive(self, packet: Publish, now: float) -> None:
        copy = self._open.get(packet.packet_id) if packet.qos == 2 else None
        if copy is None:
            for number in packet.subscription_identifiers:
                copy = Copy(packet.payload, self._names[number], packet.qos, now)
                self.copies.append(copy)
        if packet.qos == 0:
            assert copy is not None
            copy.is_ended = True
        elif packet.qos == 1:
            self._answers.append((PubAck(packet.packet_id), copy))
        else:
            assert copy is not None
            self._open[packet.packet_id] = copy
            self._answers.append((PubRec(packet.packet_id), copy))

    def _next_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id


class Published:
    """One message. acknowledged_at: NEVER before its PUBACK or PUBREC; of a will when its connection ended."""

    def __init__(self, payload: bytes, topic: str, qos: int, node: str, at: float) -> None:
        self.payload = payload
        self.topic = topic
        self.qos = qos
        self.node = node
        self.at = at
        self.acknowledged_at = NEVER


class Source(ClientEnd):
    """A publisher, which begins a new session after each end and sends nothing again."""

    def __init__(self, client_id: str) -> None:
        super().__init__()
        self.client_id = client_id
        self.is_open = False
        self._published: dict[int, Published] = {}
        self._packet_id = 0

    def connect(self, broker: Broker, now: float) -> None:
        self.is_open = True
        self._published.clear()
        self.open(broker, Connect(client_id=self.client_id, protocol_version=5), now)

    def publish(self, message: Published, retain: bool, now: float) -> None:
        self._packet_id = self._packet_id % 65_535 + 1
        self._published[self._packet_id] = message
        packet = Publish(message.topic.encode(), message.payload, message.qos, retain, packet_id=self._packet_id)
        self.send(packet, now)

    def has_room(self) -> bool:
        return len(self._published) < 50

    def take(self, now: float) -> bool:
        busy = self.is_open and super().take(now)
        if self.is_open and self._connection.closed:
            self.is_open = False
            return True
        return busy

    def handle_packet(self, packet: Packet, now: float) -> None:
        if isinstance(packet, PubAck | PubRec):
            message = self._published.get(packet.packet_id)
            if message is not None and packet.reason_code < 0x80:
                message.acknowledged_at = now
            if isinstance(packet, PubAck) or packet.reason_code >= 0x80:
                self._published.pop(packet.packet_id, None)
            else:
                self.send(PubRel(packet.packet_id), now)
        elif isinstance(packet, PubComp):
            self._published.pop(packet.packet_id, None)
