"""Frames: encode after decode is identity; any cut and any garbage is a FrameError or a frame, never anything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.message import NEVER, Message
from federation.stream.frames import (
    HAS_EXTENSIONS,
    HEADER_SIZE,
    LINK_INTEREST,
    MEMBERS,
    PUBLISH,
    PUBLISH_BLOCK,
    SUBSCRIBE,
    FrameError,
    body_start,
    count_events,
    decode_block_version,
    decode_groups,
    decode_interest,
    decode_packet,
    encode_block_header,
    encode_expiring_packet,
    encode_frame,
    encode_groups,
    encode_interest,
    encode_packet,
    expiry_offset,
    extension,
    fill_expiry,
    interest_note,
    skip_packets,
)
from origins import fields, origin

TOPICS = st.sampled_from([b"a", b"a/b", b"\xc3\xa4/b", b"x" * 200])
PAYLOADS = st.one_of(st.binary(max_size=40), st.binary(min_size=100, max_size=300), st.just(b"z" * 20_000))
PROPERTIES = st.sampled_from([b"", b"\x01\x01", b"\x03\x00\x01t", b"\x09\x00\x02\xff\xfe\x26\x00\x01k\x00\x01v"])
ORIGINS = st.sampled_from([b"", b"1 path=a", b"1 node=n~1 seq=7 path=", b"1 new=x path=a,b"]).map(origin)
MESSAGES = st.builds(
    Message, TOPICS, PAYLOADS, st.integers(0, 2), st.booleans(), PROPERTIES, st.just(NEVER), st.just(""), ORIGINS
)
NAMES = st.binary(max_size=20)


@given(NAMES, st.binary(min_size=1, max_size=50))
def test_interest_comes_back(share_name: bytes, topic_filter: bytes) -> None:
    frame = encode_interest(SUBSCRIBE, share_name, topic_filter)
    assert frame[0] == SUBSCRIBE
    assert int.from_bytes(frame[2:HEADER_SIZE], "big") == len(frame) - HEADER_SIZE
    assert decode_interest(frame, HEADER_SIZE, len(frame)) == (share_name, topic_filter)


@given(MESSAGES)
def test_a_message_comes_back_from_its_packet(message: Message) -> None:
    packet = encode_packet(message, 5)
    decoded, end = decode_packet(b"??" + packet + b"rest", 2, 2 + len(packet) + 4, 5, 0.0)
    assert end == 2 + len(packet)
    assert fields(decoded) == fields(message)


@given(MESSAGES)
def test_a_message_without_properties_comes_back_in_version_4(message: Message) -> None:
    message.properties = b""
    message.origin = None
    packet = encode_packet(message, 4)
    decoded, _ = decode_packet(packet, 0, len(packet), 4, 0.0)
    assert fields(decoded) == fields(message)


@given(MESSAGES, st.floats(0.01, 1e6), st.floats(0, 1e6))
def test_the_expiry_of_a_frame_is_the_rest_of_its_time(message: Message, lifetime: float, waited: float) -> None:
    message.expires_at = lifetime
    packet = b"prefix" + encode_expiring_packet(message)
    filled = fill_expiry(packet, len(packet) + expiry_offset(message), message.expires_at, waited)
    decoded, _ = decode_packet(filled, 6, len(filled), 5, waited)
    if waited >= lifetime:
        assert decoded.expires_at == waited
    else:
        assert lifetime - 0.01 <= decoded.expires_at <= lifetime + 1
    decoded.expires_at = NEVER
    message.expires_at = NEVER
    assert fields(decoded) == fields(message)


@given(st.lists(st.tuples(NAMES, NAMES), max_size=5))
def test_groups_come_back(groups: list[tuple[bytes, bytes]]) -> None:
    data = b"?" + encode_groups(tuple(groups)) + b"rest"
    assert decode_groups(data, 1, len(data)) == (tuple(groups), len(data) - 4)


@given(MESSAGES, st.lists(st.tuples(NAMES, NAMES), max_size=3), st.data())
def test_a_cut_frame_is_a_frame_error(message: Message, groups: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    body = encode_groups(tuple(groups)) + encode_packet(message, 5)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(FrameError):
        decode_packet(body, decode_groups(body, 0, cut)[1], cut, 5, 0.0)


@given(st.binary(max_size=60))
def test_garbage_is_a_frame_error_or_a_frame(data: bytes) -> None:
    for decode in (decode_interest, decode_groups):
        with contextlib.suppress(FrameError):
            decode(data, 0, len(data))
    with contextlib.suppress(FrameError):
        count_events(data, PUBLISH_BLOCK, len(data) & 1, 0, len(data))
    with contextlib.suppress(FrameError):
        skip_packets(data, 0, len(data), 5)
    for version in (4, 5):
        with contextlib.suppress(FrameError):
            decode_packet(data, 0, len(data), version, 0.0)


def test_block_header() -> None:
    for version in (4, 5):
        for count in (1, 2, 70_000, 0x7FFF_FFFF):
            header = encode_block_header(version, count, 70)
            assert header == b"\3\0\0\0\0\x4b" + bytes((version,)) + count.to_bytes(4, "big")
            assert count_events(header, PUBLISH_BLOCK, 0, HEADER_SIZE, len(header)) == count
            assert decode_block_version(header, HEADER_SIZE) == version
    with pytest.raises(FrameError, match="level 3, may be 4 or 5"):
        decode_block_version(b"\3\0\0\0\0", 0)


def test_every_frame_but_a_block_is_one_event() -> None:
    for kind in (0, PUBLISH, SUBSCRIBE, 99):
        assert count_events(b"", kind, 0, 0, 0) == 1
    block = b"\0\3abc" + encode_block_header(5, 7, 0)[HEADER_SIZE:]
    assert count_events(block, PUBLISH_BLOCK, 1, 0, len(block)) == 7


@given(st.lists(MESSAGES, max_size=6), st.integers(0, 8))
def test_packets_are_skipped_whole(messages: list[Message], count: int) -> None:
    packets = [encode_packet(message, 5) for message in messages]
    data = b"??" + b"".join(packets)
    assert skip_packets(data, 2, len(data), count) == 2 + sum(len(packet) for packet in packets[:count])


def test_extensions_are_stepped_over() -> None:
    frame = encode_frame(PUBLISH, b"\0\5\x63\0\2hibody")
    assert frame[body_start(frame, 1, HEADER_SIZE, len(frame)) :] == b"body"
    assert body_start(frame, 0, HEADER_SIZE, len(frame)) == HEADER_SIZE
    for bad in (b"\0", b"\0\5hi"):
        with pytest.raises(FrameError, match="extensions"):
            body_start(bad, 1, 0, len(bad))


def test_a_topic_alias_is_refused() -> None:
    with pytest.raises(FrameError, match="topic alias"):
        decode_packet(b"\x30\x07\0\1a\3\x23\0\1", 0, 9, 5, 0.0)


@given(NAMES, NAMES, st.binary(min_size=1, max_size=300))
def test_a_filter_with_its_note(share_name: bytes, topic_filter: bytes, note: bytes) -> None:
    data = encode_interest(SUBSCRIBE, share_name, topic_filter, note)
    assert data[1] == HAS_EXTENSIONS
    start = body_start(data, data[1], HEADER_SIZE, len(data))
    assert decode_interest(data, start, len(data)) == (share_name, topic_filter)
    assert interest_note(data, data[1], HEADER_SIZE, share_name) == note
    assert extension(data, HEADER_SIZE, MEMBERS if share_name else LINK_INTEREST) == note
    assert extension(data, HEADER_SIZE, LINK_INTEREST if share_name else MEMBERS) == b""
    assert interest_note(encode_interest(SUBSCRIBE, share_name, topic_filter), 0, HEADER_SIZE, share_name) == b""


def test_an_extension_that_is_longer_than_the_area() -> None:
    assert extension(b"\0\x07\x01\0\x01x\x02\0\x01", 0, 1) == b"x"
    with pytest.raises(FrameError, match="longer"):
        extension(b"\0\x07\x01\0\x01x\x02\0\x01", 0, 2)
    assert extension(b"\0\x02\x01\0", 0, 1) == b""
