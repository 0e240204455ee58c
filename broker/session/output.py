"""A client's network connection without its input: the fields of CONNECT, and the packets to write.

Sessions and the broker use this class. `Connection` adds the input.
"""

# compiled with mypyc
from __future__ import annotations

from enum import Enum
from typing import Final

from broker.authorization import TopicAccess
from broker.bridge_end import BridgeEnd
from broker.codec.packets import PUBACK, PUBLISH, Will
from broker.context import Context
from broker.counters import SHORT_PUBACK_BYTES
from broker.listener_facts import NO_LISTENER
from broker.message import NEVER
from broker.publisher import Publisher
from broker.session.aliases import SentAliases
from broker.session.rate_limit import RateLimit
from broker.slices import Work

RECEIVE_MAXIMUM_DEFAULT: Final = 65535  # [MQTT5 3.1.2.11.3]


class Phase(Enum):
    """Of a connection. While it is CONNECTING or ANSWERING its input waits, in order.

    CONNECTING is from CONNECT to CONNACK; AUTH is read there after a challenge. ANSWERING is while a SUBSCRIBE
    or UNSUBSCRIBE takes more than a slice. CONNECTED begins after CONNACK, CLOSED when either side has ended the connection.
    """

    WAITING_FOR_CONNECT = "waiting for CONNECT"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    ANSWERING = "answering"
    CLOSED = "closed"


# Compiled code reads a constant of the module directly. It looks a member of the enum up by name.
WAITING_FOR_CONNECT: Final = Phase.WAITING_FOR_CONNECT
CONNECTING: Final = Phase.CONNECTING
CONNECTED: Final = Phase.CONNECTED
ANSWERING: Final = Phase.ANSWERING
CLOSED: Final = Phase.CLOSED


