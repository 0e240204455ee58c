"""A client of a simulated node that does all that MQTT asks of one whose session outlives its connections."""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.broker import Broker
from broker.codec.packets import (
    MQTT_5,
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
)
from broker.codec.properties import RECEIVE_MAXIMUM, SESSION_EXPIRY_INTERVAL
from broker.codec.reader import PacketReader
from broker.message import NEVER
from broker.session.connection import Connection
from simulator.client import FAILURE_CODE, ClientEnd

SESSION_SECONDS: Final = 7200
UNACKNOWLEDGED_MAX: Final = 20  # messages of one publisher; below the server's Receive Maximum


class Sent:
    """One message of a publisher.

    serial           number among all messages of this publisher
    node             where it was published
    sent_at          of the first PUBLISH, NEVER before
    acknowledged_at  when its PUBACK or PUBREC left, NEVER before
    is_refused       the acknowledgement had an error: it is not sent again
    broker           store id of that to which it was sent last
    has_moved        it was sent to more than one
    first_broker     that to which it was sent first
    is_orphan        the publisher has no session there any more that knows it: it is not sent again
    """

    def __init__(self, publisher: str, serial: int, node: str, topic: bytes, qos: int, padding: int) -> None:
        self.publisher = publisher
        self.serial = serial
        self.node = node
        self.topic = topic
        self.qos = qos
        self.payload = b"%s %d" % (publisher.encode(), serial) + b"-" * padding
        self.sent_at = NEVER
        self.acknowledged_at = NEVER
        self.is_refused = False
        self.is_orphan = False
        self.broker = self.first_broker = ""
        self.has_moved = False


