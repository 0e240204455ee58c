"""A client's network connection as the rest of the broker sees it: what CONNECT said, and what is to be written.

`Connection` adds the input. Sessions and the broker need no more than this.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from broker.codec.packets import Will
from broker.context import Context
from broker.publisher import Publisher
from broker.slices import Work

RECEIVE_MAXIMUM_DEFAULT: Final = 65535  # [MQTT5 3.1.2.11.3]


class Phase(Enum):
    """Of a connection. Input waits, in order, while CONNECT or another packet is being answered.

    CONNECTED comes after CONNACK, CLOSED when either side has ended the connection.
    """

    WAITING_FOR_CONNECT = "waiting for CONNECT"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    ANSWERING = "answering"
    CLOSED = "closed"


# Compiled, a module's constant is at hand; a member of the class would be looked up by name.
WAITING_FOR_CONNECT: Final = Phase.WAITING_FOR_CONNECT
CONNECTING: Final = Phase.CONNECTING
CONNECTED: Final = Phase.CONNECTED
ANSWERING: Final = Phase.ANSWERING
CLOSED: Final = Phase.CLOSED


class Output(Publisher):
    """owner            the shell's handle, opaque here
    client_id        as the client sent it, then as it was accepted; "" before CONNECT
    version          3, 4 or 5; 0 before CONNECT
    out              output of this turn, taken by Connection.take_output
    held             as of Publisher (the shell pauses reading while > 0)
    answer           to a packet that takes more than a slice; the input behind it waits (ANSWERING)
    output_held      one of `held` is this client's own: it sends, but does not take what it is answered
    writable         False while the transport has more than write_buffer_high bytes unsent
    stalled_bytes    written since the transport said that it is full
    acks_waiting     acknowledgements that wait for a commit (Commits); acks_held: one of `held` is for their number
    """

    def __init__(self, context: Context, owner: object, remote_addr: str, local_addr: str, now: float) -> None:
        super().__init__(owner)
        self.context = context
        self.phase = WAITING_FOR_CONNECT
        self.answer: Work | None = None
        self.writable = True
        self.dirty = False
        self.output_held = False
        self.version = 0
        self.maximum_packet_size = 0  # the client's; 0 is none
        self.out: list[bytes] = []
        self.out_size = 0
        self.packets_sent = 0
        self.sent_bytes = 0
        self.stalled_bytes = 0
        self.acks_waiting = 0
        self.acks_held = False
        self.packets_received = 0
        self.received_bytes = 0
        self.client_id = ""
        self.username = ""
        self.keep_alive = 0
        self.receive_maximum = RECEIVE_MAXIMUM_DEFAULT  # the client's
        self.request_problem_information = True
        self.will: Will | None = None
        self.remote_addr = remote_addr
        self.local_addr = local_addr
        self.opened_at = now
        self.close_text = ""

    @property
    def closed(self) -> bool:
        return self.phase is CLOSED

    def can_write(self) -> bool:
        """Whether a message may be written now: the client takes what it is sent."""
        return self.writable and self.out_size < self.context.write_buffer_high

    def takes(self, packet_size: int) -> bool:
        """Whether a packet is within the client's Maximum Packet Size [MQTT-3.1.2-24]."""
        return self.maximum_packet_size == 0 or packet_size <= self.maximum_packet_size

    def write_packets(self, data: bytes, count: int) -> None:
        """`count` whole packets; they leave with the rest of this turn in one write."""
        self.out.append(data)
        self.out_size += len(data)
        self.packets_sent += count
        if not self.dirty:
            self.dirty = True
            self.context.dirty.append(self)

    def call_again(self) -> None:
        """To be asked for output in the next round, also when there is none yet."""
        if not self.dirty:
            self.dirty = True
            self.context.dirty.append(self)

    def close(self, text: str) -> None:
        """No more input; the shell writes what is left and closes the socket."""
        self.phase = CLOSED
        self.close_text = text
        self.context.timers.cancel(self)
        self.call_again()