class Output(Publisher):
    """owner            the shell's handle, opaque here
    held             as in Publisher
    phase            of the connection
    answer           work that goes on in a later turn: on a CONNECT that is not decided yet (CONNECTING), or on a packet that
                     takes more than a slice (ANSWERING)
    authentication_method  of CONNECT, "" for none
    reauthentication       work on an AUTH of a connected client, None for none
    client_id        as sent in CONNECT, then as accepted; "" before CONNECT
    version          3, 4 or 5; 0 before CONNECT
    is_bridge        a bridge of mosquitto with MQTT 3.1 or 3.1.1, whose subscriptions have No Local and Retain As Published
    maximum_packet_size, receive_maximum  of the client; maximum_packet_size is 0 for no limit
    aliases          of the PUBLISH packets to the client, None for none
    out              packets of this turn, taken by Connection.take_output; out_size is their bytes
    dirty            the connection is in Context.dirty
    writable         False while the transport has more than write_buffer_high bytes unsent
    stalled_bytes    bytes that were written while the transport was not writable
    output_held      the connection is held because the client does not take the answers to what it sends
    acks_waiting     acknowledgements that wait for a commit (Commits)
    acks_promised    how many of them wait for a promise, too
    acks_held        the connection is held because of the number of acks_waiting
    remote_addr      of the client; the one that a PROXY header names, where a listener takes such headers
    listener, certificate_name  as in AuthenticationRequest; the shell sets them before the first input
    messages_received  number of PUBLISH packets of the client
    rate_limit       of the client's messages and bytes; None for none
    claims_until     the client waits for other nodes, no longer than this; 0.0 before it does
    expires_at       monotonic seconds when the client's credentials expire, NEVER for never
    access           what the client's credentials say about topics, None for nothing
    allowed_topic    the client may publish to this topic by the rules of allowed_number (Authorization.number); the object is
                     that of a route
    bridge_end       the other end, where that is another broker; None for ordinary clients
    close_text       why the connection ended, "" while it is open
    """

    def __init__(self, context: Context, owner: object, remote_addr: str, local_addr: str, now: float) -> None:
        super().__init__(owner)
        self.context = context
        self.phase = WAITING_FOR_CONNECT
        self.answer: Work | None = None
        self.authentication_method = ""
        self.reauthentication: Work | None = None
        self.writable = True
        self.dirty = False
        self.output_held = False
        self.version = 0
        self.is_bridge = False
        self.maximum_packet_size = 0
        self.aliases: SentAliases | None = None
        self.out: list[bytes] = []
        self.out_size = 0
        self.packets_sent = 0
        self.sent_bytes = 0
        self.stalled_bytes = 0
        self.acks_waiting = 0
        self.acks_promised = 0
        self.acks_held = False
        self.packets_received = 0
        self.received_bytes = 0
        self.messages_received = 0
        self.rate_limit: RateLimit | None = None
        self.client_id = ""
        self.username = ""
        self.access: tuple[TopicAccess, ...] | None = None
        self.allowed_topic = b""
        self.allowed_number = -1
        self.keep_alive = 0
        self.receive_maximum = RECEIVE_MAXIMUM_DEFAULT
        self.request_problem_information = True
        self.will: Will | None = None
        self.will_record = 0
        self.remote_addr = remote_addr
        self.local_addr = local_addr
        self.listener = NO_LISTENER
        self.certificate_name = ""
        self.opened_at = now
        self.claims_until = 0.0
        self.expires_at = NEVER
        self.bridge_end: BridgeEnd | None = None
        self.close_text = ""

    @property
    def closed(self) -> bool:
        return self.phase is CLOSED

    def can_write(self) -> bool:
        """Return whether a message may be written now: the transport and `out` have room."""
        return self.writable and self.out_size < self.context.write_buffer_high

    def takes(self, packet_size: int) -> bool:
        """Return whether a packet is within the client's Maximum Packet Size [MQTT-3.1.2-24]."""
        return self.maximum_packet_size == 0 or packet_size <= self.maximum_packet_size

    def count_publishes(self, count: int) -> None:
        """Count PUBLISH packets that came in."""
        self.packets_received += count
        self.messages_received += count
        self.context.counters.packets_received += count

    def count_packet(self, packet_type: int, size: int) -> None:
        """Count one packet that came in, by its type."""
        if packet_type == PUBLISH:
            self.count_publishes(1)
        else:
            counters = self.context.counters
            self.packets_received += 1
            counters.packets_received += 1
            if packet_type == PUBACK and size == SHORT_PUBACK_BYTES:
                counters.short_pubacks_received += 1
            else:
                counters.count_answer_received(packet_type, size)

    def write_packets(self, data: bytes, count: int) -> None:
        """Add `count` whole packets to the output of this turn, which is sent in one write."""
        self.out.append(data)
        self.out_size += len(data)
        self.packets_sent += count
        self.context.counters.packets_sent += count
        if not self.dirty:
            self.dirty = True
            self.context.dirty.append(self)

    def write_answer(self, data: bytes) -> None:
        """Write one packet that is no PUBLISH. An empty one is a packet that the client does not take."""
        if data:
            self._count_answer(data)
            self.write_packets(data, 1)

    def write_pubacks(self, data: bytes) -> None:
        """Write PUBACK packets of four bytes."""
        count = len(data) // SHORT_PUBACK_BYTES
        self.context.counters.short_pubacks_sent += count
        self.write_packets(data, count)

    def write_answers(self, answers: list[bytes]) -> None:
        """Write packets. The router has counted those that are PUBLISH."""
        for answer in answers:
            if answer[0] >> 4 != PUBLISH:
                self._count_answer(answer)
        self.write_packets(b"".join(answers), len(answers))

    def _count_answer(self, data: bytes) -> None:
        counters = self.context.counters
        if data[0] == PUBACK << 4 and len(data) == SHORT_PUBACK_BYTES:
            counters.short_pubacks_sent += 1
        else:
            counters.count_answer_sent(data[0] >> 4, len(data))

    def call_again(self) -> None:
        """Have the shell take output once more, even if there is none yet."""
        if not self.dirty:
            self.dirty = True
            self.context.dirty.append(self)

    def close(self, text: str) -> None:
        """Take no more input. The shell writes the rest of the output and closes the socket."""
        self.phase = CLOSED
        self.close_text = text
        self.context.timers.cancel(self)
        if self.rate_limit is not None:
            self.context.timers.cancel(self.rate_limit)
        self.call_again()
