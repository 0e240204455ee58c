"""What was decided for the last message of a publisher holds for the next one of the same form.

A device sends one message at a time, to one topic. At 1,000 a second the caches have gone cold between two of them, and a
message costs 30 ns for each cache line that it touches, of code and of data: so the next one is compared with the last one
and goes where that went, without being taken apart. First everything is written, then everything is written down: the
receivers wake up meanwhile. (docs/decisions/0007)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import read_i64_be

if TYPE_CHECKING:
    from broker.counters import Counters
    from broker.routing.route import Route

PUBLISH_QOS0: Final = 0x30  # without DUP and RETAIN
ONE_BYTE_MAX: Final = 127  # remaining length in one byte [MQTT-2.1.4]
TWO_BYTES_MAX: Final = 16_383  # or in two: longer packets are nobody's lone message


class Flow:
    """PUBLISH packets of QoS 0 to one topic, without flags and properties, of any payload that leaves the number of bytes
    of their remaining length.

    route         where they go; it must be `plain`
    generation    of the router's subscriptions when it was made: after a change the topic is looked up again
    version       4 (of MQTT 3.1 and 3.1.1 too) or 5
    payload_from  offset of the payload from the packet's start
    """

    __slots__ = ("_body", "_head", "generation", "payload_from", "route", "version")

    def __init__(self, route: Route, generation: int, version: int, head: bytes, body: int) -> None:
        self.route = route
        self.generation = generation
        self.version = version
        self.payload_from = body + len(head)
        self._head = head  # topic length, topic, and for MQTT 5 the empty properties
        self._body = body  # offset behind the remaining length

    def fits(self, data: bytes, start: int, generation: int) -> bool:
        """Whether data[start:] is exactly one more packet of it, and nothing has changed since."""
        body = self._body
        size = len(data) - start
        if size < self.payload_from or generation != self.generation or data[start] != PUBLISH_QOS0:
            return False
        if body == 2:
            if data[start + 1] + 2 != size or size > ONE_BYTE_MAX + 2:
                return False
        elif (
            data[start + 1] < 128 or data[start + 2] == 0 or data[start + 1] - 128 + (data[start + 2] << 7) + 3 != size
        ):
            return False
        return _is_at(self._head, data, start + body)

    def leave(self, packet: bytes) -> bool:
        """Write a packet that fits to all whom it is for. False, and nothing done, where anything must come first or it is
        not that simple; after True, call `note`."""
        route = self.route
        for peer in route.peers:
            if not peer.is_clear():
                return False
        if route.receivers and not self.leave_here(packet):
            return False
        for peer in route.peers:
            peer.write_alone(packet, self.version)
        return True

    def leave_here(self, packet: bytes) -> bool:
        """As leave, to the only receiver on this node."""
        receivers = self.route.receivers
        if len(receivers) != 1:
            return False
        session = receivers[0].session
        connection = session.connection
        return (
            connection is not None
            and not session.is_waiting()
            and (connection.version < 5) == (self.version < 5)
            and (connection.maximum_packet_size == 0 or len(packet) <= connection.maximum_packet_size)
            and connection.write_alone(packet)
        )

    def note(self, packet: bytes, counters: Counters, now: float) -> bool:
        """After leave. True when the end of the turn has nothing to do for it."""
        route = self.route
        counters.qos0_received += 1
        if route.receivers:
            counters.qos0_sent += 1
        is_done = True
        for peer in route.peers:
            counters.messages_to_peers += 1
            if not peer.note_alone(packet, self.version, now):
                is_done = False
        return is_done


def _is_at(part: bytes, data: bytes, start: int) -> bool:
    """Whether data[start:], which is no shorter, begins with `part`. Nothing is cut out: that would be 25 cache lines more."""
    size = len(part)
    at = 0
    while at + 8 <= size:
        if read_i64_be(part, at) != read_i64_be(data, start + at):
            return False
        at += 8
    while at < size:
        if part[at] != data[start + at]:
            return False
        at += 1
    return True


def make_flow(route: Route, generation: int, version: int, data: bytes, start: int, payload_at: int) -> Flow | None:
    """Of data[start:], one packet as in Flow that went to `route`; None where it is too long."""
    remaining = len(data) - start - 2
    body = 2
    if remaining > ONE_BYTE_MAX:
        remaining -= 1
        body = 3
        if remaining > TWO_BYTES_MAX:
            return None
    return Flow(route, generation, version, data[start + body : payload_at], body)
