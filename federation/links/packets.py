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
from broker.codec.reason_codes import QUOTA_EXCEEDED
from broker.codec.wire import encode_varint
from broker.codec.writer import encode_ack
from broker.errors import MalformedPacket

LENGTH_UNKNOWN: Final = -1
NAMES_MAX: Final = 10_000  # topics whose other name is remembered; a full memory is cleared
NAME_BYTES_MAX: Final = 1024  # longer topics are not remembered, which bounds the bytes of the memory
PUBACK_SIZE: Final = 4  # bytes of a PUBACK without a reason code


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


@mypyc_attr(allow_interpreted_subclasses=True)
class Passage:
    """One direction of a link: each packet from PUBLISH to PUBCOMP is found once, is counted, and passes as it came.

    packets    number of those that were found
    published  PUBLISH packets that pass
    dropped    PUBLISH packets that do not
    refused    acknowledgements that are refusals, by reason code
    has_room   the other end has not refused a message for now (0x97). Such an answer does not pass: the message stays
    """

    def __init__(self, changes: bool = False) -> None:
        """`changes`: `changed` is asked about each PUBLISH."""
        self.packets = 0
        self.published = 0
        self.dropped = 0
        self.refused: dict[int, int] = {}
        self.has_room = True
        self._changes = changes
        self._parts: list[bytes] = []
        self._acks: list[bytes] = []

    def walk(self, data: bytes, pos: int, size: int) -> int:
        """Take the whole packets that follow each other from `pos` on. Returns the position behind them; `pos` without one.
        Raises MalformedPacket."""
        kept_from = pos
        while pos < size:
            first = data[pos]
            kind = first >> 4
            if kind < PUBLISH or kind > PUBCOMP:
                break
            end = packet_end(data, pos, size)
            if end == LENGTH_UNKNOWN or end > size:
                break
            self.packets += 1
            if kind == PUBLISH:
                self.published += 1
                changed = self.changed(data, pos, end) if self._changes else None
                if changed is not None:
                    if pos > kept_from:
                        self._parts.append(data[kept_from:pos])
                    self._parts.append(changed)
                    kept_from = end
            elif first == PUBACK << 4 and end - pos > PUBACK_SIZE:
                code_at = _body(data, pos) + 2
                code = data[code_at] if code_at < end else 0
                if code == QUOTA_EXCEEDED:
                    self.has_room = False
                    if pos > kept_from:
                        self._parts.append(data[kept_from:pos])
                    kept_from = end
                elif code >= 0x80:
                    self.refused[code] = self.refused.get(code, 0) + 1
            pos = end
        if pos > kept_from:
            self._parts.append(data if pos - kept_from == size else data[kept_from:pos])
        return pos

    def take(self) -> bytes:
        """The packets for the other side since the last call."""
        return _taken(self._parts)

    def take_acks(self) -> bytes:
        """Acknowledgements of dropped messages, for the side that they came from."""
        return _taken(self._acks)

    def drop(self, ack: bytes) -> bytes:
        """A PUBLISH does not pass: what `changed` returns then."""
        self.published -= 1
        self.dropped += 1
        if ack:
            self._acks.append(ack)
        return b""

    def changed(self, data: bytes, pos: int, end: int) -> bytes | None:
        """The packet that stands for this PUBLISH; None for itself."""
        return None


def _body(data: bytes, pos: int) -> int:
    """Position behind the fixed header of a whole packet."""
    body = pos + 2
    while data[body - 1] >= 128:
        body += 1
    return body


def _taken(parts: list[bytes]) -> bytes:
    if not parts:
        return b""
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    parts.clear()
    return data


@mypyc_attr(allow_interpreted_subclasses=True)
class TopicRule:
    """A rule for the topics of messages."""

    def other_name(self, topic: bytes) -> bytes | None:
        """The name on the other side; None for a message that does not cross the link."""
        raise AssertionError("a subclass implements this")


class Rewriter(Passage):
    """Messages get another topic, or do not cross the link."""

    def __init__(self, rule: TopicRule, bytes_max: int) -> None:
        """`bytes_max`: the largest packet that the other side takes, 0 for no limit. It ends the connection for larger ones."""
        super().__init__(True)
        self._rule = rule
        self._bytes_max = bytes_max
        self._names: dict[bytes, bytes | None] = {}

    def changed(self, data: bytes, pos: int, end: int) -> bytes | None:
        first = data[pos]
        body = _body(data, pos)
        topic_end = end + 1 if body + 2 > end else body + 2 + (data[body] << 8 | data[body + 1])
        block = topic_end + 2 if first & 6 else topic_end
        if block > end or data[topic_end:block] == b"\0\0":  # whoever gets this packet refuses it
            return None
        topic = data[body + 2 : topic_end]
        name = self._name(topic)
        if name == topic:
            return None
        if name is not None:
            remaining = 2 + len(name) + end - topic_end
            encoded = encode_varint(remaining)
            is_longer = len(name) > len(topic)
            if not (is_longer and 0 < self._bytes_max < 1 + len(encoded) + remaining):
                return data[pos : pos + 1] + encoded + len(name).to_bytes(2, "big") + name + data[topic_end:end]
        return self.drop(encode_ack(PUBACK, data[topic_end] << 8 | data[topic_end + 1]) if first & 6 else b"")

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
