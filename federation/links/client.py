"""The client's end of one MQTT connection to an upstream, without I/O.

Doors: `receive_data`, `take_output`, `take_events`, `next_timeout`, `handle_timeout`. The packets of messages take the passage
`incoming`; `write_flow` sends such packets. Acknowledgements are never made here: they come in with `write_flow`.
A client is for one connection; the next one has a client of its own.
"""

# not compiled: handles chunks; packets and relay handle messages
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
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
from broker.codec.reason_codes import (
    BAD_USER_NAME_OR_PASSWORD,
    CLIENT_IDENTIFIER_NOT_VALID,
    NOT_AUTHORIZED,
    PACKET_TOO_LARGE,
    SESSION_TAKEN_OVER,
    UNSUPPORTED_PROTOCOL_VERSION,
    reason_name,
)
from broker.codec.wire import decode_varint
from broker.codec.writer import PINGREQ, encode_packet
from broker.errors import MqttError, ProtocolViolation
from broker.message import NEVER
from federation.links.bridging.headers import FENCED
from federation.links.packets import LENGTH_UNKNOWN, Passage, packet_end
from federation.links.subscriptions import Subscriptions

CONNACK_SECONDS_MAX: Final = 10.0  # from CONNECT, unless the URI has connection_timeout
ANSWER_SECONDS_MAX: Final = 20.0  # from a PINGREQ to its PINGRESP, unless Keep Alive is shorter
PING_SECONDS: Final = 10.0  # between two PINGREQ, also while messages flow: the proof of a round trip
SHORT_CONNACK: Final = 4  # bytes of the CONNACK of MQTT 3.1.1; the one of MQTT 5 is longer [MQTT5 3.2.2.2]
REASON_CHARS_MAX: Final = 200  # of the upstream's Reason String
SHOWN_BYTES_MAX: Final = 40  # of bytes that are no CONNACK
OTHER_PROTOCOLS: Final = (
    (b"HTTP/", "it speaks HTTP: the URI of MQTT over WebSocket begins with ws://"),
    (b"\x15\x03", "it speaks TLS: its URI begins with mqtts://"),
    (b"AMQP", "it speaks AMQP: MQTT has a port of its own"),
)
EXPIRY_NEVER: Final = 0xFFFFFFFF  # Session Expiry Interval [MQTT5 3.1.2.11.2]


@dataclass(frozen=True, slots=True)
class Accepted:
    """CONNACK with Success: what the upstream grants [MQTT5 3.2.2.3].

    session_expiry       seconds; -1 where MQTT 3.1.1 does not say
    maximum_packet_size  bytes, 0 for no limit
    keep_alive           seconds, 0 for none
    user_properties      of an upstream of ours, among others
    """

    session_present: bool
    session_expiry: int = -1
    receive_maximum: int = 65_535
    maximum_qos: int = 2
    maximum_packet_size: int = 0
    retain_available: bool = True
    wildcard_available: bool = True
    keep_alive: int = 0
    user_properties: tuple[tuple[str, str], ...] = ()


class End(Enum):
    """The reason why a connection ended.

    REFUSED    CONNACK or DISCONNECT with a reason that another try will hardly change
    TAKEN      another client has taken the session over (0x8E), or holds it with a higher epoch
    VERSION    the upstream does not have this protocol version
    LOST       the network, silence, or a reason that passes
    FAULT      what came is not the protocol
    """

    REFUSED = "refused"
    TAKEN = "taken over"
    VERSION = "protocol version"
    LOST = "lost"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Ended:
    """The connection is over. The shell closes the socket when the output is written."""

    end: End
    reason: str


# Of CONNACK and DISCONNECT: what passes by itself. All other refusals need somebody to change something.
_PASSING_CODES: Final = frozenset({0x80, 0x88, 0x89, 0x8B, 0x8D, 0x97, 0x98, 0x9F, 0xA0})


# The keys of an upstream that an operator looks at.
_KEYS: Final = {
    BAD_USER_NAME_OR_PASSWORD: "user name and password of `uri`",
    NOT_AUTHORIZED: "user name and password of `uri`, and the rights of that account at the upstream",
    CLIENT_IDENTIFIER_NOT_VALID: "`consumer-tag`",
    SESSION_TAKEN_OVER: "another node of this domain, or a cluster with the same `domain` or `consumer-tag`, has connected",
}


