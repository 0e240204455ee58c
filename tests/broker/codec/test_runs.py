"""Runs agree with decoding each packet by itself."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.codec.packets import Publish
from broker.codec.properties import are_user_properties
from broker.codec.reader import decode_publish
from broker.codec.runs import PUBLISH_QOS1, RUN_MAX, Run, bare_message, bare_payload_at, bare_run
from broker.codec.wire import decode_varint
from broker.codec.writer import encode_publish
from broker.errors import MqttError

VERSION = st.sampled_from([4, 5])
OTHER = {4: 5, 5: 4}
LONG = b"\0\x80" + b"v" * 128  # a value with which the properties take more than one byte for their length
# Few topics and lengths, so that runs form; one topic begins with another, and one looks like a header.
TOPIC = st.sampled_from([b"a", b"ab", b"b/c", b"\x30\x05"])
PAYLOAD = st.sampled_from([b"", b"x", b"y", b"xx", b"\x00" * 130, b"0\x05\x00\x01a"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, bytes]:
    """(version, PUBLISH packets): repeated ones of QoS 0, and some with QoS, RETAIN or properties between them."""
    version = draw(VERSION)
    parts = []
    for topic, payloads, qos, retain, block in draw(
        st.lists(
            st.tuples(
                TOPIC,
                st.lists(PAYLOAD, min_size=1, max_size=6),
                st.sampled_from([0, 0, 0, 1, 1, 2]),
                st.sampled_from([False, False, True]),
                st.sampled_from([b"", b"", b"\x01\x01", b"\x26\0\1k\0\0", b"\x26\0\1k\0\1v", b"\x26\0\1k" + LONG]),
            ),
            max_size=6,
        )
    ):
        properties = block if version == 5 else b""
        parts += [
            encode_publish(version, topic, each, qos, retain, False, packet_id, properties)
            for packet_id, each in enumerate(payloads, 254)
        ]
    return version, b"".join(parts)


def decoded(data: bytes, version: int, size: int) -> list[Publish]:
    """The whole packets of data[:size], each decoded by itself."""
    found = []
    pos = 0
    while pos < size:
        remaining, body = decode_varint(data, pos + 1, size)
        if remaining < 0 or body + remaining > size:
            break
        found.append(decode_publish(data[pos], data, body, body + remaining, version))
        pos = body + remaining
    return found


def runs_of(data: bytes, version: int, size: int) -> list[Run | Publish]:
    """The same packets as a connection finds them."""
    found: list[Run | Publish] = []
    pos = 0
    while pos < size:
        remaining, body = decode_varint(data, pos + 1, size)
        end = body + remaining
        if remaining < 0 or end > size:
            break
        payload_at = bare_payload_at(data, data[pos], body, end, version)
        if payload_at < 0:
            found.append(decode_publish(data[pos], data, body, end, version))
        else:
            run = bare_run(data, pos, body, end, payload_at, version, "c", size)
            found.append(run)
            end = run.stop
        pos = end
    return found


def acknowledged(run: Run) -> list[int]:
    """The packet identifiers of its PUBACKs."""
    pubacks = run.pubacks()
    assert pubacks[::4] + pubacks[1::4] == b"\x40" * run.count + b"\x02" * run.count
    return [int.from_bytes(pubacks[at + 2 : at + 4], "big") for at in range(0, len(pubacks), 4)]


@given(streams(), st.integers(0, 400))
@example((4, encode_publish(4, b"a", b"xy", 0, False, False, 0, b"") * 600), 0)
def test_a_run_is_its_packets(stream: tuple[int, bytes], missing: int) -> None:
    version, data = stream
    size = max(0, len(data) - missing)
    packets: list[Publish] = []
    for part in runs_of(data, version, size):
        if isinstance(part, Publish):
            packets.append(part)
            continue
        assert 1 <= part.count == len(part.messages()) <= RUN_MAX
        assert {message.client_id for message in part.messages()} == {"c"}
        packet_ids = acknowledged(part) if part.qos else [0] * part.count
        publishes = [
            Publish(each.topic, each.payload, each.qos, each.retain, packet_id=packet_id, properties=each.properties)
            for packet_id, each in zip(packet_ids, part.messages(), strict=True)
        ]
        assert decoded(part.encoded(version), version, part.count * part.packet_size) == publishes
        if part.qos:
            as_received = [
                each.head + packet_id.to_bytes(2, "big") + each.tail
                for packet_id, each in zip(packet_ids, part.messages(), strict=True)
            ]
            assert b"".join(as_received) == part.encoded(version)
            assert {each.head_version for each in part.messages()} == {version}
        other = part.encoded(OTHER[version])
        assert decoded(other, OTHER[version], len(other)) == [
            Publish(each.topic, each.payload, each.qos, each.retain, packet_id=each.qos) for each in publishes
        ]
        if part.qos == 0:
            aliased = part.aliased(7)
            assert decoded(aliased, 5, len(aliased)) == [
                Publish(b"", each.payload, properties=each.properties, topic_alias=7) for each in publishes
            ]
        packets += publishes
    assert packets == decoded(data, version, size)


def test_the_limit_of_a_run() -> None:
    packet = encode_publish(4, b"a", b"xy", 0, False, False, 0, b"")
    parts = runs_of(packet * 600, 4, len(packet) * 600)
    assert [part.count for part in parts if isinstance(part, Run)] == [RUN_MAX, RUN_MAX, 600 - 2 * RUN_MAX]


@pytest.mark.parametrize("version", [4, 5])
def test_a_run_of_qos_1_ends_before_what_is_none(version: int) -> None:
    """A packet identifier 0, which no client may send, and other properties of the same length."""
    pair = b"\x26\0\1k\0\1v" if version == 5 else b""
    good = encode_publish(version, b"a", b"xy", 1, False, False, 258, pair)
    without_id = good.replace(b"\1\2", b"\0\0")
    other = encode_publish(
        version, b"a" if version == 5 else b"b", b"xy", 1, False, False, 258, pair.replace(b"v", b"w")
    )
    for bad in (without_id, other, good[:-1]):
        data = good + good.replace(b"\1\2", b"\0\3") + bad + good
        size = len(good)
        whole = len(data) - (size if bad == good[:-1] else 0)
        run = bare_run(data, 0, 2, size, size - 2, version, "c", whole)
        assert (run.count, acknowledged(run)) == (2, [258, 3])


@given(
    streams(),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 255)), max_size=3),
    st.integers(0x30, 0x3F),
    VERSION,
)
@example((5, b"\x30\x04\x00\x01a\x00"), [], 0x30, 5)
@example((4, b"\x32\x05\x00\x01a\x00\x00"), [], 0x32, 4)
@example((5, b"\x30\x0b\x00\x01a\x07\x26\x00\x01k\x00\x01v"), [], 0x30, 5)
@example((5, b"\x32\x0e\x00\x01a\x00\x07\x07\x26\x00\x01k\x00\x01v"), [], 0x32, 5)
@example((5, b"\x32\x0e\x00\x01a\x00\x07\x07\x26\x00\x01k\x00\x01\0"), [], 0x32, 5)
@example((5, b"\x32\x0e\x00\x01a\x00\x07\x07\x26\x00\x01k\x00\x02v"), [], 0x32, 5)
@example((4, b"\x32\x06\x00\x01a\x01\x02x"), [], 0x32, 4)
def test_a_bare_publish_equals_decoding(
    stream: tuple[int, bytes], changes: list[tuple[int, int]], first: int, version: int
) -> None:
    """For any bytes, decoding gives the same payload and properties, or refuses the topic or the packet identifier."""
    changed = bytearray(stream[1][:60])
    for at, value in changes:
        if at < len(changed):
            changed[at] = value
    data = bytes(changed)
    body = min(2, len(data))
    payload_at = bare_payload_at(data, first, body, len(data), version)
    assert bare_payload_at(data, first, body, len(data), version, b"\x26\0\1k\0\1v") == payload_at
    try:
        publish = decode_publish(first, data, body, len(data), version)
    except MqttError:
        return
    qos = min(publish.qos, 1)
    bare = Publish(publish.topic, publish.payload, qos, packet_id=publish.packet_id)
    if are_user_properties(publish.properties, 0, len(publish.properties)) and len(publish.properties) < 128:
        bare.properties = publish.properties
    is_bare = publish == bare and publish.topic != b""
    if payload_at >= 0:
        assert is_bare
        assert data[payload_at:] == publish.payload
        if first == PUBLISH_QOS1:
            message = bare_message(data, 0, body, len(data), payload_at, version, "c")
            assert (message.topic, message.payload, message.properties) == (
                publish.topic,
                publish.payload,
                publish.properties,
            )
            assert message.head + publish.packet_id.to_bytes(2, "big") + message.tail == data
    else:
        assert not is_bare or len(data) - body < 5