class DurableClient(ClientEnd):
    """The client resends what was not acknowledged, in order and with its packet identifiers, where it finds its session.

    is_late      it answers only when it is told to, by `answer`
    is_online    CONNACK came, and the connection is open
    granted_at   by topic filter: when its SUBACK came
    received     (payload, DUP) of each message that was taken; one of QoS 2 once for each packet identifier
    has_session  a CONNACK said that there is a session; the broker may not forget it
    may_begin_anew  the broker may let it in without its session, which follows; has_begun_anew: it did
    may_be_refused  a SUBSCRIBE, which it says again on its next connection
    has_two_homes  its session may go on at two nodes that do not reach each other, in no common order
    was_on_both_sides  of a partition, each of which may have had its session
    is_unheard   all that it sends behind CONNECT on this connection gets lost
    packet_ids_max  it takes packet identifiers up to this one, and then the first ones again
    faults       what the broker did and may not do
    """

    def __init__(
        self, client_id: str, version: int, filters: dict[str, int], receive_maximum: int, is_late: bool
    ) -> None:
        super().__init__(version)
        self.client_id = client_id
        self.filters = filters
        self.is_late = is_late
        self.is_online = False
        self.granted_at: dict[str, float] = {}
        self.received: list[tuple[bytes, bool]] = []
        self.has_session = False
        self.faults: list[str] = []
        self.may_begin_anew = False
        self.has_begun_anew = False
        self.may_be_refused = False
        self.has_two_homes = False
        self.was_on_both_sides = False
        self.is_unheard = False
        self.packet_ids_max = 65_535
        self._unheard: list[tuple[Connection, PacketReader]] = []  # connections that were lost before CONNACK
        self._is_open = False
        self._properties: Properties = {}
        if version == MQTT_5:
            self._properties[SESSION_EXPIRY_INTERVAL] = SESSION_SECONDS
            if receive_maximum:
                self._properties[RECEIVE_MAXIMUM] = receive_maximum
        self._next_packet_id = 0
        self._answers: deque[Packet] = deque()
        self._unreleased: set[int] = set()  # packet identifiers of QoS 2 messages that were taken
        self._waiting: deque[Sent] = deque()
        self._published: dict[int, Sent] = {}  # PUBLISH left, by packet identifier, in order
        self._released: dict[int, None] = {}  # PUBREL is due or left
        self._subscribing: dict[int, list[str]] = {}

    # --- what a schedule does

    @property
    def is_open(self) -> bool:
        return self._is_open

    def _is_another_session(self) -> bool:
        """Return whether a CONNACK that was lost said that the session is a new one. MQTT has no way to tell that later: a
        client that does not know takes packet identifiers of the new session for those of the old one."""
        is_new = False
        for connection, packets in self._unheard:
            for packet in packets.receive_data(connection.take_output()):
                if isinstance(packet, ConnAck) and packet.reason_code == 0 and not packet.session_present:
                    is_new = True
        self._unheard.clear()
        return is_new

    def connect(self, broker: Broker, now: float) -> None:
        assert not self._is_open
        self._is_open = True
        self._subscribing.clear()
        connect = Connect(
            client_id=self.client_id, protocol_version=self.version, clean_start=False, properties=self._properties
        )
        self.open(broker, connect, now)

    def disconnect(self, is_clean: bool, now: float) -> None:
        """With a DISCONNECT, or as when the network has gone."""
        if is_clean:
            self.send(Disconnect(), now)
        elif not self._connection.closed:
            self._broker.connection_lost(self._connection, now)
        self.lose()

    def lose(self) -> None:
        """The connection is gone, and what had not been answered on it."""
        if self._is_open and not self.is_online:
            self._unheard.append((self._connection, self._packets))
        self._is_open = self.is_online = False
        self._answers.clear()

    def forget_session(self) -> None:
        """The node may have lost the session: its store, or all that it had without one."""
        self.has_session = False
        self.granted_at.clear()

    def publish(self, sent: Sent, now: float) -> None:
        """QoS 0 is not sent without a connection."""
        if sent.qos:
            self._waiting.append(sent)
            self._publish_waiting(now)
        elif self.is_online:
            sent.sent_at = now
            self.send(Publish(sent.topic, sent.payload), now)

    def answer(self, count: int, now: float) -> None:
        """Send so many of the acknowledgements that are due."""
        while count and self._answers and self._is_open:
            count -= 1
            self.send(self._answers.popleft(), now)

    @property
    def is_done(self) -> bool:
        """Nothing is due in either direction, as far as the client knows."""
        return self.is_online and not (
            self._waiting or self._published or self._released or self._subscribing or self._answers
        )

    def send(self, packet: Packet, now: float) -> None:
        if not self.is_unheard or isinstance(packet, Connect):
            super().send(packet, now)

    # --- what the broker sends

    def take(self, now: float) -> bool:
        busy = self._is_open and super().take(now)
        if self._is_open and self._connection.closed:
            self.lose()
            busy = True
        return busy

    def handle_packet(self, packet: Packet, now: float) -> None:
        if isinstance(packet, ConnAck):
            if packet.reason_code == 0:
                self._begin(packet.session_present, now)
        elif isinstance(packet, Publish):
            self._receive(packet, now)
        elif isinstance(packet, PubRel):
            self._unreleased.discard(packet.packet_id)
            self._answer(PubComp(packet.packet_id), now)
        elif isinstance(packet, PubAck | PubRec):
            self._acknowledged(packet, now)
        elif isinstance(packet, PubComp):
            self._released.pop(packet.packet_id, None)
            self._publish_waiting(now)
        elif isinstance(packet, SubAck):
            for topic_filter, code in zip(self._subscribing.pop(packet.packet_id), packet.reason_codes, strict=True):
                if code == self.filters[topic_filter]:
                    self.granted_at.setdefault(topic_filter, now)
                elif self.may_be_refused and code >= FAILURE_CODE:
                    self.disconnect(False, now)
                else:
                    self.faults.append(f"SUBACK {code:#x} for {topic_filter}")

    def _begin(self, session_present: bool, now: float) -> None:
        self.is_online = True
        if self._is_another_session() and self.may_begin_anew:
            session_present = False
        if self.has_session and not session_present:
            if self.may_begin_anew:
                self.has_begun_anew = True
                self.granted_at.clear()
            else:
                self.faults.append(f"no session at {now:.3f} s")
        if not session_present:
            self._forget_exchanges()
        self.has_session = True
        new = [topic_filter for topic_filter in self.filters if topic_filter not in self.granted_at]
        if new:
            packet_id = self._packet_id()
            self._subscribing[packet_id] = new
            filters = [SubscribeFilter(topic_filter.encode(), self.filters[topic_filter]) for topic_filter in new]
            self.send(Subscribe(packet_id, filters, {}), now)
        for packet_id, sent in self._published.items():
            sent.has_moved = sent.has_moved or sent.broker != self._broker.identity.store_id
            sent.broker = self._broker.identity.store_id
            self.send(Publish(sent.topic, sent.payload, sent.qos, dup=True, packet_id=packet_id), now)
        for packet_id in list(self._released):
            self.send(PubRel(packet_id), now)
        self._publish_waiting(now)

    def _forget_exchanges(self) -> None:
        """Both sides begin anew [MQTT5 3.2.2.1.1]."""
        for sent in self._published.values():
            sent.is_orphan = True
        self._published.clear()
        self._released.clear()
        self._unreleased.clear()

    def _receive(self, packet: Publish, now: float) -> None:
        if packet.qos < 2 or packet.packet_id not in self._unreleased:
            self.received.append((packet.payload, packet.dup))
        if packet.qos == 2:
            self._unreleased.add(packet.packet_id)
            self._answer(PubRec(packet.packet_id), now)
        elif packet.qos == 1:
            self._answer(PubAck(packet.packet_id), now)

    def _acknowledged(self, packet: PubAck | PubRec, now: float) -> None:
        sent = self._published.pop(packet.packet_id, None)
        is_refused = packet.reason_code >= FAILURE_CODE
        if sent is not None:
            sent.is_refused = is_refused
            if not is_refused:
                sent.acknowledged_at = now
        if isinstance(packet, PubRec) and not is_refused:
            self._released[packet.packet_id] = None
            self._answer(PubRel(packet.packet_id), now)
        self._publish_waiting(now)

    def _publish_waiting(self, now: float) -> None:
        while self._waiting and self.is_online and len(self._published) + len(self._released) < UNACKNOWLEDGED_MAX:
            sent = self._waiting.popleft()
            sent.sent_at = now
            packet_id = self._packet_id()
            self._published[packet_id] = sent
            sent.broker = sent.first_broker = self._broker.identity.store_id
            self.send(Publish(sent.topic, sent.payload, sent.qos, packet_id=packet_id), now)

    def _answer(self, packet: Packet, now: float) -> None:
        self._answers.append(packet)
        if not self.is_late:
            self.answer(1, now)

    def _packet_id(self) -> int:
        while True:
            self._next_packet_id = self._next_packet_id % self.packet_ids_max + 1
            if self._next_packet_id not in self._published and self._next_packet_id not in self._released:
                return self._next_packet_id
