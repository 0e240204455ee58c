"""The records of an event log, read back by the description of its format; a clock that a test moves."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from broker.event_log.block import (
    HEADER_BYTES,
    NO_EXPIRY,
    RETAIN_FLAG,
    SECTION_BYTES,
    SECTION_FIELDS,
    encode_extra,
    is_whole,
    read_header,
)
from broker.event_log.log import EventLog


class Record(NamedTuple):
    """One record as a reader gets it."""

    offset: int
    time_ns: int
    topic: bytes
    payload: bytes
    flags: int
    client_id: str
    user_name: str
    origin: str
    expiry: int
    properties: bytes


def decode_blocks(blocks: bytes) -> list[Record]:
    """The records of whole blocks, by the format's description and not by the product's code."""
    records: list[Record] = []
    at = 0
    while at < len(blocks):
        header = read_header(blocks, at)
        assert header is not None
        assert is_whole(blocks, at, header)
        sections = array("I", blocks[at + HEADER_BYTES : at + HEADER_BYTES + header.sections * SECTION_BYTES])
        sizes_at = at + HEADER_BYTES + header.sections * SECTION_BYTES
        sizes = struct.unpack_from(f"<{header.topics + 3 * header.publishers + header.extras}I", blocks, sizes_at)
        texts = []
        text_at = sizes_at + 4 * len(sizes)
        for size in sizes:
            texts.append(blocks[text_at : text_at + size])
            text_at += size
        topics = texts[: header.topics]
        publishers = [text.decode() for text in texts[header.topics : header.topics + 3 * header.publishers]]
        extras = texts[header.topics + 3 * header.publishers :]
        offset = header.offset
        for first in range(0, len(sections), SECTION_FIELDS):
            delta, count, topic, publisher, payload, size, extra, flags = sections[first : first + SECTION_FIELDS]
            for _ in range(count):
                found = extras[extra - 1] if extra else b""
                records.append(
                    Record(
                        offset,
                        header.time_ns + delta * 1000,
                        topics[topic],
                        blocks[text_at + size - payload : text_at + size],
                        flags,
                        publishers[3 * publisher],
                        publishers[3 * publisher + 1],
                        publishers[3 * publisher + 2],
                        int.from_bytes(found[:4], "little") if found else NO_EXPIRY,
                        found[4:],
                    )
                )
                offset += 1
                text_at += size
        assert text_at == at + header.size
        at += header.size
    return records


class AppendingLog(EventLog):
    """An event log to which a test appends as the tap does."""

    def append(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        client_id: str = "",
        user_name: str = "",
        origin: str = "",
        expiry: int = NO_EXPIRY,
        properties: bytes = b"",
    ) -> None:
        """Append one record. It gets its offset, and can be read, when it is written: `flush` waits for that.

        expiry      Message Expiry Interval in seconds
        properties  the encoded MQTT 5 properties that a server forwards, without their length
        """
        extra = encode_extra(expiry, properties) if properties or expiry != NO_EXPIRY else b""
        flags = qos | (RETAIN_FLAG if retain else 0)
        self.appender.set_time(self.wall_ns())
        self.appender.append(topic, payload, flags, (client_id, user_name, origin), extra)


async def read_all(log: EventLog, start: int | None = None, filters: tuple[bytes, ...] = ()) -> list[Record]:
    """All records from `start` on, over as many reads as it takes."""
    end = log.next_offset
    at = log.first_offset if start is None else start
    records: list[Record] = []
    while at < end:
        blocks, next_offset = await log.readers.read(log.log_id, at, end, 0, filters)
        assert next_offset > at
        records += [record for record in decode_blocks(blocks) if record.offset >= at]
        at = next_offset
    return records


class Clock:
    """Wall time of a test, in Unix ns."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


MakeLog = Callable[..., Awaitable[AppendingLog]]
