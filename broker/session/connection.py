"""One network connection, without the network: bytes in, bytes out, one loop a chunk.

PUBLISH and its acks are handled here, on the path that every message takes; the other packets in `control`.
The loop keeps one index into the chunk and cuts out only what it must keep. Measured in bench/README.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.codec.connect_reader import peek_protocol_version
from broker.codec.packets import (
    CONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    Will,
)
from broker.codec.reader import decode_ack, decode_packet, decode_publish
from broker.codec.reason_codes import (
    KEEP_ALIVE_TIMEOUT,
    NO_MATCHING_SUBSCRIBERS,
    PACKET_IDENTIFIER_NOT_FOUND,
    QOS_NOT_SUPPORTED,
    RECEIVE_MAXIMUM_EXCEEDED,
    RETAIN_NOT_SUPPORTED,
    SUCCESS,
)
from broker.codec.wire import encode_varint
from broker.codec.writer import encode_puback, encode_pubcomp, encode_pubrec, encode_pubrel
from broker.errors import MalformedPacket, MqttError, ProtocolViolation
from broker.message import NEVER, Message
from broker.session.aliases import resolve_alias
from broker.session.alone import DirectOutput
from broker.session.backlog import LOOK_MAX
from broker.session.control import handle_control_packet
from broker.session.limits import check_packet_size
from broker.session.outgoing import PACKET_ID_BYTES
from broker.session.publisher import Publisher

if TYPE_CHECKING:
    from broker.broker import Broker

KEEP_ALIVE_GRACE: Final = 1.5  # [MQTT-3.1.2-22]
RUN_MAX: Final = 256  # messages handled as one; a hold of the publisher acts between two runs
PENDING_MERGE_BYTES: Final = 4096  # smaller chunks of one packet are joined: a packet byte by byte costs its own size
PACKET_RATE_MIN: Final = 16_384  # bytes a second that a large packet must come with, beyond connect_timeout
RECEIVE_MAXIMUM_DEFAULT: Final = 65535  # [MQTT5 3.1.2.11.3]


class Connection(Publisher):
    """owner            the shell's handle, opaque here
    session          None until CONNECT was accepted and after the close
    version          3, 4 or 5; 0 before CONNECT
    out              output of this turn, taken by take_output
    held             how many full receivers ask not to read from this client (the shell pauses reading while > 0)
    direct           writes to the transport at once, set by the shell; None: output only leaves through take_output
    writable         False while the transport has more than write_buffer_high bytes unsent
    """

    def __init__(self, broker: Broker, owner: object, remote_addr: str, local_addr: str, now: float) -> None:
        super().__init__(owner)
        # Compiled, attributes lie in memory as they are assigned here: what each message touches comes first, side by side.
        self.broker = broker
        self.direct: DirectOutput | None = None
        self.closed = False
        self.writable = True
        self.dirty = False
        self.output_held = False  # one of `held` is this client's own: it sends, but does not take what it is answered
        self.pending: list[bytes] | None = None  # chunks of a packet that is not whole yet
        self.last_received_at = now
        self.packets_received = 0
        self.received_bytes = 0
        self.client_id = ""
        self.version = 0
        self.maximum_packet_size = 0  # the client's; 0 is none
        self.out: list[bytes] = []
        self.out_size = 0
        self.packets_sent = 0
        self.sent_bytes = 0
        self.stalled_bytes = 0  # written since the transport said that it is full
        self.username = ""
        self.keep_alive = 0
        self.receive_maximum = RECEIVE_MAXIMUM_DEFAULT  # the client's
        self.request_problem_information = True
        self.will: Will | None = None
        self.topic_aliases: dict[int, bytes] | None = None  # the client's, inbound
        self.look_at_most = LOOK_MAX  # retained topics, in this round
        self.remote_addr = remote_addr
        self.local_addr = local_addr
        self.opened_at = now
        self.connecting = False  # CONNECT is being handled: a refusal is a CONNACK
        self.close_text = ""
        self.pending_size = 0
        self.pending_needed = 0
        self.pending_at = 0.0  # when that packet began

    # --- output ---

    def can_write(self) -> bool:
        return self.writable and self.out_size < self.broker.write_buffer_high

    def write_packets(self, data: bytes, count: int) -> None:
        """`count` whole packets; they leave with the rest of this turn in one write."""
        self.out.append(data)
        self.out_size += len(data)
        self.packets_sent += count
        if not self.dirty:
            self.dirty = True
            self.broker.dirty.append(self)

    def write_alone(self, data: bytes) -> bool:
        """One whole packet, at once. False when output waits, or may not leave: then it belongs behind it."""
        direct = self.direct
        if direct is None or self.dirty or self.out_size or not self.writable or self.closed:
            return False
        direct.write(data)
        self.packets_sent += 1
        self.sent_bytes += len(data)
        return True

    def call_again(self) -> None:
        """To be asked for output in the next round, also when there is none yet."""
        if not self.dirty:
            self.dirty = True
            self.broker.dirty.append(self)

    def take_output(self) -> bytes:
        """Everything since the last call, as one piece.

        While messages wait for this client the connection asks to be looked at again in the same turn: nobody else
        reports that the transport took everything at once.
        """
        out = self.out
        session = self.session
        if not out and session is not None and session.is_waiting():
            self.dirty = True  # so that what pump writes is not announced: it is taken here
            self.look_at_most = min(LOOK_MAX, self.look_at_most + LOOK_MAX)  # what was too much in one round is owed
            if session.backlog is not None:
                session.backlog.resting = False
            try:
                session.pump(self.broker.now)
            finally:
                self.dirty = False  # also after a fault: the close that it brings is to be announced
        else:
            self.dirty = False
        if not out:
            if session is not None and session.backlog is not None and session.backlog.resting:
                self.call_again()
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self.sent_bytes += self.out_size
        if not self.writable:
            self.stalled_bytes += self.out_size
        self.out_size = 0
        if session is not None and session.is_waiting():
            self.call_again()
        return data

    # --- time ---

    def deadline(self) -> float:
        if self.closed:
            return NEVER
        connect_timeout = self.broker.settings.connect_timeout
        if self.session is None:
            return self.opened_at + connect_timeout
        at = NEVER
        if self.keep_alive:
            at = self.last_received_at + self.keep_alive * KEEP_ALIVE_GRACE
        if self.pending_size and not self.held:
            at = min(at, self._packet_deadline())
        return at

    def _packet_deadline(self) -> float:
        """The rest of a packet is waited for no longer than connect_timeout; a large one may go on as long as it comes."""
        connect_timeout = self.broker.settings.connect_timeout
        return min(
            self.last_received_at + connect_timeout,
            self.pending_at + connect_timeout + self.pending_needed / PACKET_RATE_MIN,
        )

    def handle_timeout(self, now: float) -> None:
        if self.session is None:
            # Refused, and counted so; before CONNECT no reason code is written.
            self.broker.close_connection(self, KEEP_ALIVE_TIMEOUT, "no CONNECT within connect_timeout", now)
        elif self.held and not self.output_held:
            self.last_received_at = now  # we are not reading: silence is ours
        elif self.pending_size and not self.held and now >= self._packet_deadline():
            self.broker.close_connection(self, KEEP_ALIVE_TIMEOUT, "packet not completed within connect_timeout", now)
        else:
            self.broker.close_connection(self, KEEP_ALIVE_TIMEOUT, "keep alive timeout", now)

    # --- input ---

    def receive_data(self, data: bytes, now: float) -> None:
        """Handle every whole packet of the chunk, keep the rest. Errors of the client close the connection here."""
        if self.closed:
            return
        broker = self.broker
        router = broker.router
        self.last_received_at = now
        broker.now = now
        self.received_bytes += len(data)
        pending = self.pending
        flow = self.flow
        if (
            flow is not None
            and pending is None
            and len(data) <= broker.max_packet_size
            and flow.fits(data, 0, router.generation)
        ):
            self.packets_received += 1
            router.route_again(flow, data, self, self.client_id, now)
            return
        if pending is not None:
            self.pending_size += len(data)
            if self.pending_size < self.pending_needed or self.held:
                if len(pending[-1]) < PENDING_MERGE_BYTES:
                    pending[-1] += data
                else:
                    pending.append(data)
                return
            pending.append(data)
            data = b"".join(pending)
            self.pending = None
            self.pending_size = 0
        router.publisher = self
        try:
            rest = self._receive(data, now)
        except MqttError as error:
            broker.counters.protocol_errors += 1
            broker.close_connection(self, error.reason_code, error.text, now)
            return
        finally:
            router.publisher = None
        if rest < len(data) and not self.closed:
            self.pending = [data[rest:]]
            self.pending_size = len(data) - rest
            if rest or pending is None:
                self.pending_at = now
            self.broker.timers.schedule(self)
        session = self.session
        if session is not None and (session.queue or session.resend or session.backlog is not None):
            session.pump(now)
        if not self.writable and not self.output_held:
            # Acknowledgements and answers are not queued: who does not take them is not read either.
            if self.stalled_bytes + self.out_size > self.broker.write_buffer_high and not self.closed:
                self.output_held = True
                self.broker.hold(self)

    def resume_receiving(self, now: float) -> None:
        """After a hold: go on with what was left of the chunk."""
        if self.pending is not None and not self.closed:
            self.pending_needed = 0
            self.receive_data(b"", now)

    def _receive(self, data: bytes, now: float) -> int:
        """The loop. Returns the position of the first byte that is not handled; sets pending_needed."""
        pos = 0
        size = len(data)
        while pos + 1 < size:
            first = data[pos]
            version = self.version
            if version == 0 and first >> 4 != CONNECT:
                raise ProtocolViolation(f"first packet is of type {first >> 4}, not CONNECT [MQTT-3.1.0-1]")
            remaining = data[pos + 1]
            body = pos + 2
            if remaining > 127:
                remaining &= 127
                shift = 7
                while True:
                    if body >= size:
                        self.pending_needed = 0
                        return pos
                    byte = data[body]
                    body += 1
                    remaining |= (byte & 127) << shift
                    if byte < 128:
                        break
                    shift += 7
                    if shift > 21:
                        raise MalformedPacket("remaining length of more than four bytes (2.1.4)")
                if byte == 0:
                    if version == 5:
                        raise MalformedPacket("remaining length longer than it need be [MQTT-1.5.5-1]")
                    # MQTT 3.1.1 forbids it in a table only. It is read, but no receiver gets to see it: packets are
                    # forwarded as they came.
                    end = body + remaining
                    if first >> 4 == PUBLISH and end <= size and version:
                        self._receive(data[pos : pos + 1] + encode_varint(remaining) + data[body:end], now)
                        if self.closed:
                            return size
                        pos = end
                        if self.held:
                            return pos
                        continue
            end = body + remaining
            if end > size:
                self._check_size(first, end - pos)
                self.pending_needed = end - pos
                return pos
            if version == 0:
                self._check_size(first, end - pos)
                self.packets_received += 1
                self._receive_connect(first, data, body, end, now)
                if self.closed:
                    return size
                pos = end
                continue
            kind = first >> 4
            if kind == PUBLISH:
                # The two forms that make up the load: QoS 0 or 1, nothing in the flags, no MQTT 5 properties.
                # Topic length and properties length are read below only where `remaining` covers them.
                if first <= 0x32 and first != 0x31 and remaining >= 5:
                    topic_end = body + 2 + (data[body] << 8 | data[body + 1])
                    payload_at = topic_end + (first & 2)
                    if version == 5:
                        payload_at += 1
                    if payload_at <= end and topic_end > body + 2 and (version != 5 or data[payload_at - 1] == 0):
                        if end - pos > self.broker.max_packet_size:
                            self._check_size(first, end - pos)
                        if first == 0x30:
                            pos = self._receive_run(data, pos, end, body + 2, topic_end, payload_at, now)
                        else:
                            self._receive_qos1(data, pos, body + 2, topic_end, payload_at, end, now)
                            pos = end
                        if self.held or self.closed:
                            if self.closed:
                                return size
                            self.pending_needed = 0
                            return pos
                        continue
                self._check_size(first, end - pos)
                self.packets_received += 1
                self._receive_publish(first, data, body, end, now)
                if self.closed:
                    return size
                if self.held:
                    self.pending_needed = 0
                    return end
            elif kind == PUBACK and remaining == 2 and first == 0x40:
                self.packets_received += 1
                session = self.session
                assert session is not None
                session.acknowledge(data[body] << 8 | data[body + 1])
            else:
                self._check_size(first, end - pos)
                self.packets_received += 1
                if PUBACK <= kind <= PUBCOMP:
                    self._receive_ack(kind, first, data, body, end)
                else:
                    handle_control_packet(self, decode_packet(first, data, body, end, version), now)
                    if self.closed:
                        return size
            pos = end
        self.pending_needed = 0
        return pos

    def _receive_connect(self, first: int, data: bytes, body: int, end: int, now: float) -> None:
        """One that cannot be decoded is refused with a CONNACK of the version that it seems to ask for [MQTT-3.1.4-1]."""
        try:
            packet = decode_packet(first, data, body, end, 4)
        except MqttError:
            self.version = peek_protocol_version(data, body, end)
            self.connecting = True
            raise
        handle_control_packet(self, packet, now)

    def _check_size(self, first: int, packet_size: int) -> None:
        check_packet_size(first, packet_size, self.version, self.broker.max_packet_size)

    # --- PUBLISH ---

    def _receive_run(
        self, data: bytes, start: int, end: int, topic_at: int, topic_end: int, payload_at: int, now: float
    ) -> int:
        """QoS 0: take every following packet of the same topic and length with this one, as one slice of the chunk."""
        router = self.broker.router
        route = router.lookup(data[topic_at:topic_end])
        length = end - start
        count = 1
        stop = end
        limit = min(len(data), start + length * RUN_MAX)
        if stop + length <= limit:
            head = data[start:payload_at]
            while stop + length <= limit and data.startswith(head, stop):
                stop += length
                count += 1
        self.packets_received += count
        self.broker.counters.qos0_received += count
        if stop - start == len(data) and count == 1:
            self.learn_flow(route, router.generation, 4 if self.version < 5 else 5, data, 0, payload_at)
        router.route_run(route, data, start, stop, count, payload_at - start, self.version, self.client_id, now, True)
        return stop

    def _receive_qos1(
        self, data: bytes, start: int, topic_at: int, topic_end: int, payload_at: int, end: int, now: float
    ) -> None:
        """QoS 1 without flags and properties. The PUBACK leaves in the same write as the others of this chunk."""
        packet_id = data[topic_end] << 8 | data[topic_end + 1]
        if packet_id == 0:
            raise ProtocolViolation("PUBLISH with packet identifier 0 [MQTT-2.2.1-3]")
        self.packets_received += 1
        broker = self.broker
        if broker.maximum_qos < 1:
            raise MqttError(QOS_NOT_SUPPORTED, "QoS 1 above the server's maximum QoS 0")
        broker.counters.count_received(1)
        message = Message(data[topic_at:topic_end], data[payload_at:end], 1, False, b"", NEVER, self.client_id)
        message.head = data[start:topic_end]
        message.tail = message.payload if self.version < 5 else data[topic_end + 2 : end]
        message.head_version = 4 if self.version < 5 else 5
        matched = broker.router.route(message, now)
        if matched or self.version != 5:
            self.write_packets(b"\x40\x02" + PACKET_ID_BYTES[packet_id], 1)
        else:
            self.write_packets(encode_puback(packet_id, NO_MATCHING_SUBSCRIBERS, 5), 1)

    def _receive_publish(self, first: int, data: bytes, body: int, end: int, now: float) -> None:
        """Any PUBLISH."""
        publish = decode_publish(first, data, body, end, self.version)
        settings = self.broker.settings
        session = self.session
        assert session is not None
        topic = publish.topic
        alias = publish.topic_alias
        if alias:
            if self.topic_aliases is None:
                self.topic_aliases = {}
            topic = resolve_alias(self.topic_aliases, alias, topic, settings.topic_alias_maximum)
        elif self.version == 5 and not topic:
            raise ProtocolViolation("PUBLISH with neither topic name nor topic alias [MQTT-3.3.2-8]")
        if publish.subscription_identifiers:
            raise ProtocolViolation("PUBLISH from a client with a subscription identifier [MQTT-3.3.4-6]")
        if publish.retain and not settings.retain_available:
            raise MqttError(RETAIN_NOT_SUPPORTED, "RETAIN set, but retained messages are switched off here")
        if publish.qos > settings.maximum_qos:
            raise MqttError(
                QOS_NOT_SUPPORTED, f"QoS {publish.qos} above the server's maximum QoS {settings.maximum_qos}"
            )
        incoming = session.incoming
        if publish.qos == 2:
            if incoming is None:
                incoming = session.incoming = {}
            if publish.packet_id in incoming:
                self.write_packets(encode_pubrec(publish.packet_id, SUCCESS, self.version), 1)
                return
            if self.version == 5 and len(incoming) >= settings.server_receive_maximum:
                raise MqttError(
                    RECEIVE_MAXIMUM_EXCEEDED, f"more than {settings.server_receive_maximum} QoS 2 messages unreleased"
                )
        self.broker.counters.count_received(publish.qos)
        expires_at = now + publish.message_expiry_interval if publish.message_expiry_interval >= 0 else NEVER
        message = Message(
            topic, publish.payload, publish.qos, publish.retain, publish.properties, expires_at, self.client_id
        )
        matched = self.broker.router.route(message, now)
        if publish.qos:
            reason_code = SUCCESS if matched or self.version != 5 else NO_MATCHING_SUBSCRIBERS
            if publish.qos == 1:
                self.write_packets(encode_puback(publish.packet_id, reason_code, self.version), 1)
            else:
                # Only now: one that is refused above was not received, and is refused again after a reconnect.
                assert incoming is not None
                incoming[publish.packet_id] = True
                self.write_packets(encode_pubrec(publish.packet_id, reason_code, self.version), 1)

    def _receive_ack(self, kind: int, first: int, data: bytes, body: int, end: int) -> None:
        ack = decode_ack(first, data, body, end, self.version)
        session = self.session
        assert session is not None
        packet_id = ack.packet_id
        if kind == PUBACK:
            session.acknowledge(packet_id)
        elif kind == PUBREC:
            failed = ack.reason_code >= 0x80
            known = session.received(packet_id, failed)
            if not failed:
                reason_code = SUCCESS if known else PACKET_IDENTIFIER_NOT_FOUND
                self.write_packets(encode_pubrel(packet_id, reason_code, self.version), 1)
        elif kind == PUBREL:
            known = session.incoming is not None and session.incoming.pop(packet_id, False)
            reason_code = SUCCESS if known else PACKET_IDENTIFIER_NOT_FOUND
            self.write_packets(encode_pubcomp(packet_id, reason_code, self.version), 1)
        else:
            session.completed(packet_id)
