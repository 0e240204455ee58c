"""The records of blocks, decoded one by one: for people, exports and the sink. Spark decodes columns (pipeline/frames.py)."""

# compiled with mypyc
from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from mypy_extensions import i64

from broker.codec.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    RESPONSE_TOPIC,
    get_bytes,
    get_str,
    get_user_properties,
    publish_properties_to_dict,
)
from broker.event_log.block import (
    HEADER_BYTES,
    NO_EXPIRY,
    RETAIN_FLAG,
    SECTION_BYTES,
    SECTION_FIELDS,
    BlockHeader,
    is_whole,
    read_header,
    u32,
)
from broker.event_log.selection import Selection

QOS_BITS: Final = 3
EXPIRY_BYTES: Final = 4


class BlockFault(ValueError):
    """Bytes that should be blocks are none; the text names their place."""


class Record(NamedTuple):
    """One record. Times are Unix nanoseconds, `expiry` seconds. Texts that the publisher did not give are None."""

    offset: int
    time_ns: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    client_id: str | None
    user_name: str | None
    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None
    user_properties: list[tuple[str, str]]
    expiry: int | None
    origin: str | None


class Extra(NamedTuple):
    """Properties that few records have."""

    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None
    user_properties: list[tuple[str, str]]
    expiry: int | None


NO_EXTRA: Final = Extra(None, None, None, [], None)


def block_headers(blocks: bytes) -> Iterator[tuple[int, BlockHeader]]:
    """(position, header) of each block. Raises BlockFault for bytes that are no whole block."""
    at = 0
    while at < len(blocks):
        header = read_header(blocks, at)
        if header is None or not is_whole(blocks, at, header):
            raise BlockFault(f"byte {at} of {len(blocks)} begins no whole block with a right checksum")
        yield at, header
        at += header.size


def section_fields(blocks: bytes, at: int, header: BlockHeader) -> array[int]:
    """SECTION_FIELDS numbers for each section of the block at `at`."""
    sections_at = at + HEADER_BYTES
    return array("I", blocks[sections_at : sections_at + header.sections * SECTION_BYTES])


def block_texts(
    blocks: bytes, at: int, header: BlockHeader, has_publishers: bool = True
) -> tuple[list[bytes], list[bytes], list[bytes], int]:
    """(topics, three texts of each publisher, extras) of the block at `at`, and where its heap begins. Without
    `has_publishers` their texts are passed over, and the list is empty."""
    sizes_at: i64 = at + HEADER_BYTES + header.sections * SECTION_BYTES
    publishers_at: i64 = sizes_at + 4 * header.topics
    extras_at: i64 = publishers_at + 12 * header.publishers
    texts_at: i64 = extras_at + 4 * header.extras
    topics, texts_at = split_texts(blocks, sizes_at, publishers_at, texts_at)
    publishers: list[bytes] = []
    if has_publishers:
        publishers, texts_at = split_texts(blocks, publishers_at, extras_at, texts_at)
    else:
        while publishers_at < extras_at:
            texts_at += u32(blocks, publishers_at)
            publishers_at += 4
    extras, texts_at = split_texts(blocks, extras_at, extras_at + 4 * header.extras, texts_at)
    return topics, publishers, extras, texts_at


def split_texts(blocks: bytes, sizes_at: i64, sizes_end: i64, texts_at: i64) -> tuple[list[bytes], i64]:
    """The texts that begin at `texts_at` and have these sizes, and where they end."""
    found: list[bytes] = []
    while sizes_at < sizes_end:
        size = u32(blocks, sizes_at)
        found.append(blocks[texts_at : texts_at + size])
        texts_at += size
        sizes_at += 4
    return found, texts_at


def has_topic(blocks: bytes, at: int, header: BlockHeader, topics: Selection) -> bool:
    """Return whether the block at `at` has a topic of the selection."""
    sizes_at: i64 = at + HEADER_BYTES + header.sections * SECTION_BYTES
    texts_at: i64 = sizes_at + 4 * (header.topics + 3 * header.publishers + header.extras)
    for _ in range(header.topics):
        size = u32(blocks, sizes_at)
        if topics.has(blocks[texts_at : texts_at + size]):
            return True
        texts_at += size
        sizes_at += 4
    return False


def records(blocks: bytes) -> Iterator[Record]:
    """All records of whole blocks, in order. Raises BlockFault."""
    for at, header in block_headers(blocks):
        topic_texts, publisher_texts, extra_texts, heap = block_texts(blocks, at, header)
        topics = [text.decode() for text in topic_texts]
        names = [text.decode() or None for text in publisher_texts]
        fields = section_fields(blocks, at, header)
        offset = header.offset
        for section in range(0, len(fields), SECTION_FIELDS):
            delta, count, topic, publisher, payload_size, record_size, extra, flags = fields[
                section : section + SECTION_FIELDS
            ]
            time_ns = header.time_ns + delta * 1000
            client_id, user_name, origin = names[3 * publisher : 3 * publisher + 3]
            more = decode_extra(extra_texts[extra - 1]) if extra else NO_EXTRA
            for _ in range(count):
                heap += record_size
                yield Record(
                    offset,
                    time_ns,
                    topics[topic],
                    blocks[heap - payload_size : heap],
                    flags & QOS_BITS,
                    bool(flags & RETAIN_FLAG),
                    client_id,
                    user_name,
                    more.content_type,
                    more.response_topic,
                    more.correlation_data,
                    more.user_properties,
                    more.expiry,
                    origin,
                )
                offset += 1


def decode_extra(extra: bytes) -> Extra:
    expiry = int.from_bytes(extra[:EXPIRY_BYTES], "little")
    properties = publish_properties_to_dict(extra[EXPIRY_BYTES:])
    return Extra(
        get_str(properties, CONTENT_TYPE),
        get_str(properties, RESPONSE_TOPIC),
        get_bytes(properties, CORRELATION_DATA),
        get_user_properties(properties),
        None if expiry == NO_EXPIRY else expiry,
    )
