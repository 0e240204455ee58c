"""The writing of a session to its connection: messages, those of before a reconnect, and what subscriptions brought."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.packets import PUBREL
from broker.codec.runs import Run
from broker.codec.writer import encode_ack
from broker.context import Context
from broker.counters import DROP_PACKET_TOO_LARGE
from broker.message import Message
from broker.session.backlog import BacklogWork, Portion, RetainedBacklog
from broker.session.fed import MESSAGE_STEPS, RUN_STEP, FedSubscriptions, FedWork
from broker.session.holding import HoldingSession
from broker.session.inflight import Inflight
from broker.session.outgoing import AWAIT_PUBCOMP, Outgoing, encode_to, encode_unaliased
from broker.session.output import Output

FED_WAITING_MAX: Final = 256  # packets of a connection that wait for the store; then its feeds do
FORM_BYTES_MAX: Final = 2  # a PUBLISH may grow by so many bytes in the form of the other protocol version


class SendingSession(HoldingSession):
    """connection  None while the client is away
    inflight_max  how many messages may be unacknowledged
    backlog       retained messages that subscriptions brought and the client has not taken yet, None for none
    fed           subscriptions that a plugin feeds, None for none
    """

    def __init__(self, context: Context, client_id: str) -> None:
        super().__init__(client_id)
        self.context = context
        self.connection: Output | None = None
        self.inflight_max = 0
        self.backlog: RetainedBacklog | None = None
        self.fed: FedSubscriptions | None = None
        self.messages_dropped = 0

    def add_retained(self, portion: Portion) -> None:
        """Add the retained messages of a subscription. `pump` sends them as fast as the client takes them."""
        backlog = self.backlog
        if backlog is None:
            backlog = self.backlog = RetainedBacklog()
        backlog.add(portion)

    def _pump_brought(self, now: float) -> None:
        """Send what subscriptions have brought."""
        if self.backlog is not None:
            self._pump_backlog(now)
        if self.fed is not None:
            self._pump_fed(now)

    def _pump_backlog(self, now: float) -> None:
        connection = self.connection
        backlog = self.backlog
        if connection is None or backlog is None or self._is_resending():
            return
        inflight = self._made_inflight()
        context = self.context
        slices = context.slices
        while not self._is_queued() and not backlog.is_resting() and connection.can_write():
            look_at_most = max(1, slices.steps_max - slices.steps)
            slices.steps += backlog.find(now, look_at_most, context.authorization, self)
            message = backlog.message
            portion = backlog.portion
            if message is None or portion is None:
                if backlog.is_resting():
                    slices.later(BacklogWork(backlog, self))
                else:
                    self.backlog = None
                return
            counters = self.context.counters
            if message.qos == 0 or portion.qos == 0:
                counters.copies += 1
                self._send_qos0(connection, message, True, portion.identifiers, now)
            elif inflight.has_room(self.inflight_max):
                counters.copies += 1
                qos = min(portion.qos, message.qos)
                # A copy: the message in the retained store has a record of its own.
                copied = message if self.records is None else message.copy()
                self._send(connection, inflight, Outgoing(copied, qos, True, portion.identifiers), now)
            else:
                return
            backlog.message = None
            message.encoded = None  # the retained store would keep the encodings with the message

    def made_fed(self) -> FedSubscriptions:
        fed = self.fed
        if fed is None:
            fed = self.fed = FedSubscriptions()
        return fed

    def _pump_fed(self, now: float) -> None:
        connection = self.connection
        fed = self.fed
        if connection is None or fed is None or fed.is_resting() or self.backlog is not None or self._is_resending():
            return
        inflight = self._made_inflight()
        slices = self.context.slices
        while not self._is_queued() and connection.can_write() and connection.acks_waiting < FED_WAITING_MAX:
            found = fed.find(connection.version, now, slices)
            message = None if found is None else found.message
            if found is None or message is None:
                if fed.is_resting():
                    slices.later(FedWork(fed, self))
                return
            subscription = found.subscription
            identifiers = (subscription.identifier,) if subscription.identifier else ()
            qos = min(subscription.qos, message.qos)
            if qos == 0 and connection.acks_waiting > 0:
                return  # those before it wait for the store
            if isinstance(message, Run):
                self._send_run(connection, message, identifiers, now)
            else:
                assert isinstance(message, Message)
                if qos and not inflight.has_room(self.inflight_max):
                    return
                self.context.counters.copies += 1
                if qos:
                    self._send(connection, inflight, Outgoing(message, qos, False, identifiers), now, True)
                else:
                    self._send_qos0(connection, message, False, identifiers, now)
            slices.steps += MESSAGE_STEPS + message.count // RUN_STEP
            fed.taken(found)
            if self.records is not None:  # the store has the position in one batch with the message
                self.records.journal.change(subscription.record, subscription)

    def _send_run(self, connection: Output, run: Run, identifiers: tuple[int, ...], now: float) -> None:
        """Send a run of a feed. All of it goes to the connection, which has room: nothing of a feed is in the queue."""
        if not identifiers and self._write_run(connection, run):
            return
        self.context.slices.steps += run.count
        for message in run.messages():
            self.context.counters.copies += 1
            self._send_qos0(connection, message, False, identifiers, now)

    def _write_run(self, connection: Output, run: Run) -> bool:
        """Write all packets of a run at once. False where the client gets them one by one: its aliases do not have the topic,
        or they may be too large for it."""
        if not connection.takes(run.packet_size + FORM_BYTES_MAX):
            return False
        aliases = connection.aliases
        alias = 0 if aliases is None else aliases.find(run.topic)
        if aliases is not None and not alias:
            return False
        connection.write_packets(run.aliased(alias) if alias else run.encoded(connection.version), run.count)
        counters = self.context.counters
        counters.copies += run.count
        counters.qos0_sent += run.count
        if self.context.deliveries is not None:
            self.context.deliveries.delivered_run(self.client_id, run)
        return True

    def _send_qos0(
        self, connection: Output, message: Message, retain: bool, identifiers: tuple[int, ...], now: float
    ) -> None:
        data = encode_to(connection, message, 0, retain, False, 0, identifiers, now)
        if not data:
            self.drop(DROP_PACKET_TOO_LARGE, 0)
            return
        connection.write_packets(data, 1)
        self.context.counters.qos0_sent += 1
        if self.context.deliveries is not None:
            self.context.deliveries.delivered(self.client_id, message, 0)

    def _send(
        self, connection: Output, inflight: Inflight, outgoing: Outgoing, now: float, is_fed: bool = False
    ) -> None:
        """Send with a new packet identifier. The caller has seen that the in-flight window has room."""
        message = outgoing.message
        assert message is not None
        packet_id = inflight.free_packet_id()
        qos = outgoing.qos
        # A QoS 2 message waits until the store has its packet identifier: a later process must not send it with another one.
        # A QoS 1 message does not overtake it.
        # So has a feed its position: else a later process would send again what the client has acknowledged.
        waits = self.records is not None and (qos == 2 or is_fed or connection.acks_waiting > 0)
        if waits:
            data = encode_unaliased(
                connection, message, qos, outgoing.retain, False, packet_id, outgoing.identifiers, now
            )
        else:
            data = encode_to(connection, message, qos, outgoing.retain, False, packet_id, outgoing.identifiers, now)
        if not data:
            self.drop(DROP_PACKET_TOO_LARGE, outgoing.qos)
            outgoing.end_copy()
            return
        inflight.add(outgoing, packet_id, now)
        if waits:
            self.context.write_after_commit(connection, data)
        else:
            connection.write_packets(data, 1)
        self.context.counters.count_sent(qos)
        if self.context.deliveries is not None:
            self.context.deliveries.delivered(self.client_id, message, qos)

    def _send_again(self, connection: Output, inflight: Inflight, outgoing: Outgoing, now: float) -> None:
        """Send PUBLISH with DUP, or PUBREL, with its first packet identifier after a reconnect [MQTT-4.4.0-1]."""
        message = outgoing.message
        if outgoing.state == AWAIT_PUBCOMP or message is None:
            connection.write_answer(encode_ack(PUBREL, outgoing.packet_id, 0, connection.version))
            return
        outgoing.sent_at = now
        data = encode_to(
            connection, message, outgoing.qos, outgoing.retain, True, outgoing.packet_id, outgoing.identifiers, now
        )
        if not data:
            self.drop(DROP_PACKET_TOO_LARGE, outgoing.qos)
            inflight.discard(outgoing.packet_id)
            return
        connection.write_packets(data, 1)

    def drop(self, reason: str, qos: int) -> None:
        """Count a message that the session loses."""
        if self.context.deliveries is not None:
            self.context.deliveries.dropped(self.client_id, qos, reason)
        self.messages_dropped += 1
        self.context.counters.drop_for_client(reason, 1, qos, self.client_id)
