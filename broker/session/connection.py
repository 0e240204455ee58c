"""One network connection without the network: chunks of bytes come in, packets go out.

One loop reads a chunk by an index, and copies only the parts that are kept. The rules of PUBLISH are in `publishing`, of
acknowledgements in `acks`, of all other packets in `control`.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.broker import MEMORY_IS_FULL, Broker
from broker.codec.connect_reader import peek_protocol_version
from broker.codec.packets import CONNECT, PUBACK, PUBCOMP, PUBLISH
from broker.codec.reader import decode_ack, decode_packet, decode_publish
from broker.codec.reason_codes import (
    KEEP_ALIVE_TIMEOUT,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    SERVER_UNAVAILABLE,
)
from broker.codec.runs import PUBLISH_QOS0, bare_message, bare_payload_at, bare_run
from broker.codec.wire import decode_length
from broker.context import STOOD_STILL
from broker.errors import MalformedPacket, MqttError, ProtocolViolation
from broker.memory_limit import MEMORY_FULL
from broker.message import NEVER, Message
from broker.origin import NAME
from broker.ownership import CLAIM_SECONDS_MAX
from broker.session.acks import handle_ack
from broker.session.aliases import resolve_alias
from broker.session.authentication import check_first_type, handle_before_connack
from broker.session.control import handle_connect, handle_control_packet
from broker.session.limits import check_packet_size
from broker.session.output import CONNECTED, CONNECTING, Output
from broker.session.pending_input import PendingInput
from broker.session.publishing import publish
from broker.session.session import Session

KEEP_ALIVE_GRACE: Final = 1.5  # times the Keep Alive [MQTT-3.1.2-22]
SMALL_PACKET_BYTES: Final = 65_536  # that are taken while the memory is full, so that clients can acknowledge
PACKET_RATE_MIN: Final = 16_384  # bytes a second; a large packet has so much more time than connect_timeout
TLS_HANDSHAKE: Final = 0x16  # content type of a TLS record; no packet has this first byte


class Connection(Output):
    """session           None before CONNECT is accepted and after the close
    last_received_at  monotonic seconds, for the Keep Alive
    topic_aliases     of the client's PUBLISH packets, None for none
    """

    def __init__(self, broker: Broker, owner: object, remote_addr: str, local_addr: str, now: float) -> None:
        super().__init__(broker, owner, remote_addr, local_addr, now)
        self.broker = broker
        self.session: Session | None = None
        self.last_received_at = now
        self.topic_aliases: dict[int, bytes] | None = None
        self._properties = b""  # User Properties of the last bare PUBLISH that had some
        self._pending: PendingInput | None = None
        broker.counters.connections_opened += 1
        broker.timers.schedule(self)

    # --- output ---

    def take_output(self) -> bytes:
        """The packets since the last call, joined.

        While messages wait for this client the connection asks to be called again in the same turn: a transport that takes
        all bytes at once does not report that it has room.
        """
        out = self.out
        session = self.session
        if not out and session is not None and session.is_waiting():
            self.dirty = True  # what pump writes is taken here, and need not be announced
            try:
                session.pump(self.broker.now)
            finally:
                self.dirty = False  # after a fault, too: the close that follows it must be announced
        else:
            self.dirty = False
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self.sent_bytes += self.out_size
        self.broker.counters.bytes_sent += self.out_size
        if not self.writable:
            self.stalled_bytes += self.out_size
        self.out_size = 0
        if session is not None and session.is_waiting():
            self.call_again()
        return data

    def close(self, text: str) -> None:
        super().close(text)
        self.session = None
        self.answer = None
        self.reauthentication = None
        self.topic_aliases = None
        self._pending = None

    # --- time ---

    def deadline(self) -> float:
        if self.closed:
            return NEVER
        if self.session is None:
            return max(self.opened_at + self.broker.settings.connect_timeout, self.claims_until)
        at = self.expires_at
        if self.keep_alive:
            at = min(at, self.last_received_at + self.keep_alive * KEEP_ALIVE_GRACE)
        return min(at, self._packet_deadline())

    def _packet_deadline(self) -> float:
        """Return when the connection is closed for an incomplete packet: connect_timeout after its last bytes, or
        after its first ones and the time for PACKET_RATE_MIN."""
        pending = self._pending
        if pending is None or self.held:
            return NEVER
        connect_timeout = self.broker.settings.connect_timeout
        return min(self.last_received_at, pending.began_at + pending.needed / PACKET_RATE_MIN) + connect_timeout

    def handle_timeout(self, now: float) -> None:
        if self.session is None:
            # The reason code counts the connection as refused. None is written before CONNECT.
            text = "no CONNECT within connect_timeout"
            if self.answer is not None:
                text = "CONNECT was not decided within connect_timeout"
                if self.claims_until > 0.0:
                    text += f", and {CLAIM_SECONDS_MAX:g} s after other nodes were asked for the session"
            self.broker.close_connection(self, SERVER_UNAVAILABLE, text, now)
        elif now >= self.expires_at:
            self.broker.close_connection(self, NOT_AUTHORIZED, "the credentials have expired", now)
        elif self.held and not self.output_held:
            self.last_received_at = now  # the broker does not read: the client may have sent
        elif now >= self._packet_deadline():
            self.broker.close_connection(self, KEEP_ALIVE_TIMEOUT, "packet not completed within connect_timeout", now)
        else:
            self.broker.close_connection(self, KEEP_ALIVE_TIMEOUT, "keep alive timeout", now)

    # --- input ---

    def receive_data(self, data: bytes, now: float) -> None:
        """Handle the whole packets of a chunk, at most one slice of them; keep the rest. An error of the client closes the
        connection."""
        if self.closed:
            return
        broker = self.broker
        session = self.session
        if session is not None and data:
            if now > broker.still_at and session.records is not None:
                broker.close_connection(self, SERVER_BUSY, STOOD_STILL, now)
                return
            session.is_new = False
        self.last_received_at = now
        broker.now = now
        broker.slices.begin()
        self.received_bytes += len(data)
        broker.counters.bytes_received += len(data)
        pending = self._pending
        # The socket may be read several times before the shell pauses it. Nothing overtakes an answer that was begun.
        if self.held or (pending is not None and pending.size + len(data) < pending.needed):
            if pending is None:
                self._pending = PendingInput(data, 0, 0, now)
            elif broker.memory_level == MEMORY_FULL and pending.needed > SMALL_PACKET_BYTES:
                broker.counters.publishes_without_memory += 1
                broker.close_connection(self, QUOTA_EXCEEDED, MEMORY_IS_FULL, now)
                return
            else:
                pending.add(data)
            if self.rate_limit is not None:
                self.rate_limit.charge(self.messages_received, self.received_bytes, now)
            return
        start = 0
        began_at = now
        if pending is not None:
            data, start = pending.joined(data)
            began_at = pending.began_at
            self._pending = None
        try:
            rest, needed = self._receive(data, start, now)
        except MqttError as error:
            self._close_faulty(error, now)
            return
        if rest < len(data) and not self.closed:
            if rest > start:
                began_at = now
            if (
                not self.held
            ):  # many whole packets can wait, and are not copied each time that some of them were handled
                data = data[rest:]
                rest = 0
            self._pending = PendingInput(data, rest, needed, began_at)
            broker.timers.schedule(self)
        session = self.session  # which CONNECT may have brought
        if session is not None and session.is_waiting():
            session.pump(now)
        if self.rate_limit is not None and not self.closed:
            self.rate_limit.charge(self.messages_received, self.received_bytes, now)
        if not self.writable and not self.output_held:
            # Acknowledgements and answers are not queued. A client that does not take them is not read.
            if self.stalled_bytes + self.out_size > broker.write_buffer_high and not self.closed:
                self.output_held = True
                broker.hold(self)

    def waiting_input(self) -> bytes:
        """The input that is not handled yet. It begins with a packet."""
        if self._pending is None:
            return b""
        data, start = self._pending.joined(b"")
        return data[start:]

    def resume_receiving(self, now: float) -> None:
        """Continue after a hold: with the answer that was begun, then with the input that waits."""
        answer = self.answer
        if answer is not None:
            self.broker.now = now
            self.broker.slices.begin()
            try:
                is_over = answer.go_on(now)
            except MqttError as error:
                self._close_faulty(error, now)
                return
            if not is_over and self.phase is not CONNECTING:
                self.broker.rest(self)
                return
            if is_over:
                self.answer = None
                if self.closed:
                    return
                self.phase = CONNECTED
                if self.session is None:
                    self._begin_session(now)
        if self._pending is not None and not self.closed:
            self._pending.needed = 0  # it is looked at again
            self._pending.began_at = now  # the client could not send the rest of the packet before
            self.receive_data(b"", now)

    def _close_faulty(self, error: MqttError, now: float) -> None:
        self.broker.counters.protocol_errors += 1
        self.broker.close_connection(self, error.reason_code, error.text, now)

    def _receive(self, data: bytes, pos: int, now: float) -> tuple[int, int]:
        """Handle packets from `pos` on, until the connection is held or the rest is no whole packet. Returns the position of
        the packet to go on from, and its size, 0 while that is not known."""
        size = len(data)
        broker = self.broker
        slices = broker.slices
        needed = 0
        while pos + 1 < size and not self.held:
            if slices.is_over():
                broker.rest(self)
                break
            slices.steps += 1
            first = data[pos]
            version = self.version if self.session is not None else 0
            if version == 0:
                check_first_type(self, first >> 4)
            remaining = data[pos + 1]
            body = pos + 2
            is_shortest = True
            if remaining > 127:
                remaining, body = decode_length(data, pos + 1, size)
                if remaining < 0:
                    break
                is_shortest = data[body - 1] > 0
                if version == 5 and not is_shortest:
                    raise MalformedPacket("remaining length is not in its shortest form [MQTT-1.5.5-1]")
            end = body + remaining
            if end > size:
                self._check_size(first, end - pos)
                needed = end - pos
                break
            kind = first >> 4
            if kind == PUBLISH and first & 6 and broker.unheard is not None and version:
                broker.hold_unheard(self)  # it would be routed for the subscriptions that are known by now
                break
            payload_at = -1
            if kind == PUBLISH and is_shortest:  # MQTT 3.1.1 allows longer forms; they are not forwarded as they came
                payload_at = bare_payload_at(data, first, body, end, version, self._properties)
            if payload_at >= 0:
                if end - pos > broker.max_packet_size:
                    self._check_size(first, end - pos)
                if first == PUBLISH_QOS0:
                    end = self._receive_run(data, pos, body, end, payload_at, now)
                else:
                    end = self._receive_qos1(data, pos, body, end, payload_at, now)
            elif first == 0x40 and remaining == 2 and version and data[body] | data[body + 1]:
                self.count_packet(PUBACK, end - pos)
                session = self.session
                assert session is not None
                session.acknowledge(data[body] << 8 | data[body + 1])
            else:
                self._check_size(first, end - pos)
                self.count_packet(kind, end - pos)
                self._receive_other(kind, first, data, body, end, now)
            pos = end
            if self.closed:
                return size, 0
        return pos, needed

    def _receive_other(self, kind: int, first: int, data: bytes, body: int, end: int, now: float) -> None:
        """Handle any packet but a bare PUBLISH and a PUBACK of two bytes."""
        if self.session is None:
            self._receive_opening(first, data, body, end, now)
        elif kind == PUBLISH:
            self._receive_publish(first, data, body, end, now)
        elif PUBACK <= kind <= PUBCOMP:
            session = self.session
            assert session is not None
            handle_ack(self.broker, self, session, kind, decode_ack(first, data, body, end, self.version))
        elif kind == CONNECT:
            raise ProtocolViolation("second CONNECT on one connection [MQTT-3.1.0-2]")
        else:
            session = self.session
            assert session is not None
            packet = decode_packet(first, data, body, end, self.version)
            handle_control_packet(self.broker, self, session, packet, now)

    def _receive_opening(self, first: int, data: bytes, body: int, end: int, now: float) -> None:
        """Handle CONNECT, or AUTH before CONNACK. A CONNECT that cannot be decoded gets a CONNACK of the version in its header
        [MQTT-3.1.4-1]."""
        if self.phase is CONNECTING:
            packet = decode_packet(first, data, body, end, self.version)
            handle_before_connack(self.broker, self, packet, now)
        else:
            self.phase = CONNECTING
            if first == TLS_HANDSHAKE:
                raise ProtocolViolation("the client speaks TLS, this listener does not")
            try:
                packet = decode_packet(first, data, body, end, 4)
            except MqttError:
                self.version = peek_protocol_version(data, body, end)
                raise
            handle_connect(self.broker, self, packet, now)
        if self.phase is CONNECTED:
            self._begin_session(now)

    def _begin_session(self, now: float) -> None:
        """CONNECT is accepted."""
        self.session = self.broker.session_of(self)
        self.last_received_at = now
        self.broker.timers.schedule(self)  # from now on the deadline is that of its Keep Alive

    def _check_size(self, first: int, packet_size: int) -> None:
        version = self.version if self.session is not None else 0
        check_packet_size(first, packet_size, version, self.broker.max_packet_size)

    # --- PUBLISH: three ways to read it, `publish` has the rules ---

    def _receive_run(self, data: bytes, start: int, body: int, end: int, payload_at: int, now: float) -> int:
        """Read a PUBLISH that `bare_payload_at` recognizes, together with the following ones of the same topic, properties and
        length. Returns the position behind them."""
        run = bare_run(data, start, body, end, payload_at, self.version, self.client_id, len(data))
        if run.properties:
            self._properties = run.properties
        session = self.session
        assert session is not None
        publish(self.broker, self, session, run, 0, False, now)
        self.count_publishes(run.count)
        return run.stop

    def _receive_qos1(self, data: bytes, start: int, body: int, end: int, payload_at: int, now: float) -> int:
        """Read a QoS 1 PUBLISH that `bare_payload_at` recognizes, and those that follow it where only other nodes get them.
        Returns the position behind them. The PUBACKs of one chunk leave in one write."""
        broker = self.broker
        route = broker.router.last
        is_watched = broker.tap is not None or broker.publishing is not None or self.bridge_end is not None
        if route is not None and route.is_passed_on and not is_watched:
            topic_end = body + 2 + (data[body] << 8 | data[body + 1])
            if data[body + 2 : topic_end] == route.topic:
                return self._receive_run(data, start, body, end, payload_at, now)
        message = bare_message(data, start, body, end, payload_at, self.version, self.client_id)
        if message.properties:
            self._properties = message.properties
        id_at = start + len(message.head)
        packet_id = data[id_at] << 8 | data[id_at + 1]
        self.count_publishes(1)
        session = self.session
        assert session is not None
        publish(self.broker, self, session, message, packet_id, False, now)
        return end

    def _receive_publish(self, first: int, data: bytes, body: int, end: int, now: float) -> None:
        """Read any PUBLISH [MQTT5 3.3]."""
        packet = decode_publish(first, data, body, end, self.version)
        if packet.subscription_identifiers:
            raise ProtocolViolation("PUBLISH from a client with a subscription identifier [MQTT-3.3.4-6]")
        if (
            self.bridge_end is None and packet.properties and NAME in packet.properties
        ):  # a bare one has no such property
            packet.properties = self.broker.stripped(packet.properties)
        topic = packet.topic
        if packet.topic_alias:
            if self.topic_aliases is None:
                self.topic_aliases = {}
            maximum = self.broker.settings.topic_alias_maximum
            topic = resolve_alias(self.topic_aliases, packet.topic_alias, topic, maximum)
        elif self.version == 5 and not topic:
            raise ProtocolViolation("PUBLISH with neither topic name nor topic alias [MQTT-3.3.2-8]")
        expiry = packet.message_expiry_interval
        expires_at = now + expiry if expiry >= 0 else NEVER
        message = Message(
            topic, packet.payload, packet.qos, packet.retain, packet.properties, expires_at, self.client_id
        )
        session = self.session
        assert session is not None
        publish(self.broker, self, session, message, packet.packet_id, packet.dup, now)
