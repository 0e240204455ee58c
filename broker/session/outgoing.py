"""One message to one client, from the queue to its last acknowledgement, and its PUBLISH packet."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.writer import encode_publish, publish_parts
from broker.message import NEVER, Message
from broker.routing.group_copy import GroupCopy
from broker.session.output import Output

QUEUED: Final = 0
AWAIT_PUBACK: Final = 1
AWAIT_PUBREC: Final = 2
AWAIT_PUBCOMP: Final = 3

EXPIRY_MAX: Final = 0xFFFFFFFF  # a Message Expiry Interval has four bytes

# The two bytes of every packet identifier, instead of int.to_bytes for each message. They take about 2.8 MB.
PACKET_ID_BYTES: Final[list[bytes]] = [i.to_bytes(2, "big") for i in range(65536)]


class Outgoing:
    """message      None after PUBREC: PUBREL and PUBCOMP remain
    qos          of the delivery, as `retain`
    identifiers  subscription identifiers to send (MQTT 5)
    expires_at   monotonic seconds: the message's own expiry, or message_expiry after it was queued if that is earlier
    packet_id    0 before it is sent
    sent_at      monotonic seconds, when it was last sent; while it is QUEUED, when it was queued
    state        QUEUED, then the packet that the client has to answer with
    number       the place in the queue, while it is queued (MessageQueue)
    record       number of its record in the store, 0 for none
    session_record  number of the session's record; of no meaning without `record`
    copy         of the shared group whose member the client is, None for an ordinary subscription and for QoS 0
    """

    __slots__ = (
        "copy",
        "expires_at",
        "identifiers",
        "message",
        "number",
        "packet_id",
        "qos",
        "record",
        "retain",
        "sent_at",
        "session_record",
        "state",
    )

    def __init__(
        self,
        message: Message | None,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        expires_at: float = NEVER,
        copy: GroupCopy | None = None,
    ) -> None:
        self.message = message
        self.copy = copy
        self.expires_at = expires_at
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.packet_id = 0
        self.sent_at = 0.0
        self.state = QUEUED
        self.number = 0
        self.record = 0
        self.session_record = 0

    def end_copy(self) -> None:
        """The client has it, or does not get it any more."""
        copy = self.copy
        if copy is not None:
            self.copy = None
            copy.end()


def expiry_in_queue(message: Message, seconds_max: float, now: float) -> float:
    """Return when a message that is queued now expires there. `seconds_max`: longest time that it may wait, 0 or less
    for no limit."""
    return min(message.expires_at, now + seconds_max) if seconds_max > 0 else message.expires_at


def encode_to(
    output: Output,
    message: Message,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    identifiers: tuple[int, ...],
    now: float,
) -> bytes:
    """The PUBLISH for one connection, which has to be sent next; b"" when it is above the client's Maximum Packet Size, or
    above what MQTT can say. The
    first one with a topic alias has the topic as well."""
    aliases = output.aliases
    if aliases is not None:
        topic = message.topic
        alias = aliases.find(topic)
        known = alias > 0
        if not known:
            alias = aliases.next_alias(topic)
        sent_topic = b"" if known else topic
        expiry = _remaining_expiry(message, now)
        data = encode_publish(
            5, sent_topic, message.payload, qos, retain, dup, packet_id, message.properties, expiry, alias, identifiers
        )
        if data and output.takes(len(data)):
            if alias and not known:
                aliases.give(topic)
            return data
        if known or not alias:
            return b""
    return encode_unaliased(output, message, qos, retain, dup, packet_id, identifiers, now)


def encode_unaliased(
    output: Output,
    message: Message,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    identifiers: tuple[int, ...],
    now: float,
) -> bytes:
    """As encode_to, without a topic alias, so that other messages may be sent before this one."""
    end = output.bridge_end
    carried = b"" if end is None or output.version < 5 else end.carried(message)
    if carried:
        data = encode_carried(message, carried, qos, retain, dup, packet_id, identifiers, now)
    else:
        data = encode_for(message, output.version, qos, retain, dup, packet_id, identifiers, now)
    return data if output.takes(len(data)) else b""


def encode_carried(
    message: Message,
    carried: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    identifiers: tuple[int, ...],
    now: float,
) -> bytes:
    """The PUBLISH for another broker, with the origin of the message."""
    properties = message.properties + carried
    if identifiers or message.expires_at != NEVER:
        expiry = _remaining_expiry(message, now)
        return encode_publish(
            5, message.topic, message.payload, qos, retain, dup, packet_id, properties, expiry, 0, identifiers
        )
    return _encode_shared(message, 5, 80, qos, retain, dup, packet_id, properties)


def encode_for(
    message: Message,
    version: int,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    identifiers: tuple[int, ...],
    now: float,
) -> bytes:
    """The PUBLISH for one receiver. The message keeps the encodings that receivers can share, one for each shape."""
    if version == 5 and (identifiers or message.expires_at != NEVER):
        expiry = _remaining_expiry(message, now)
        return encode_publish(
            5, message.topic, message.payload, qos, retain, dup, packet_id, message.properties, expiry, 0, identifiers
        )
    if qos == 1 and message.head_version == (4 if version < 5 else 5) and not dup and not retain:
        return message.head + PACKET_ID_BYTES[packet_id] + message.tail
    kind = 16 if version == 5 else 0
    return _encode_shared(message, version, kind, qos, retain, dup, packet_id, message.properties)


def _encode_shared(
    message: Message, version: int, kind: int, qos: int, retain: bool, dup: bool, packet_id: int, properties: bytes
) -> bytes:
    """The PUBLISH that receivers of one shape share but for its packet identifier. `kind` is part of the shape: version and
    header."""
    shape = kind | (8 if dup else 0) | qos << 1 | (1 if retain else 0)
    cache = message.encoded
    if cache is None:
        cache = message.encoded = {}
    head = cache.get(shape)
    if head is None:
        if qos == 0:
            head = encode_publish(version, message.topic, message.payload, 0, retain, False, 0, properties, -1, 0, ())
        else:
            head, cache[shape | 32] = publish_parts(
                version, message.topic, message.payload, qos, retain, dup, properties
            )
        cache[shape] = head
    return head if qos == 0 or not head else head + PACKET_ID_BYTES[packet_id] + cache[shape | 32]


def _remaining_expiry(message: Message, now: float) -> int:
    """Message Expiry Interval in seconds, -1 for none. The whole seconds that the message waited here are subtracted
    [MQTT-3.3.2-6]; .999 covers the error of floats. `now` can be older than the message when it is the time of the last
    packet from a client: hence EXPIRY_MAX."""
    if message.expires_at == NEVER:
        return -1
    return min(EXPIRY_MAX, max(0, int(message.expires_at - now + 0.999)))
