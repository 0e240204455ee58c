"""The packets of messages in a stream of bytes, found without decoding them, and their topics on the other side of a link.

A link passes PUBLISH and its acknowledgements from one of its two connections to the other as they came. Both connections
have one protocol version, and the link's own packets never carry their packet identifiers. Only links with a topic mapping, or
with policies that share topics with those of others, change topics.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from broker.codec.packets import PUBACK, PUBCOMP, PUBLISH
from broker.codec.wire import encode_varint
from broker.codec.writer import encode_ack
from broker.errors import MalformedPacket

LENGTH_UNKNOWN: Final = -1


def packet_end(data: bytes, pos: int, size: int) -> int:
    """Position behind the packet at `pos`, which may be above `size`; LENGTH_UNKNOWN while its length has not come. Raises
    MalformedPacket."""
    at = pos + 1
    remaining = 0
    shift = 0
    while at < size:
        byte = data[at]
        at += 1
        remaining |= (byte & 127) << shift
        if byte < 128:
            return at + remaining
        shift += 7
        if shift > 21:
            raise MalformedPacket("remaining length of more than four bytes [MQTT5 2.1.4]")
    return LENGTH_UNKNOWN


def flow_end(data: bytes, pos: int, size: int) -> int:
    """Position behind the whole packets from PUBLISH to PUBCOMP that follow each other from `pos` on; `pos` without one."""
    while pos < size:
        kind = data[pos] >> 4
        if kind < PUBLISH or kind > PUBCOMP:
            return pos
        end = packet_end(data, pos, size)
        if end == LENGTH_UNKNOWN or end > size:
            return pos
        pos = end
    return pos


NAMES_MAX: Final = 10_000  # topics whose other name is remembered; a full memory is cleared
NAME_BYTES_MAX: Final = 1024  # longer topics are not remembered, which bounds the bytes of the memory


@mypyc_attr(allow_interpreted_subclasses=True)
class TopicRule:
    """What becomes of a topic."""

    def other_name(self, topic: bytes) -> bytes | None:
        """The name on the other side; None for a message that does not cross the link."""
        raise AssertionError("a subclass implements this")


class Rewriter:
    """dropped  messages that the rule did not let cross"""

    def __init__(self, rule: TopicRule, bytes_max: int) -> None:
        """`bytes_max`: the largest packet that the other side takes, 0 for no limit. It ends the connection for larger ones."""
        self.dropped = 0
        self._rule = rule
        self._bytes_max = bytes_max
        self._names: dict[bytes, bytes | None] = {}

    def rewrite(self, flow: bytes) -> tuple[bytes, bytes]:
        """(the packets for the other side, acknowledgements of dropped messages for this side) of whole packets from PUBLISH
        to PUBCOMP."""
        size = len(flow)
        parts: list[bytes] = []
        acks: list[bytes] = []
        kept_from = 0
        pos = 0
        while pos < size:
            end = packet_end(flow, pos, size)
            first = flow[pos]
            if first >> 4 != PUBLISH:
                pos = end
                continue
            body = pos + 2
            while flow[body - 1] >= 128:
                body += 1
            topic_end = end + 1 if body + 2 > end else body + 2 + (flow[body] << 8 | flow[body + 1])
            block = topic_end + 2 if first & 6 else topic_end
            if block > end or flow[topic_end:block] == b"\0\0":  # whoever gets this packet refuses it
                pos = end
                continue
            topic = flow[body + 2 : topic_end]
            name = self._name(topic)
            if name is not None and len(name) > len(topic) and self._is_too_large(2 + len(name) + end - topic_end):
                name = None
            if name is None:
                self.dropped += 1
            if name != topic:
                parts.append(flow[kept_from:pos])
                kept_from = end
                if name is not None:
                    remaining = encode_varint(2 + len(name) + end - topic_end)
                    parts.append(flow[pos : pos + 1] + remaining + len(name).to_bytes(2, "big") + name)
                    kept_from = topic_end
                elif first & 6:
                    acks.append(encode_ack(PUBACK, flow[topic_end] << 8 | flow[topic_end + 1]))
            pos = end
        if not parts:
            return flow, b""
        parts.append(flow[kept_from:])
        return b"".join(parts), b"".join(acks)

    def _is_too_large(self, remaining: int) -> bool:
        """Whether a packet of this remaining length is larger than the other side takes."""
        return 0 < self._bytes_max < 1 + len(encode_varint(remaining)) + remaining

    def _name(self, topic: bytes) -> bytes | None:
        if len(topic) > NAME_BYTES_MAX:
            return self._rule.other_name(topic)
        names = self._names
        if topic in names:
            return names[topic]
        if len(names) >= NAMES_MAX:
            names.clear()
        name = names[topic] = self._rule.other_name(topic)
        return name
