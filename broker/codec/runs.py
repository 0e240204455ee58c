"""Runs: contiguous PUBLISH packets with one topic, the same properties and one length, handled as one.

Most packets of a broker are PUBLISH with QoS 0 or 1, without DUP, RETAIN and properties other than a few User Properties.
`bare_payload_at` recognizes them without decoding, for client connections and for the event streams of other nodes.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.properties import are_user_properties
from broker.codec.writer import encode_publish
from broker.errors import ProtocolViolation
from broker.message import NEVER, Message, Publication

RUN_MAX: Final = 256  # packets of one run; publishers are held between two runs
PUBLISH_QOS0: Final = 0x30  # first byte, without DUP and RETAIN
PUBLISH_QOS1: Final = 0x32
NO_PACKET_ID: Final = "PUBLISH with packet identifier 0 [MQTT-2.2.1-3]"


def bare_payload_at(data: bytes, first: int, body: int, end: int, version: int, known: bytes = b"") -> int:
    """Offset of the payload of a PUBLISH with QoS 0 or 1, without DUP and RETAIN, and without properties or with at most 127
    bytes of User Properties; -1 for any other packet.

    data[body:end] is the packet after its Remaining Length; less than 5 bytes give -1. The topic is not checked. `known` are
    the properties of such a packet before: many clients repeat them, and comparing costs a fifth of checking them.
    """
    if first not in (PUBLISH_QOS0, PUBLISH_QOS1) or end - body < 5:
        return -1
    topic_size = data[body] << 8 | data[body + 1]
    payload_at = body + 2 + topic_size + (first & 2)
    if version == 5:
        payload_at += 1
        if payload_at > end:
            return -1
        size = data[payload_at - 1]
        if size:
            start = payload_at
            payload_at += size
            if size > 127 or payload_at > end:
                return -1
            if data[start:payload_at] != known and not are_user_properties(data, start, payload_at):
                return -1
    if topic_size == 0 or payload_at > end:
        return -1
    return payload_at


def bare_message(
    data: bytes, start: int, body: int, end: int, payload_at: int, version: int, client_id: str
) -> Message:
    """The message of the QoS 1 PUBLISH data[start:end], which `bare_payload_at` recognizes. Receivers of its protocol version
    get it as it came, with a packet identifier of theirs. Raises ProtocolViolation for packet identifier 0."""
    topic_end = body + 2 + (data[body] << 8 | data[body + 1])
    if data[topic_end] | data[topic_end + 1] == 0:
        raise ProtocolViolation(NO_PACKET_ID)
    properties = b""
    if payload_at > topic_end + 3:  # after the length, which has one byte
        properties = data[topic_end + 3 : payload_at]
    message = Message(data[body + 2 : topic_end], data[payload_at:end], 1, False, properties, NEVER, client_id)
    message.head = data[start:topic_end]
    message.tail = message.payload if version < 5 else data[topic_end + 2 : end]
    message.head_version = 4 if version < 5 else 5
    return message


def bare_run(
    data: bytes, start: int, body: int, end: int, payload_at: int, version: int, client_id: str, size: int
) -> Run:
    """The PUBLISH data[start:end], which `bare_payload_at` recognizes, and those that follow it in data[end:size] with the same
    topic, properties and length. Raises ProtocolViolation for packet identifier 0 of the first one."""
    topic_end = body + 2 + (data[body] << 8 | data[body + 1])
    id_at = topic_end if data[start] == PUBLISH_QOS1 else 0
    if id_at and data[id_at] | data[id_at + 1] == 0:
        raise ProtocolViolation(NO_PACKET_ID)
    run = Run(data[body + 2 : topic_end], data, start, end, payload_at, version, client_id, size, id_at)
    properties_at = topic_end + (3 if id_at else 1)  # after the length, which has one byte
    if payload_at > properties_at:
        run.properties = data[properties_at:payload_at]
    return run


class Run(Publication):
    """`count` contiguous PUBLISH packets with QoS 0 or 1, without DUP and RETAIN, up to data[stop]. Only other nodes get one of
    QoS 1 as it is (`Route.is_passed_on`); receivers get its messages one by one.

    packet_size  bytes of each packet
    version      4 (also for MQTT 3.1 and 3.1.1, whose PUBLISH is the same) or 5
    """

    __slots__ = (
        "_data",
        "_head",
        "_head_size",
        "_id_at",
        "_messages",
        "_other",
        "_own",
        "_start",
        "packet_size",
        "stop",
        "version",
    )

    def __init__(
        self,
        topic: bytes,
        data: bytes,
        start: int,
        end: int,
        payload_at: int,
        version: int,
        client_id: str,
        size: int,
        id_at: int = 0,
    ) -> None:
        """The packet data[start:end] and the whole packets with its topic, properties and length that follow in data[end:size],
        at most RUN_MAX together. `payload_at` is the offset of the first payload, `id_at` that of the first packet identifier,
        0 for QoS 0."""
        packet_size = end - start
        count = 1
        stop = end
        limit = min(size, start + packet_size * RUN_MAX)
        if stop + packet_size <= limit:
            head = data[start : id_at or payload_at]
            head_size = len(head)
            rest = data[id_at + 2 : payload_at] if id_at else b""  # properties of MQTT 5
            at = stop + id_at - start
            # A slice that is compared takes 15 ns, data.startswith(head, stop) 66: a quarter of what QoS 0 costs in all.
            while stop + packet_size <= limit and data[stop : stop + head_size] == head:
                if id_at and (data[at] | data[at + 1] == 0 or (rest and data[at + 2 : at + 2 + len(rest)] != rest)):
                    break
                at += packet_size
                stop += packet_size
                count += 1
        super().__init__(topic, 1 if id_at else 0, False, b"", client_id, None, count)
        self.stop = stop
        self.packet_size = packet_size
        self.version = version
        self._data = data
        self._start = start
        self._id_at = id_at
        self._head = b""  # of QoS 1, up to the packet identifier
        self._head_size = payload_at - start
        self._own = b""
        self._other = b""
        self._messages: list[Message] | None = None

    @property
    def payload_size(self) -> int:
        """Bytes of each payload."""
        return self.packet_size - self._head_size

    def pubacks(self) -> bytes:
        """A PUBACK of four bytes for each packet of QoS 1, in order: without a reason code [MQTT5 3.4.2.1]."""
        data = self._data
        answers = bytearray(b"\x40\x02\0\0" * self.count)
        answers[2::4] = data[self._id_at : self.stop : self.packet_size]
        answers[3::4] = data[self._id_at + 1 : self.stop : self.packet_size]
        return bytes(answers)

    def encoded(self, version: int) -> bytes:
        """The packets for a receiver of this protocol version: as received, or encoded once for the other form, without packet
        identifiers of their own."""
        if (version < 5) == (self.version < 5):
            if not self._own:
                data = self._data
                self._own = data if self.stop - self._start == len(data) else data[self._start : self.stop]
            return self._own
        if not self._other:
            self._other = b"".join(
                [
                    encode_publish(version, self.topic, message.payload, self.qos, False, False, self.qos, b"")
                    for message in self.messages()
                ]
            )
        return self._other

    def aliased(self, alias: int) -> bytes:
        """The packets with a topic alias that the receiver knows, without the topic."""
        return b"".join(
            [
                encode_publish(5, b"", message.payload, 0, False, False, 0, self.properties, -1, alias)
                for message in self.messages()
            ]
        )

    def messages(self) -> list[Message]:
        """One message for each packet, for receivers that queue them."""
        messages = self._messages
        if messages is None:
            messages = self._messages = []
            at = self._start
            while at < self.stop:
                messages.append(self.message(at))
                at += self.packet_size
        return messages

    def message(self, at: int) -> Message:
        """The message of the packet that begins at data[at]. Receivers of its protocol version get one of QoS 1 as it came,
        with a packet identifier of theirs."""
        data = self._data
        payload = data[at + self._head_size : at + self.packet_size]
        message = Message(self.topic, payload, self.qos, False, self.properties, NEVER, self.client_id, self.origin)
        if self._id_at:
            id_at = self._id_at - self._start
            if not self._head:
                self._head = data[at : at + id_at]
            message.head = self._head
            message.tail = payload if self.version < 5 else data[at + id_at + 2 : at + self.packet_size]
            message.head_version = 4 if self.version < 5 else 5
        return message
