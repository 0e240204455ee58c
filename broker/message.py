"""The application message that the router carries, independent of any connection."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.origin import Origin

NEVER: Final = float("inf")
# Counted for each queued message beside its own bytes, so that empty messages are bounded too.
ENTRY_BYTES: Final = 256


class Publication:
    """One message, or a run of messages that differ in their payloads only (broker/codec/runs.py).

    topic       UTF-8 topic name, never an alias
    qos, retain as published
    properties  encoded properties that a server must forward unaltered [MQTT-3.3.2-15/17/18/20] (payload format, content
                type, response topic, correlation data, user properties), in order, without length field; b"" for none
    client_id   of the publisher, for No Local; "" for messages of the server, of the API and of other nodes
    origin      where it comes from, None for a message of a client of this domain
    count       number of messages
    """

    __slots__ = ("client_id", "count", "origin", "properties", "qos", "retain", "topic")

    def __init__(
        self, topic: bytes, qos: int, retain: bool, properties: bytes, client_id: str, origin: Origin | None, count: int
    ) -> None:
        self.topic = topic
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.client_id = client_id
        self.origin = origin
        self.count = count


class Message(Publication):
    """One published message.

    expires_at  monotonic seconds of its expiry; NEVER without Message Expiry Interval
    encoded     encodings by shape, so that a message is encoded once for all receivers of a shape
    head, tail  the received packet before and after its packet identifier, where it can be forwarded unchanged: QoS 1,
                no flags, and no properties but User Properties
    head_version  protocol version of head and tail (4, 5), 0 for none
    record      number of the message's record in the store, 0 for none (broker/store/journal.py)
    references  number of other records that refer to it
    """

    __slots__ = (
        "encoded",
        "expires_at",
        "head",
        "head_version",
        "payload",
        "record",
        "references",
        "tail",
    )

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: bytes = b"",
        expires_at: float = NEVER,
        client_id: str = "",
        origin: Origin | None = None,
    ) -> None:
        super().__init__(topic, qos, retain, properties, client_id, origin, 1)
        self.payload = payload
        self.expires_at = expires_at
        self.encoded: dict[int, bytes] | None = None
        self.head = b""
        self.tail = b""
        self.head_version = 0
        self.record = 0
        self.references = 0

    def waits(self) -> None:
        """The message is queued. A packet of MQTT 5 as it was received has another payload, which would not be counted."""
        if self.head_version == 5 and len(self.payload) > ENTRY_BYTES:
            self.head_version = 0
            self.head = self.tail = b""

    def was_sent(self) -> None:
        """The message went to a receiver, and may wait for others: a large one is encoded again for each of those."""
        if len(self.payload) > ENTRY_BYTES:
            self.encoded = None

    def copy(self) -> Message:
        """A message without the encodings and the record of this one."""
        return Message(
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.properties,
            self.expires_at,
            self.client_id,
            self.origin,
        )

    def bare(self) -> Message:
        """The message without its origin, for nodes that do not need it."""
        bare = self.copy()
        bare.origin = None
        bare.head = self.head
        bare.tail = self.tail
        bare.head_version = self.head_version
        return bare


def message_bytes(message: Message) -> int:
    """Bytes of a message for `max_queued_bytes`."""
    size = len(message.payload) + len(message.topic) + len(message.properties) + ENTRY_BYTES
    return size if message.origin is None else size + len(message.origin.encode())
