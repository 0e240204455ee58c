"""The client's end of one MQTT connection to an upstream, without I/O.

Doors: `receive_data`, `take_output`, `next_timeout`, `handle_timeout`; `has_news` after each of them. The packets of messages
take the passage `incoming`; `write_flow` sends such packets. Acknowledgements are never made here: they come in with
`write_flow`. A client is for one connection; the next one has a client of its own.
"""

# not compiled: handles chunks; packets and relay handle messages
from __future__ import annotations

from typing import Final

from broker.codec import properties as props
from broker.codec.connect_reader import decode_connack
from broker.codec.packets import (
    CONNACK,
    MQTT_5,
    MQTT_311,
    ConnAck,
    Connect,
    Disconnect,
    PingResp,
    Properties,
    SubAck,
    UnsubAck,
)
from broker.codec.reader import decode_packet
from broker.codec.reason_codes import PACKET_TOO_LARGE
from broker.codec.wire import decode_varint
from broker.codec.writer import PINGREQ, encode_packet
from broker.errors import MqttError, ProtocolViolation
from broker.message import NEVER
from federation.links.handshake import Accepted, End, Ended, ended_by, no_connack, read_connack
from federation.links.packets import LENGTH_UNKNOWN, Passage, packet_end
from federation.links.subscriptions import Subscriptions

CONNACK_SECONDS_MAX: Final = 10.0  # from CONNECT, unless the URI has connection_timeout
ANSWER_SECONDS_MAX: Final = 20.0  # from a PINGREQ to its PINGRESP, unless Keep Alive is shorter
PING_SECONDS: Final = 10.0  # between two PINGREQ, also while messages flow: the proof of a round trip
NO_CONNACK: Final = "no CONNACK"
NO_PINGRESP: Final = "no answer to PINGREQ"
NO_SUBACK: Final = "no answer to SUBSCRIBE"
SHORT_CONNACK: Final = 4  # bytes of the CONNACK of MQTT 3.1.1; the one of MQTT 5 is longer [MQTT5 3.2.2.2]


