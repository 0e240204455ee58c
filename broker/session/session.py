"""Session State [MQTT5 4.1]: subscriptions, queue, in-flight messages and will of one client, connected or not.

A session writes messages to its connection while the connection takes them. Otherwise messages wait in its queue.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.bridge_end import limits_of
from broker.codec.runs import Run
from broker.config.settings_mqtt import MqttSettings
from broker.context import Context
from broker.counters import (
    DROP_EXPIRED,
    DROP_INFLIGHT_EXPIRED,
    DROP_READ_NOT_AUTHORIZED,
    DROP_SESSION_ENDED,
)
from broker.message import NEVER, Message
from broker.publisher import Publisher
from broker.routing.group_copy import GroupCopy
from broker.routing.subscription import Subscription
from broker.session.outgoing import QUEUED, Outgoing, expiry_in_queue
from broker.session.output import Output
from broker.session.queue import why_not_queued
from broker.session.reading import discard_unreadable, drop_unreadable
from broker.session.sending import SendingSession
from broker.session.will import PendingWill

NO_IDENTIFIERS: Final[tuple[int, ...]] = ()
EXPIRY_NEVER: Final = 0xFFFFFFFF  # Session Expiry Interval without end [MQTT5 3.1.2.11.2]


class Session(SendingSession):
    """The session of one client identifier. Times are monotonic seconds.

    version, keep_alive, local_addr  of the last connection
    is_new            its client may not have the CONNACK that tells of it, and takes it for its former one without
    disconnected_at   when the last connection ended; of no meaning while there is a connection
    came_at           when it came from another node without its client; -NEVER where it did not
    queue_seconds_max  longest time that a message waits here, 0 or less for no limit
    will              of the last connection, while its delay runs
    held              publishers that are not read while the queue is past its half, until `hold_until`; None: the backlog
                      that the queue has holds nobody
    """

    def __init__(self, context: Context, client_id: str, now: float) -> None:
        super().__init__(context, client_id)
        self.version = 4
        self.keep_alive = 0
        self.local_addr = ""
        self.is_new = False
        self.created_at = now
        self.connected_at = now
        self.disconnected_at = 0.0
        self.came_at = -NEVER
        self.expiry_interval = 0
        self.take_limits(context.settings)
        self.subscriptions: dict[bytes, Subscription] = {}  # by topic filter, $share/NAME/ included
        self.subscriptions_total = 0
        self.will: PendingWill | None = None
        self.held: dict[Publisher, None] | None = None
        self.hold_until = 0.0
        self.packets_received = 0
        self.packets_received_bytes = 0
        self.packets_sent = 0
        self.packets_sent_bytes = 0

    def take_limits(self, settings: MqttSettings) -> None:
        """Take over the limits of an ordinary client's session, or of one with a BridgeEnd."""
        limits = limits_of(settings, self.bridge_end)
        self.queue_max = limits.queue_messages
        self.queue_bytes_max = limits.queue_bytes
        self.queue_seconds_max = limits.queue_seconds
        self.inflight_max = limits.inflight
        if self.group_limits is not None:
            self.queue_max, self.queue_bytes_max, self.queue_seconds_max = self.group_limits
        if self.connection is not None:
            self.inflight_max = min(self.inflight_max, self.connection.receive_maximum)

    # --- questions ---

    def is_waiting(self) -> bool:
        """Return whether there is something to send as soon as the connection and the in-flight window have room."""
        is_fed = self.fed is not None and not self.fed.is_idle()
        return self._is_queued() or self.backlog is not None or is_fed or self._is_resending()

    def restore(self, outgoing: Outgoing) -> None:
        """Add the next message of an earlier process, without a look at the bounds of the queue."""
        self.context.counters.copies += 1
        if outgoing.state == QUEUED:
            self._made_queue().append(outgoing)
        else:
            self._made_inflight().restore(outgoing)

    def go_on(self, outgoing: Outgoing, now: float) -> bool:
        """Take a message over that another session of the client has sent to it. False when it has to be delivered anew: the
        client knows it by its packet identifier, which is in use here."""
        connection = self.connection
        if not self._made_inflight().go_on(outgoing, connection is not None, self.inflight_max):
            return False
        self.context.counters.copies += 1
        if self.records is not None:
            self.records.restored(outgoing)
        if connection is not None and connection.can_write():
            self.pump(now)
        return True

    def is_available(self) -> bool:
        if self.queued_groups is not None:  # messages that cannot be sent now wait in the group's queue
            return self._open_connection() is not None and self.inflight_length() < self.inflight_max
        return self.connection is not None and self.queue_length() * 2 < self.queue_max

    def is_away(self) -> bool:
        return self.connection is None

    def load(self) -> int:
        return self.inflight_length() + self.queue_length()

    def traffic(self) -> tuple[int, int, int, int]:
        """(packets received, their bytes, packets sent, their bytes) of all connections of this session."""
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
        return self.away_from() + self.expiry_interval

    def away_from(self) -> float:
        """Return when the time begins that its client has to come back. `disconnected_at` may be of another node's clock, which
        may be wrong by more than the client has."""
        return max(self.disconnected_at, self.came_at)

    def handle_timeout(self, now: float) -> None:
        if self.held:
            self._release_publishers(self._is_drained())
        elif self.connection is None and not self.ended:
            self.context.session_expired(self.client_id, now)

    # --- outgoing ---

    def _open_connection(self) -> Output | None:
        """The connection, if it takes a message now and no message is queued in front of that."""
        connection = self.connection
        if connection is None or self._is_queued() or not connection.can_write():
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
        copy: GroupCopy | None = None,
    ) -> bool:
        """Send one message now, or queue it behind the messages that wait [MQTT-4.6.0-6]."""
        self.context.counters.copies += 1
        if copy is not None:
            copy = copy.taken(qos, self.records is not None)
        connection = self._open_connection()
        if connection is not None:
            if qos == 0:
                self._send_qos0(connection, message, retain, identifiers, now)
                return True
            inflight = self._made_inflight()
            if inflight.has_room(self.inflight_max):
                self._send(connection, inflight, Outgoing(message, qos, retain, identifiers, NEVER, copy), now)
                return True
        return self._enqueue(message, qos, retain, identifiers, publisher, now, copy)

    def deliver_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        connection = self._open_connection()
        if connection is not None and self._write_run(connection, run):
            return
        self.context.slices.steps += run.count  # the queue takes messages one by one
        for message in run.messages():
            self.deliver(message, 0, False, NO_IDENTIFIERS, publisher, now)

    def _enqueue(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        publisher: Publisher | None,
        now: float,
        copy: GroupCopy | None,
    ) -> bool:
        """Queue a message, and drop what the bounds demand. False when the queue of a group rejects it."""
        reason = DROP_SESSION_ENDED if self.ended else why_not_queued(self.context, qos, self.connection is None)
        if reason:
            if copy is not None:
                copy.end()
            self.drop(reason, qos)
            return True
        settings = self.context.settings
        expires_at = expiry_in_queue(message, self.queue_seconds_max, now)
        room = self.queue_max - self.inflight_length()
        queue = self._made_queue()
        inflight = self.inflight
        if queue.count >= room and inflight is not None and settings.inflight_expiry > 0:
            given_up = inflight.give_up_one(now - settings.inflight_expiry)
            if given_up is not None:
                self.drop(DROP_INFLIGHT_EXPIRED, given_up.qos)
                room += 1
        outgoing = Outgoing(message, qos, retain, identifiers, expires_at, copy)
        dropped = queue.put(outgoing, room, self.queue_bytes_max, now)
        if dropped is not None:
            for reason, dropped_qos in dropped:
                self.drop(reason, dropped_qos)
        if publisher is not None and self.connection is not None and queue.is_past_half(room, self.queue_bytes_max):
            self._hold_publisher(publisher, now)
        return True

    def pump(self, now: float) -> None:
        """Send what waits, as far as the connection and the in-flight window take it."""
        connection = self.connection
        queue = self.queue
        if connection is None or (not self._is_queued() and not self._is_resending()):
            self._pump_brought(now)
            return
        authorization = self.context.authorization
        if authorization is not None and self.judged_number != authorization.number and queue is not None:
            for qos in drop_unreadable(queue, authorization, self):
                self.drop(DROP_READ_NOT_AUTHORIZED, qos)
        inflight = self._made_inflight()
        while inflight.is_resending():
            if not connection.can_write():
                return
            again = inflight.next_resend(self.inflight_max)
            if again is None:
                break
            self._send_again(connection, inflight, again, now)
        while queue is not None and connection.can_write():
            outgoing = queue.first()
            if outgoing is None:
                break
            message = outgoing.message
            assert message is not None
            if outgoing.expires_at <= now:
                self.drop(DROP_EXPIRED, outgoing.qos)
            elif outgoing.qos == 0:
                self._send_qos0(connection, message, outgoing.retain, outgoing.identifiers, now)
            elif inflight.has_room(self.inflight_max):
                self._send(connection, inflight, outgoing, now)
            else:
                break
            message.was_sent()
            if outgoing.packet_id == 0:  # it was not sent, or has QoS 0
                if outgoing.record and self.records is not None:
                    self.records.remove(outgoing)
                outgoing.end_copy()
            queue.remove_first()
        self._pump_brought(now)
        if self.held is not None and self._is_drained():
            self._release_publishers(True)

    # --- acknowledgements of the client: False when no message has the packet identifier; ProtocolViolation for one that
    # awaits another kind ---

    def acknowledge(self, packet_id: int) -> bool:
        """Handle PUBACK."""
        return self._is_acknowledged(self.inflight is not None and self.inflight.acknowledge(packet_id))

    def received(self, packet_id: int, failed: bool) -> bool:
        """Handle PUBREC; `failed` with a reason code of 0x80 or more."""
        known = self.inflight is not None and self.inflight.received(packet_id, failed)
        return self._is_acknowledged(known) if failed else known

    def completed(self, packet_id: int) -> bool:
        """Handle PUBCOMP."""
        return self._is_acknowledged(self.inflight is not None and self.inflight.completed(packet_id))

    def _is_acknowledged(self, known: bool) -> bool:
        """Count the end of an exchange with the client, if there was one."""
        if known:
            self.context.counters.acknowledged += 1
            if self.queued_groups is not None:
                self.context.drain_groups(self.queued_groups)
        return known

    # --- publishers that are too fast for this session ---

    def _hold_publisher(self, publisher: Publisher, now: float) -> None:
        """Hold a publisher because the queue is past its half, for at most publisher_hold_max for each backlog. A receiver
        that takes nothing for longer loses messages, which are counted, and holds nobody."""
        if publisher is self.connection:
            return
        if self.held is None:
            if self.context.settings.publisher_hold_max <= 0:
                return
            self.held = {}
            self.hold_until = now + self.context.settings.publisher_hold_max
        elif now >= self.hold_until:
            return
        if publisher not in self.held:
            self.held[publisher] = None
            self.context.hold(publisher)
            self.context.timers.schedule(self)

    def _is_drained(self) -> bool:
        return self.queue is None or self.queue.is_drained(self.queue_max, self.queue_bytes_max)

    def _release_publishers(self, is_over: bool) -> None:
        """Release all held publishers. is_over: the backlog has gone; a later one may hold publishers again."""
        held = self.held
        if held is None:
            return
        self.held = None if is_over else {}
        for publisher in held:
            self.context.release(publisher)

    # --- connection comes and goes ---

    def attach(self, connection: Output, now: float) -> None:
        """The connection serves this session from now on."""
        assert self.connection is None
        self.connection = connection
        self.return_to_groups()
        self.note_attached(self.context.ownership is not None)
        self.connected_at = now
        self.version = connection.version
        self.keep_alive = connection.keep_alive
        self.local_addr = connection.local_addr
        self.take_limits(self.context.settings)

    def resume(self, now: float) -> None:
        """Send again what was not acknowledged, in order [MQTT-4.4.0-1], then the queue. Called after CONNACK."""
        inflight = self.inflight
        if inflight is not None:
            authorization = self.context.authorization
            if authorization is not None:
                for qos in discard_unreadable(inflight, authorization, self):
                    self.drop(DROP_READ_NOT_AUTHORIZED, qos)
            inflight.begin_resend()
        self.pump(now)

    def detach(self, now: float) -> None:
        """The connection is gone."""
        connection = self.connection
        if connection is None:
            return
        self.packets_received, self.packets_received_bytes, self.packets_sent, self.packets_sent_bytes = self.traffic()
        self.connection = None
        if self.fed is not None:
            self.fed.stop()
        if self.inflight is not None:
            self.inflight.end_resend()
        self.disconnected_at = now
        self._release_publishers(True)
        self.context.timers.schedule(self)

    def end(self) -> None:
        """Discard the session state. Messages that are queued or in flight are dropped and counted."""
        self.ended = True
        self.end_copies()
        for outgoing in self.queued():
            self.drop(DROP_SESSION_ENDED, outgoing.qos)
        if self.inflight is not None:
            for outgoing in self.inflight.messages():
                if outgoing.message is None:  # the client has it: only the end of the exchange is missing
                    self.context.counters.acknowledged += 1
                else:
                    self.drop(DROP_SESSION_ENDED, outgoing.qos)
        self.queue = None
        self.backlog = None
        if self.fed is not None:
            self.fed.stop()
            self.fed = None
        self.inflight = None
        self.incoming = None
        self._release_publishers(True)
