"""What was decided for the last message of a publisher holds for the next one of the same form.

A device sends one message at a time, to one topic. At 1,000 a second the caches have gone cold between two of them, and a
message costs 30 ns for each cache line that it touches, of code and of data: so the next one is compared with the last one
and goes where that went, without being taken apart. (docs/decisions/0007)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.route import Route

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
        return data[start + body : start + self.payload_from] == self._head


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
