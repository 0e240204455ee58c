"""What leaves together: a batch, and a batch of one message that came alone, whose bytes are written and read at once.

The bytes of a lone message on a direct stream are those of any batch (docs/protocol-extensions.md): one event, which is a
PUBLISH_BLOCK of packets that came in one piece.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import mypyc_attr

from federation.stream.direct import BATCH_HEADER_SIZE, WRITER_BYTES
from federation.stream.frames import BLOCK_HEADER_SIZE, HEADER_SIZE, PUBLISH_BLOCK

LONE_HEADER_SIZE: Final = BATCH_HEADER_SIZE + BLOCK_HEADER_SIZE
LONE_VERSION_AT: Final = BATCH_HEADER_SIZE + HEADER_SIZE  # the packets' MQTT level, 4 or 5


@mypyc_attr(allow_interpreted_subclasses=True)
class Outlet:
    """The shell of one sender."""

    def flush_at(self, now: float) -> None:
        """Write what the sender wants sent."""
        raise AssertionError("an outlet that writes nothing")

    def is_direct(self) -> bool:
        """Whether `write_direct` may be called now."""
        return False

    def write_direct(self, data: bytes) -> None:
        """Bytes of a direct stream."""
        raise AssertionError("an outlet without a direct stream")


class Batch:
    """What travels together: `count` events, ids from first_id. `events` are their frames; `single` are the encoded
    events of the plain stream instead, None for a batch."""

    __slots__ = ("count", "events", "first_id", "single")

    def __init__(self, first_id: int, count: int, events: bytes, single: list[bytes] | None) -> None:
        self.first_id = first_id
        self.count = count
        self.events = events
        self.single = single

    def leave_out(self, next_event_id: int) -> None:
        """Single events below that id are done there. A gmqttd knows the last 100 only, and would do older ones again;
        who reads batches steps over them."""
        done = next_event_id - self.first_id
        if self.single is not None and done > 0:
            self.single = self.single[done:]
            self.count -= done
            self.first_id = next_event_id


def encode_lone_batch(event_id: int, version: int, count: int, packets: bytes) -> bytes:
    """One event, `count` packets of that version, on a direct stream."""
    size = len(packets)
    writer = BytesWriter()
    write_i32_be(writer, size + LONE_HEADER_SIZE - 4)
    write_i64_be(writer, event_id)
    write_i32_be(writer, 1)
    writer.append(PUBLISH_BLOCK)
    writer.append(0)
    write_i32_be(writer, size + BLOCK_HEADER_SIZE - HEADER_SIZE)
    writer.append(version)
    write_i32_be(writer, count)
    if size > WRITER_BYTES:
        return writer.getvalue() + packets
    writer.write(packets)
    return writer.getvalue()


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