class Client:
    """accepted      CONNACK; None before it
    ended         how the connection ended; None before. The shell closes the socket when the output is written
    incoming      what the packets of messages take; who has the CONNACK sets another one
    has_news      an answer or the end came; who looks at it sets it back
    is_closed     nothing is handled or sent any more
    answered_at   of the last answer to a packet of this client, NEVER before the first
    round_trip    seconds from a PINGREQ to its PINGRESP, -1.0 before the first
    received_bytes  from the upstream
    """

    def __init__(
        self,
        connect: Connect,
        subscriptions: Subscriptions,
        qos: int,
        retain: bool,
        packet_bytes_max: int,
        now: float,
        connack_seconds: float = CONNACK_SECONDS_MAX,
    ) -> None:
        """The network connection is open: send CONNECT. The answer comes within `connack_seconds`. `qos` is that of the
        subscriptions, `retain` whether they are for retained messages, too. A packet of more than `packet_bytes_max` bytes ends
        the connection."""
        self.version = connect.protocol_version
        self.subscriptions = subscriptions
        self.accepted: Accepted | None = None
        self.ended: Ended | None = None
        self.incoming = Passage()
        self.has_news = False
        self.is_closed = False
        self.answered_at = NEVER
        self.round_trip = -1.0
        self.received_bytes = 0
        self._connect = connect
        self._qos = qos
        self._retain = retain
        self._packet_bytes_max = packet_bytes_max
        self._out = [encode_packet(connect, self.version)]
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._needed = 0  # bytes of the packet that `_pending` begins, 0 while that is not known
        self._awaited: dict[
            str, tuple[float, float]
        ] = {}  # by its name: until when an answer must come, seconds it may take
        self._asked_at = NEVER  # of the last PINGREQ
        self._ping_at = NEVER  # of the next one; an answer makes no deadline earlier, so it needs no timer
        self._ping_seconds = PING_SECONDS
        # Keep Alive is how long this end takes the other one for alive without a word.
        self._answer_seconds = min(ANSWER_SECONDS_MAX, connect.keep_alive or ANSWER_SECONDS_MAX)
        self._await(NO_CONNACK, connack_seconds, now)

    # --- output ---

    def take_output(self) -> bytes:
        """The bytes since the last call."""
        if not self._out:
            return b""
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        return data

    def write_flow(self, data: bytes) -> None:
        """Send whole packets from PUBLISH to PUBCOMP."""
        if data and not self.is_closed:
            self._out.append(data)

    def send_subscriptions(self, now: float) -> None:
        """Send the changes of the subscriptions that may be on the way now."""
        if self.accepted is None or self.is_closed:
            return
        for packet in self.subscriptions.take_packets(min(self._qos, self.accepted.maximum_qos), self._retain):
            self._out.append(encode_packet(packet, self.version))
            if NO_SUBACK not in self._awaited:
                self._await(NO_SUBACK, ANSWER_SECONDS_MAX, now)

    def close(self, ends_session: bool) -> None:
        """Send DISCONNECT. `ends_session`: the upstream forgets the session. MQTT 3.1.1 cannot say that; the session is left
        without subscriptions."""
        if self.is_closed:
            return
        self.is_closed = True
        if self.accepted is None:
            self._out.clear()
            return
        if ends_session and self.version != MQTT_5:
            self._out += [encode_packet(packet, self.version) for packet in self.subscriptions.farewell()]
        properties: Properties = {props.SESSION_EXPIRY_INTERVAL: 0} if ends_session and self.version == MQTT_5 else {}
        self._out.append(encode_packet(Disconnect(0, properties), self.version))

    # --- time ---

    def next_timeout(self) -> float:
        if self.is_closed:
            return NEVER
        return min([self._ping_at, *[until for until, _ in self._awaited.values()]])

    def handle_timeout(self, now: float) -> None:
        if self.is_closed:
            return
        for fault, (until, seconds) in self._awaited.items():
            if now >= until:
                self._end(End.LOST, f"{fault} for {seconds:.3g} s")
                return
        if now >= self._ping_at:
            if NO_PINGRESP in self._awaited:
                self._ping_at = self._awaited[NO_PINGRESP][0]
            else:
                self._ask(now)

    def _ask(self, now: float) -> None:
        """The question whose answer is the proof of a round trip."""
        self._asked_at = now
        self._ping_at = now + self._ping_seconds
        self._await(NO_PINGRESP, self._answer_seconds, now)
        self._out.append(PINGREQ)

    def _await(self, fault: str, seconds: float, now: float) -> None:
        """An answer must come within so many seconds, or this is the fault."""
        self._awaited[fault] = (now + seconds, seconds)

    def connection_lost(self, reason: str) -> None:
        """The network connection has ended."""
        if not self.is_closed:
            self._end(End.LOST, reason)

    def _end(self, end: End, reason: str) -> None:
        self.is_closed = True
        self._pending.clear()
        self.has_news = True
        self.ended = Ended(end, reason)

    # --- input ---

    def receive_data(self, data: bytes, now: float) -> None:
        """Handle the whole packets that `data` completes. A fault of the upstream ends the connection. What comes in one piece
        with CONNACK waits for the next call, in which `data` may be empty."""
        if self.is_closed:
            return
        self.received_bytes += len(data)
        pending = self._pending
        if pending:
            pending.append(data)
            self._pending_size += len(data)
            if self._pending_size < self._needed:
                return
            data = b"".join(pending)
            pending.clear()
        try:
            pos = self._receive(data, now)
        except MqttError as error:
            if self.version == MQTT_5 and self.accepted is not None:
                self._out.append(encode_packet(Disconnect(error.reason_code), self.version))
            self._end(End.FAULT, f"the upstream breaks the protocol: {error.text}")
            return
        if pos < len(data) and not self.is_closed:
            rest = data[pos:] if pos else data
            pending.append(rest)
            self._pending_size = len(rest)

    def _receive(self, data: bytes, now: float) -> int:
        """Handle packets. Returns the position of the first byte that is not handled; sets _needed."""
        size = len(data)
        pos = 0
        if self.accepted is None and size and data[0] >> 4 != CONNACK:  # [MQTT-3.2.0-1]
            raise no_connack(data)
        while pos < size and not self.is_closed:
            stop = self.incoming.walk(data, pos, size)
            if stop > pos:
                pos = stop
                continue
            end = packet_end(data, pos, size)
            if end == LENGTH_UNKNOWN or end > size:
                self._needed = 0 if end == LENGTH_UNKNOWN else end - pos
                if self._needed > self._packet_bytes_max:
                    raise MqttError(
                        PACKET_TOO_LARGE, f"a packet of {self._needed} bytes, at most {self._packet_bytes_max}"
                    )
                break
            is_greeted = self.accepted is not None
            self._receive_other(data, pos, end, now)
            pos = end
            if not is_greeted:
                self._needed = 0
                break
        return pos

    def _receive_other(self, data: bytes, pos: int, end: int, now: float) -> None:
        """Handle one packet that is none of a message."""
        first = data[pos]
        _, body = decode_varint(data, pos + 1, end)
        if self.accepted is None:
            version = MQTT_311 if end - pos == SHORT_CONNACK else self.version
            self._handle_connack(decode_connack(data, body, end, version), version, now)
            return
        packet = decode_packet(first, data, body, end, self.version)
        if isinstance(packet, PingResp):
            if self._awaited.pop(NO_PINGRESP, None) is None:
                raise ProtocolViolation("PINGRESP without PINGREQ")
            self.round_trip = now - self._asked_at
            self._answered(now)
        elif isinstance(packet, (SubAck, UnsubAck)):
            self.subscriptions.answered(packet)
            if self.subscriptions.is_settled():
                self._awaited.pop(NO_SUBACK, None)
            else:
                self._await(NO_SUBACK, ANSWER_SECONDS_MAX, now)
            self._answered(now)
            self.send_subscriptions(now)
        elif isinstance(packet, Disconnect):
            self._end(*ended_by("the upstream disconnects", packet.reason_code, packet.properties))
        else:
            raise ProtocolViolation(f"{type(packet).__name__} from a server")

    def _handle_connack(self, connack: ConnAck, version: int, now: float) -> None:
        answer = read_connack(connack, version, self._connect)
        if isinstance(answer, Ended):
            self._end(*answer)
            return
        self.accepted = answer
        if answer.keep_alive:
            self._ping_seconds = min(PING_SECONDS, answer.keep_alive / 2)
        self._awaited.clear()
        self._ask(now)
        self._answered(now)

    def _answered(self, now: float) -> None:
        self.answered_at = now
        self.has_news = True
