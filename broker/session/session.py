"""Session State [MQTT5 4.1]: what a client has even while it is away: subscriptions, queue, in-flight messages, will.

A session hands bytes to its connection, if there is one that can take them; otherwise it queues, within bounds.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.codec.runs import Run
from broker.codec.writer import encode_pubrel
from broker.context import Context
from broker.counters import (
    DROP_EXPIRED,
    DROP_PACKET_TOO_LARGE,
    DROP_QOS0_OFFLINE,
    DROP_QUEUE_BYTES,
    DROP_QUEUE_FULL,
    DROP_SESSION_ENDED,
)
from broker.message import NEVER, Message, message_bytes
from broker.publisher import Publisher
from broker.routing.subscriber import Subscriber
from broker.routing.subscription import Subscription
from broker.session.backlog import Portion, RetainedBacklog
from broker.session.inflight import Inflight
from broker.session.outgoing import AWAIT_PUBCOMP, Outgoing, encode_for
from broker.session.output import Output
from broker.session.will import PendingWill
from broker.slices import SLICE_STEPS, Work

NO_IDENTIFIERS: Final[tuple[int, ...]] = ()
FORM_BYTES_MAX: Final = 2  # that a PUBLISH may be longer in the form of the other protocol version
EXPIRY_NEVER: Final = 0xFFFFFFFF  # Session Expiry Interval that does not end [MQTT5 3.1.2.11.2]
EXPIRED_LOOK_MAX: Final = 32  # entries at the old end of a full queue that are looked at for one that has expired


class Session(Subscriber):
    """One client id's session. Times are monotonic seconds; disconnected_at 0.0 means connected or never."""

    def __init__(self, context: Context, client_id: str, now: float) -> None:
        super().__init__(client_id)
        self.context = context
        self.connection: Output | None = None
        # Of the last connection, kept for those who look at an offline session.
        self.username = ""
        self.version = 4
        self.keep_alive = 0
        self.remote_addr = ""
        self.local_addr = ""
        self.created_at = now
        self.connected_at = now
        self.disconnected_at = 0.0
        self.expiry_interval = 0
        self.inflight_max = context.settings.max_inflight
        self.queue_max = context.settings.max_queued_messages
        # Containers that an idle client never needs are made when first used (an idle connection stays under 6 kB).
        self.subscriptions: dict[bytes, Subscription] = {}
        self.subscriptions_total = 0
        self.inflight: Inflight | None = None
        self.queue: deque[Outgoing] | None = None
        self.queue_bytes = 0
        self.backlog: RetainedBacklog | None = None
        self.queue_qos0 = 0  # how many of the queue are QoS 0
        self.incoming: dict[int, bool] | None = None  # QoS 2 packet identifiers received, not yet released
        self.will: PendingWill | None = None
        # Publishers that are not read because this session's queue is past its half.
        self.held: list[Publisher] | None = None
        self.hold_until = 0.0
        self.messages_dropped = 0
        self.packets_received = 0
        self.packets_received_bytes = 0
        self.packets_sent = 0
        self.packets_sent_bytes = 0

    # --- what others ask ---

    def queue_length(self) -> int:
        return len(self.queue) if self.queue is not None else 0

    def inflight_length(self) -> int:
        return len(self.inflight) if self.inflight is not None else 0

    def is_waiting(self) -> bool:
        """Whether anything is to be sent when the connection or the in-flight window has room."""
        return bool(self.queue) or self.backlog is not None or self._is_resending()

    def _is_resending(self) -> bool:
        return self.inflight is not None and self.inflight.is_resending()

    def _made_inflight(self) -> Inflight:
        """Made when first used."""
        inflight = self.inflight
        if inflight is None:
            inflight = self.inflight = Inflight()
        return inflight

    def is_available(self) -> bool:
        return self.connection is not None and (self.queue is None or len(self.queue) * 2 < self.queue_max)

    def traffic(self) -> tuple[int, int, int, int]:
        """packets received, their bytes, packets sent, their bytes: of all connections of this session."""
        connection = self.connection
        if connection is None:
            return self.packets_received, self.packets_received_bytes, self.packets_sent, self.packets_sent_bytes
        return (
            self.packets_received + connection.packets_received,
            self.packets_received_bytes + connection.received_bytes,
            self.packets_sent + connection.packets_sent,
            self.packets_sent_bytes + connection.sent_bytes,
        )

    # --- time: expiry and holds ---

    def deadline(self) -> float:
        if self.held:
            return self.hold_until
        if self.connection is not None or self.ended or self.expiry_interval == EXPIRY_NEVER:
            return NEVER
        return self.disconnected_at + self.expiry_interval

    def handle_timeout(self, now: float) -> None:
        if self.held:
            self.release_publishers()
        elif self.connection is None and not self.ended:
            self.context.session_expired(self.client_id, now)

    # --- outgoing ---

    def _open_connection(self) -> Output | None:
        """The connection, when a message may be written to it now: nothing is queued in front of it."""
        connection = self.connection
        if connection is None or self.queue or not connection.can_write():
            return None
        return connection

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        publisher: Publisher | None,
        now: float,
    ) -> None:
        """Send one message now, or queue it. Order is kept: nothing overtakes what is queued."""
        connection = self._open_connection()
        if connection is not None:
            if qos == 0:
                self._send_qos0(connection, message, retain, identifiers, now)
                return
            inflight = self._made_inflight()
            if inflight.has_room(self.inflight_max):
                self._send(connection, inflight, Outgoing(message, qos, retain, identifiers), now)
                return
        self._enqueue(message, qos, retain, identifiers, publisher, now)

    def deliver_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        connection = self._open_connection()
        if connection is not None and connection.takes(run.packet_size + FORM_BYTES_MAX):
            connection.write_packets(run.encoded(connection.version), run.count)
            self.context.counters.qos0_sent += run.count
            return
        for message in run.messages():
            self.deliver(message, 0, False, NO_IDENTIFIERS, publisher, now)

    def add_retained(self, portion: Portion) -> None:
        """Retained messages of a subscription, for a client that is there. `pump` sends them as the client takes them."""
        backlog = self.backlog
        if backlog is None:
            backlog = self.backlog = RetainedBacklog()
        backlog.add(portion)

    def _pump_backlog(self, now: float) -> None:
        connection = self.connection
        backlog = self.backlog
        if connection is None or backlog is None or self._is_resending():
            return
        inflight = self._made_inflight()
        slices = self.context.slices
        while not self.queue and not backlog.is_resting() and connection.can_write():
            slices.steps += backlog.find(self.context.retained, now, max(1, SLICE_STEPS - slices.steps))
            message = backlog.message
            portion = backlog.portion
            if message is None or portion is None:
                if backlog.is_resting():
                    slices.later(BacklogWork(self))
                else:
                    self.backlog = None
                return
            if message.qos == 0 or portion.qos == 0:
                self._send_qos0(connection, message, True, portion.identifiers, now)
            elif inflight.has_room(self.inflight_max):
                qos = min(portion.qos, message.qos)
                self._send(connection, inflight, Outgoing(message, qos, True, portion.identifiers), now)
            else:
                return
            backlog.message = None
            message.encoded = None  # a kept message does not keep its encodings

    def _send_qos0(
        self, connection: Output, message: Message, retain: bool, identifiers: tuple[int, ...], now: float
    ) -> None:
        data = encode_for(message, connection.version, 0, retain, False, 0, identifiers, now)
        if not connection.takes(len(data)):
            self._drop(DROP_PACKET_TOO_LARGE)
            return
        connection.write_packets(data, 1)
        self.context.counters.qos0_sent += 1

    def _send(self, connection: Output, inflight: Inflight, outgoing: Outgoing, now: float) -> None:
        """Give a packet identifier and send; the caller has seen that there is room."""
        message = outgoing.message
        assert message is not None
        packet_id = inflight.free_packet_id()
        data = encode_for(
            message, connection.version, outgoing.qos, outgoing.retain, False, packet_id, outgoing.identifiers, now
        )
        if not connection.takes(len(data)):
            self._drop(DROP_PACKET_TOO_LARGE)
            return
        inflight.add(outgoing, packet_id)
        connection.write_packets(data, 1)
        self.context.counters.count_sent(outgoing.qos)

    def _enqueue(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        publisher: Publisher | None,
        now: float,
    ) -> None:
        if self.ended:
            self._drop(DROP_SESSION_ENDED)
            return
        if self.connection is None and qos == 0 and not self.context.settings.queue_qos0_messages:
            self._drop(DROP_QOS0_OFFLINE)
            return
        queue = self.queue
        if queue is None:
            queue = self.queue = deque()
        size = message_bytes(message)
        if size > self.context.settings.max_queued_bytes:
            self._drop(DROP_QUEUE_BYTES)
            return
        room = self.queue_max - self.inflight_length()
        while len(queue) >= room:
            if not self._make_room(now):
                self._drop(DROP_QUEUE_FULL)
                return
        while queue and self.queue_bytes + size > self.context.settings.max_queued_bytes:
            self._forget(queue.popleft())
            self._drop(DROP_QUEUE_BYTES)
        expires_at = message.expires_at
        if self.context.settings.message_expiry > 0:
            expires_at = min(expires_at, now + self.context.settings.message_expiry)
        queue.append(Outgoing(message, qos, retain, identifiers, expires_at))
        self.queue_bytes += size
        if qos == 0:
            self.queue_qos0 += 1
        if (
            publisher is not None
            and self.connection is not None
            and (len(queue) * 2 >= room or self.queue_bytes * 2 >= self.context.settings.max_queued_bytes)
        ):
            self._hold_publisher(publisher, now)

    def _make_room(self, now: float) -> bool:
        """A full queue gives way at its old end: what has expired, then QoS 0, then the oldest. False: no queue at all."""
        queue = self.queue
        if not queue:
            return False
        victim = 0
        for index in range(min(len(queue), EXPIRED_LOOK_MAX)):
            if queue[index].expires_at <= now:
                victim = index
                break
        else:
            if self.queue_qos0:
                for index, outgoing in enumerate(queue):
                    if outgoing.qos == 0:
                        victim = index
                        break
        outgoing = queue[victim]
        del queue[victim]
        self._forget(outgoing)
        self._drop(DROP_EXPIRED if outgoing.expires_at <= now else DROP_QUEUE_FULL)
        return True

    def _forget(self, outgoing: Outgoing) -> None:
        message = outgoing.message
        assert message is not None
        self.queue_bytes -= message_bytes(message)
        if outgoing.qos == 0:
            self.queue_qos0 -= 1

    def _drop(self, reason: str) -> None:
        self.messages_dropped += 1
        self.context.counters.drop_for_client(reason, 1, self.client_id)

    def pump(self, now: float) -> None:
        """Send from the queue what the connection and the in-flight window take. Call it after acks and after a drain."""
        connection = self.connection
        queue = self.queue
        if connection is None or (not queue and not self._is_resending()):
            if self.backlog is not None:
                self._pump_backlog(now)
            return
        inflight = self._made_inflight()
        while inflight.is_resending():
            if not connection.can_write():
                return
            again = inflight.next_resend(self.inflight_max)
            if again is None:
                break
            self._send_again(connection, inflight, again, now)
        while queue and connection.can_write():
            outgoing = queue[0]
            message = outgoing.message
            assert message is not None
            if outgoing.expires_at <= now:
                self._drop(DROP_EXPIRED)
            elif outgoing.qos == 0:
                self._send_qos0(connection, message, outgoing.retain, outgoing.identifiers, now)
            elif inflight.has_room(self.inflight_max):
                self._send(connection, inflight, outgoing, now)
            else:
                break
            queue.popleft()
            self._forget(outgoing)
        if self.backlog is not None:
            self._pump_backlog(now)
        if self.held is not None and self._is_drained():
            self.release_publishers()

    def _send_again(self, connection: Output, inflight: Inflight, outgoing: Outgoing, now: float) -> None:
        """After a reconnect: PUBLISH with DUP, or PUBREL, with the packet identifier it had [MQTT-4.4.0-1]."""
        message = outgoing.message
        if outgoing.state == AWAIT_PUBCOMP or message is None:
            connection.write_packets(encode_pubrel(outgoing.packet_id, 0, connection.version), 1)
            return
        data = encode_for(
            message,
            connection.version,
            outgoing.qos,
            outgoing.retain,
            True,
            outgoing.packet_id,
            outgoing.identifiers,
            now,
        )
        if not connection.takes(len(data)):
            self._drop(DROP_PACKET_TOO_LARGE)
            inflight.discard(outgoing.packet_id)
            return
        connection.write_packets(data, 1)

    # --- acknowledgements of the client ---

    def acknowledge(self, packet_id: int) -> bool:
        """PUBACK. This and the next two: False when nothing with the packet identifier waits for it."""
        return self.inflight is not None and self.inflight.acknowledge(packet_id)

    def received(self, packet_id: int, failed: bool) -> bool:
        """PUBREC."""
        return self.inflight is not None and self.inflight.received(packet_id, failed)

    def completed(self, packet_id: int) -> bool:
        """PUBCOMP."""
        return self.inflight is not None and self.inflight.completed(packet_id)

    # --- publishers that are too fast for this session ---

    def _hold_publisher(self, publisher: Publisher, now: float) -> None:
        """Past the half of the queue the publisher is not read for a while, at most publisher_hold_max once per backlog:
        a receiver that stays stuck then loses messages (counted), but stops nobody."""
        if publisher is self.connection:
            return
        if self.held is None:
            if self.context.settings.publisher_hold_max <= 0:
                return
            self.held = []
            self.hold_until = now + self.context.settings.publisher_hold_max
            self.context.timers.schedule(self)
        elif now >= self.hold_until:
            return
        if publisher not in self.held:
            self.held.append(publisher)
            self.context.hold(publisher)
            self.context.timers.schedule(self)

    def _is_drained(self) -> bool:
        """No more than a quarter of either bound waits."""
        queue = self.queue
        return not queue or (
            len(queue) * 4 <= self.queue_max and self.queue_bytes * 4 <= self.context.settings.max_queued_bytes
        )

    def release_publishers(self) -> None:
        held = self.held
        if held is None:
            return
        if self._is_drained():
            self.held = None  # drained: a later backlog may hold again
        else:
            self.held = []
        for publisher in held:
            self.context.release(publisher)

    # --- connection comes and goes ---

    def attach(self, connection: Output, now: float) -> None:
        """A connection serves this session from now on."""
        assert self.connection is None
        self.connection = connection
        self.connected_at = now
        self.disconnected_at = 0.0
        self.version = connection.version
        self.keep_alive = connection.keep_alive
        self.remote_addr = connection.remote_addr
        self.local_addr = connection.local_addr
        self.inflight_max = min(self.context.settings.max_inflight, connection.receive_maximum)

    def resume(self, now: float) -> None:
        """After CONNACK: everything that was not acknowledged again, in order [MQTT-4.4.0-1], then the queue."""
        if self.inflight is not None:
            self.inflight.begin_resend()
        self.pump(now)

    def detach(self, now: float) -> None:
        """The connection is gone."""
        connection = self.connection
        if connection is None:
            return
        self.packets_received, self.packets_received_bytes, self.packets_sent, self.packets_sent_bytes = self.traffic()
        self.connection = None
        if self.inflight is not None:
            self.inflight.end_resend()
        self.disconnected_at = now
        if self.held is not None:
            self.queue_held_end()
        self.context.timers.schedule(self)

    def queue_held_end(self) -> None:
        held = self.held
        self.held = None
        if held is not None:
            for publisher in held:
                self.context.release(publisher)

    def end(self) -> None:
        """The session state is given up; what was queued is dropped and counted."""
        self.ended = True
        if self.queue:
            self.context.counters.drop_for_client(DROP_SESSION_ENDED, len(self.queue), self.client_id)
            self.messages_dropped += len(self.queue)
        self.queue = None
        self.backlog = None
        self.queue_bytes = 0
        self.queue_qos0 = 0
        self.inflight = None
        self.incoming = None
        self.queue_held_end()


class BacklogWork(Work):
    """Go on with the retained messages of a session in a later turn."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def go_on(self, now: float) -> bool:
        session = self._session
        if session.backlog is not None:
            session.backlog.resting = False
            session.pump(now)
        return True
