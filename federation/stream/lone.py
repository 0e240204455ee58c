"""A message that comes alone, as bytes of a direct stream and at its receiving end.

The bytes are those of any batch (docs/protocol-extensions.md): one event, which is a PUBLISH_BLOCK of one packet.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be

from broker.flow import Flow
from broker.routing.router import Router
from broker.session.publisher import Publisher
from federation.stream.counters import StreamCounters
from federation.stream.direct import BATCH_HEADER_SIZE, WRITER_BYTES
from federation.stream.frames import BLOCK_HEADER_SIZE, HEADER_SIZE, PUBLISH_BLOCK
from federation.stream.waiting import WaitingBatches

LONE_HEADER_SIZE: Final = BATCH_HEADER_SIZE + BLOCK_HEADER_SIZE
LONE_VERSION_AT: Final = BATCH_HEADER_SIZE + HEADER_SIZE  # the packets' MQTT level, 4 or 5


def encode_lone_batch(event_id: int, version: int, count: int, packets: bytes) -> bytes:
    """One event, `count` packets of that version, on a direct stream."""
    writer = BytesWriter()
    _write_lone_head(writer, event_id, version, count, len(packets))
    if len(packets) > WRITER_BYTES:
        return writer.getvalue() + packets
    writer.write(packets)
    return writer.getvalue()


def _write_lone_head(writer: BytesWriter, event_id: int, version: int, count: int, size: int) -> None:
    write_i32_be(writer, size + LONE_HEADER_SIZE - 4)
    write_i64_be(writer, event_id)
    write_i32_be(writer, 1)
    writer.append(PUBLISH_BLOCK)
    writer.append(0)
    write_i32_be(writer, size + BLOCK_HEADER_SIZE - HEADER_SIZE)
    writer.append(version)
    write_i32_be(writer, count)


class LoneEncoder:
    """Batches of one packet. What stands before the packet is made while nobody waits for it, once two have been of one
    length: devices tend to send always as much, and a message leaves 70 cache lines earlier."""

    __slots__ = ("_event_id", "_head", "_size", "_version")

    def __init__(self) -> None:
        self._head = b""
        self._event_id = -1
        self._version = 0
        self._size = 0

    def encode(self, event_id: int, version: int, packet: bytes) -> bytes:
        if event_id == self._event_id and len(packet) == self._size and version == self._version:
            return self._head + packet
        return encode_lone_batch(event_id, version, 1, packet)

    def prepare(self, event_id: int, version: int, size: int) -> None:
        """For the next one; the last one was of that version and size."""
        if size == self._size:
            writer = BytesWriter()
            _write_lone_head(writer, event_id, version, 1, size)
            self._head = writer.getvalue()
            self._event_id = event_id
            self._version = version
        else:
            self._size = size
            self._event_id = -1


def lone_event_id(data: bytes) -> int:
    """The event id of a chunk that is exactly one batch of one packet, which begins at LONE_HEADER_SIZE; -1 for any other."""
    size = len(data)
    if (
        size <= LONE_HEADER_SIZE
        or read_i32_be(data, 0) != size - 4
        or read_i32_be(data, 12) != 1
        or data[BATCH_HEADER_SIZE] != PUBLISH_BLOCK
        or data[BATCH_HEADER_SIZE + 1] != 0
        or read_i32_be(data, BATCH_HEADER_SIZE + 2) != size - LONE_VERSION_AT
        or read_i32_be(data, LONE_VERSION_AT + 1) != 1
    ):
        return -1
    event_id: int = read_i64_be(data, 4)
    return event_id


class LoneReceiver:
    """What of a PeerReceiver a lone message touches."""

    __slots__ = (
        "_block",
        "_gaps",
        "_router",
        "_waiting",
        "counters",
        "next_event_id",
        "publisher",
        "stream",
        "streaming",
    )

    def __init__(self, router: Router, counters: StreamCounters) -> None:
        # What each message touches comes first (see Connection).
        self.stream = 0
        self.streaming = False
        self.next_event_id = 0
        self._gaps = 0
        self.counters = counters
        self._router = router
        self.publisher = Publisher(None)  # what full receivers ask to wait
        self._block: tuple[bytes, int] | None = None  # rest of a PUBLISH_BLOCK, and its version
        # Because the publisher is held. What is forgotten of it comes again on the next stream; the rest of a block is
        # counted as done and stays.
        self._waiting = WaitingBatches()

    def receive_alone(self, stream: int, data: bytes) -> int:
        """Apply a chunk that is one batch of one more message of the flow, where that can leave at once; the event id to
        acknowledge, then call note_alone. -1, and nothing done, for any other."""
        flow = self._flow_of(stream, data)
        if flow is None or not flow.leave_here(data[LONE_HEADER_SIZE:]):
            return -1
        return self.next_event_id

    def note_alone(self, data: bytes, now: float) -> None:
        """What receive_alone left to be done."""
        self._note_lone(data)
        counters = self._router.broker.counters
        self._router.broker.now = now
        counters.messages_from_peers += 1
        counters.qos0_sent += 1

    def receive_lone(self, stream: int, data: bytes, now: float) -> int:
        """Apply a chunk that is one batch of one more message of the flow, when nothing waits; the event id to acknowledge.
        -1, and nothing done, for any other, which is left to receive_batch."""
        flow = self._flow_of(stream, data)
        if flow is None:
            return -1
        self._note_lone(data)
        router = self._router
        router.publisher = self.publisher
        try:
            router.publish_again(flow, data, LONE_HEADER_SIZE, now)
        finally:
            router.publisher = None
        return self.next_event_id - 1

    def _flow_of(self, stream: int, data: bytes) -> Flow | None:
        publisher = self.publisher
        flow = publisher.flow
        if (
            flow is None
            or lone_event_id(data) != self.next_event_id
            or stream != self.stream
            or not self.streaming
            or publisher.held
            or self._block is not None
            or not self._waiting.is_empty()
            or data[LONE_VERSION_AT] != flow.version
            or not flow.fits(data, LONE_HEADER_SIZE, self._router.generation)
        ):
            return None
        return flow

    def _note_lone(self, data: bytes) -> None:
        self._gaps = 0
        self.next_event_id += 1
        counters = self.counters
        counters.batches_received += 1
        counters.events_received += 1
        counters.bytes_received += len(data) - BATCH_HEADER_SIZE