def _end_of(code: int, reason: str | None) -> End:
    if code == SESSION_TAKEN_OVER or (reason or "").startswith(FENCED):
        return End.TAKEN
    if code == UNSUPPORTED_PROTOCOL_VERSION:
        return End.VERSION
    return End.LOST if code in _PASSING_CODES or code < 0x80 else End.REFUSED


def _reason_text(code: int, reason: str | None) -> str:
    """The name of a reason code, what the upstream says about it, shortened, and what to look at."""
    text = reason_name(code) + (f" ({reason[:REASON_CHARS_MAX]})" if reason else "")
    return f"{text}: {_KEYS[code]}" if code in _KEYS else text


def _no_connack(data: bytes) -> ProtocolViolation:
    """`data` is what the upstream has answered instead: other protocols are known by their first bytes."""
    text = ascii(data[:SHOWN_BYTES_MAX].decode("latin-1"))[1:-1].replace('"', '\\"')
    rest = "…" if len(data) > SHOWN_BYTES_MAX else ""
    hint = next((f"; {hint}" for begin, hint in OTHER_PROTOCOLS if data.startswith(begin)), "")
    return ProtocolViolation(f'the answer to CONNECT is no CONNACK: "{text}{rest}"{hint}')


class Client:
    """accepted      CONNACK; None before it
    incoming      what the packets of messages take; who has the CONNACK sets another one
    has_news      an event or an answer came; who looks at it sets it back
    is_closed     nothing is handled or sent any more
    answered_at   of the last answer to a packet of this client, NEVER before the first
    round_trip    seconds from a PINGREQ to its PINGRESP, -1.0 before the first
    received_bytes  from the upstream
    """

    def __init__(
        self, connect: Connect, subscriptions: Subscriptions, qos: int, retain: bool, packet_bytes_max: int
    ) -> None:
        """`qos` is that of the subscriptions, `retain` whether they are for retained messages, too. A packet of more than
        `packet_bytes_max` bytes ends the connection."""
        self.version = connect.protocol_version
        self.subscriptions = subscriptions
        self.accepted: Accepted | None = None
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
        self._out: list[bytes] = []
        self._events: list[Accepted | Ended] = []
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._needed = 0  # bytes of the packet that `_pending` begins, 0 while that is not known
        self._connack_until = NEVER
        self._ping_at = NEVER  # of the next PINGREQ; an answer makes no deadline earlier, so it needs no timer
        self._ping_seconds = PING_SECONDS
        self._connack_seconds = CONNACK_SECONDS_MAX
        # Keep Alive is how long this end takes the other one for alive without a word.
        self._answer_seconds = min(ANSWER_SECONDS_MAX, connect.keep_alive or ANSWER_SECONDS_MAX)
        self._asked_at = NEVER  # PINGREQ without an answer
        self._asked_subscriptions_at = NEVER

    # --- output ---

    def begin(self, now: float, connack_seconds: float = CONNACK_SECONDS_MAX) -> None:
        """The network connection is open: send CONNECT. The answer comes within `connack_seconds`."""
        self._out.append(encode_packet(self._connect, self.version))
        self._connack_seconds = connack_seconds
        self._connack_until = now + connack_seconds

    def take_output(self) -> bytes:
        """The bytes since the last call."""
        if not self._out:
            return b""
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        return data

    def is_unanswered(self) -> bool:
        """Return whether nothing has come yet."""
        return self.received_bytes == 0

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
            if self._asked_subscriptions_at == NEVER:
                self._asked_subscriptions_at = now

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

    # --- what the owner learns ---

    def take_events(self) -> list[Accepted | Ended]:
        events = self._events
        if events:
            self._events = []
        return events

    # --- time ---

    def next_timeout(self) -> float:
        if self.is_closed:
            return NEVER
        return min(
            self._connack_until,
            self._ping_at,
            self._asked_at + self._answer_seconds,
            self._asked_subscriptions_at + ANSWER_SECONDS_MAX,
        )

    def handle_timeout(self, now: float) -> None:
        if now < self.next_timeout():
            return
        if self.accepted is None:
            self._end(End.LOST, f"no CONNACK for {self._connack_seconds:.3g} s")
        elif now >= self._asked_at + self._answer_seconds:
            self._end(End.LOST, f"no answer to PINGREQ for {self._answer_seconds:g} s")
        elif now >= self._asked_subscriptions_at + ANSWER_SECONDS_MAX:
            self._end(End.LOST, f"no answer to SUBSCRIBE for {ANSWER_SECONDS_MAX:g} s")
        elif self._asked_at == NEVER:
            self._ask(now)
        else:
            self._ping_at = self._asked_at + self._answer_seconds

    def _ask(self, now: float) -> None:
        """The question whose answer is the proof of a round trip."""
        self._asked_at = now
        self._ping_at = now + self._ping_seconds
        self._out.append(PINGREQ)

    def connection_lost(self, reason: str) -> None:
        """The network connection has ended."""
        if not self.is_closed:
            self._end(End.LOST, reason)

    def fail(self, error: MqttError) -> None:
        """The upstream does what it may not do."""
        if self.version == MQTT_5 and self.accepted is not None:
            self._out.append(encode_packet(Disconnect(error.reason_code), self.version))
        self._end(End.FAULT, f"the upstream breaks the protocol: {error.text}")

    def _end(self, end: End, reason: str) -> None:
        self.is_closed = True
        self._pending.clear()
        self.has_news = True
        self._events.append(Ended(end, reason))

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
            self.fail(error)
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
            raise _no_connack(data)
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
            if self._asked_at == NEVER:
                raise ProtocolViolation("PINGRESP without PINGREQ")
            self.round_trip = now - self._asked_at
            self._asked_at = NEVER
            self.answered_at = now
            self.has_news = True
        elif isinstance(packet, (SubAck, UnsubAck)):
            self.subscriptions.answered(packet)
            self.answered_at = now
            self._asked_subscriptions_at = NEVER if self.subscriptions.is_settled() else now
            self.has_news = True
            self.send_subscriptions(now)
        elif isinstance(packet, Disconnect):
            code = packet.reason_code
            reason = props.get_str(packet.properties, props.REASON_STRING)
            self._end(_end_of(code, reason), f"the upstream disconnects: {_reason_text(code, reason)}")
        else:
            raise ProtocolViolation(f"{type(packet).__name__} from a server")

    def _handle_connack(self, connack: ConnAck, version: int, now: float) -> None:
        properties = connack.properties
        code = connack.reason_code
        if code:
            reason = props.get_str(properties, props.REASON_STRING)
            self._end(_end_of(code, reason), f"CONNECT is refused: {_reason_text(code, reason)}")
            return
        if version != self.version:
            self._end(End.VERSION, "CONNACK of MQTT 3.1.1 to a CONNECT of MQTT 5")
            return
        keep_alive = self._connect.keep_alive
        if version == MQTT_5:
            wanted = props.get_int(self._connect.properties, props.SESSION_EXPIRY_INTERVAL, 0)
            keep_alive = props.get_int(properties, props.SERVER_KEEP_ALIVE, keep_alive)
            self.accepted = Accepted(
                connack.session_present,
                props.get_int(properties, props.SESSION_EXPIRY_INTERVAL, wanted),
                props.get_int(properties, props.RECEIVE_MAXIMUM, 65_535),
                props.get_int(properties, props.MAXIMUM_QOS, 2),
                props.get_int(properties, props.MAXIMUM_PACKET_SIZE, 0),
                props.get_int(properties, props.RETAIN_AVAILABLE, 1) == 1,
                props.get_int(properties, props.WILDCARD_SUBSCRIPTION_AVAILABLE, 1) == 1,
                keep_alive,
                tuple(props.get_user_properties(properties)),
            )
        else:
            self.accepted = Accepted(connack.session_present, keep_alive=keep_alive)
        if keep_alive:
            self._ping_seconds = min(PING_SECONDS, keep_alive / 2)
        self.answered_at = now
        self._connack_until = NEVER
        self._ask(now)
        self.has_news = True
        self._events.append(self.accepted)
