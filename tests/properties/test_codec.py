"""Properties of the codec: any cut of a stream gives the same packets, encode inverts decode, and wrong bytes raise only
MqttError."""

import contextlib

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.codec import packets as p
from broker.codec import properties as props
from broker.codec.packets import Packet, Properties, PropertyValue
from broker.codec.reader import PacketReader, decode_packet, decode_publish
from broker.codec.wire import VARINT_MAX, decode_varint, encode_varint
from broker.codec.writer import (
    encode_packet,
    encode_publish,
    publish_parts,
)
from broker.errors import MqttError
from effort import effort

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
LEVEL = st.text(st.characters(exclude_characters="\0+#/", exclude_categories=["Cs"]), max_size=4)
TOPIC = st.lists(LEVEL, min_size=1, max_size=5).map("/".join).filter(bool).map(str.encode)
FILTER = (
    st.tuples(st.lists(LEVEL | st.just("+"), min_size=1, max_size=4), st.booleans())
    .map(lambda pair: "/".join(pair[0] + ["#"] * pair[1]))
    .filter(lambda text: text and not text.startswith("$share"))
    .map(str.encode)
)
SHARED_FILTER = st.tuples(LEVEL.filter(bool), FILTER).map(lambda pair: b"$share/" + pair[0].encode() + b"/" + pair[1])
PACKET_ID = st.integers(1, 65_535)
UINT16 = st.integers(0, 65_535)
UINT32 = st.integers(0, 2**32 - 1)
BINARY = st.binary(max_size=12)
PAIRS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3)
QOS = st.integers(0, 2)
BIT = st.integers(0, 1)

VALUES: dict[int, st.SearchStrategy[PropertyValue]] = {
    props.SUBSCRIPTION_IDENTIFIER: st.integers(1, VARINT_MAX),
    props.SESSION_EXPIRY_INTERVAL: UINT32,
    props.ASSIGNED_CLIENT_IDENTIFIER: TEXT,
    props.SERVER_KEEP_ALIVE: UINT16,
    props.AUTHENTICATION_METHOD: TEXT,
    props.REQUEST_PROBLEM_INFORMATION: BIT,
    props.REQUEST_RESPONSE_INFORMATION: BIT,
    props.RESPONSE_INFORMATION: TEXT,
    props.SERVER_REFERENCE: TEXT,
    props.REASON_STRING: TEXT,
    props.RECEIVE_MAXIMUM: st.integers(1, 65_535),
    props.TOPIC_ALIAS_MAXIMUM: UINT16,
    props.MAXIMUM_QOS: BIT,
    props.RETAIN_AVAILABLE: BIT,
    props.USER_PROPERTY: PAIRS,
    props.MAXIMUM_PACKET_SIZE: st.integers(1, 2**32 - 1),
    props.WILDCARD_SUBSCRIPTION_AVAILABLE: BIT,
    props.SUBSCRIPTION_IDENTIFIER_AVAILABLE: BIT,
    props.SHARED_SUBSCRIPTION_AVAILABLE: BIT,
}


def some_properties(version: int, *ids: int) -> st.SearchStrategy[Properties]:
    if version != 5:
        return st.just({})
    return st.fixed_dictionaries({}, optional={number: VALUES[number] for number in (*ids, props.USER_PROPERTY)})


def blocks(version: int) -> st.SearchStrategy[bytes]:
    if version != 5:
        return st.just(b"")
    return st.builds(
        props.encode_publish_properties,
        st.none() | BIT,
        st.none() | TEXT,
        st.none() | TOPIC,
        st.none() | BINARY,
        st.none() | PAIRS,
    )


def publishes(version: int) -> st.SearchStrategy[p.Publish]:
    five = version == 5

    def build(publish: p.Publish) -> p.Publish:
        if publish.qos == 0:
            publish.dup = False
            publish.packet_id = 0
        return publish

    identifiers = st.lists(st.integers(1, VARINT_MAX), max_size=3 if five else 0)
    return st.builds(
        p.Publish,
        TOPIC,
        st.binary(max_size=300),
        QOS,
        st.booleans(),
        st.booleans(),
        PACKET_ID,
        blocks(version),
        st.integers(-1, 2**32 - 1) if five else st.just(-1),
        UINT16 if five else st.just(0),
        identifiers.map(tuple),
    ).map(build)


def connects(version: int) -> st.SearchStrategy[p.Connect]:
    will = st.builds(
        p.Will,
        TOPIC,
        BINARY,
        QOS,
        st.booleans(),
        blocks(version),
        st.none() | UINT32 if version == 5 else st.none(),
        UINT32 if version == 5 else st.just(0),
    )
    return st.builds(
        p.Connect,
        TEXT.filter(bool),
        st.just(version),
        st.booleans(),
        UINT16,
        TEXT,
        st.none() | BINARY,
        st.none() | will,
        some_properties(
            version,
            props.SESSION_EXPIRY_INTERVAL,
            props.RECEIVE_MAXIMUM,
            props.MAXIMUM_PACKET_SIZE,
            props.TOPIC_ALIAS_MAXIMUM,
            props.REQUEST_PROBLEM_INFORMATION,
            props.REQUEST_RESPONSE_INFORMATION,
            props.AUTHENTICATION_METHOD,
        ),
    )


def acks(version: int) -> st.SearchStrategy[Packet]:
    properties = some_properties(version, props.REASON_STRING).map(lambda found: found or None)
    received = st.sampled_from([0, 0x10, 0x80, 0x97]) if version == 5 else st.just(0)
    released = st.sampled_from([0, 0x92]) if version == 5 else st.just(0)
    return (
        st.builds(p.PubAck, PACKET_ID, received, properties)
        | st.builds(p.PubRec, PACKET_ID, received, properties)
        | st.builds(p.PubRel, PACKET_ID, released, properties)
        | st.builds(p.PubComp, PACKET_ID, released, properties)
    )


def packets_of(version: int) -> st.SearchStrategy[Packet]:
    """Packets of every type, in both directions, as a reader returns them."""
    five = version == 5
    no_local = st.booleans() if five else st.just(False)
    handling = QOS if five else st.just(0)
    plain = st.builds(p.SubscribeFilter, FILTER, QOS, no_local, no_local, handling)
    shared = st.builds(p.SubscribeFilter, SHARED_FILTER, QOS, st.just(False), no_local, handling)
    reason = some_properties(version, props.REASON_STRING)
    suback_codes = [0, 1, 2, 0x80, 0x87, 0x97] if five else [0, 1, 2, 0x80]
    unsuback_codes = st.lists(st.sampled_from([0, 0x11, 0x80]), min_size=1, max_size=5) if five else st.just([])
    connack_codes = [0, 0x84, 0x85, 0x86, 0x87, 0x88] + ([0x89, 0x97] if five else [])
    found = [
        publishes(version),
        acks(version),
        connects(version),
        st.builds(
            p.ConnAck,
            st.just(False),
            st.sampled_from(connack_codes),
            some_properties(
                version,
                props.ASSIGNED_CLIENT_IDENTIFIER,
                props.SERVER_KEEP_ALIVE,
                props.RESPONSE_INFORMATION,
                props.SERVER_REFERENCE,
                props.REASON_STRING,
                props.MAXIMUM_QOS,
                props.RETAIN_AVAILABLE,
                props.WILDCARD_SUBSCRIPTION_AVAILABLE,
                props.SUBSCRIPTION_IDENTIFIER_AVAILABLE,
                props.SHARED_SUBSCRIPTION_AVAILABLE,
            ),
        ),
        st.builds(p.ConnAck, st.just(True)),
        st.builds(
            p.Subscribe,
            PACKET_ID,
            st.lists(plain | shared, min_size=1, max_size=4),
            some_properties(version, props.SUBSCRIPTION_IDENTIFIER),
        ),
        st.builds(p.SubAck, PACKET_ID, st.lists(st.sampled_from(suback_codes), min_size=1, max_size=5), reason),
        st.builds(p.Unsubscribe, PACKET_ID, st.lists(FILTER | SHARED_FILTER, min_size=1), some_properties(version)),
        st.builds(p.UnsubAck, PACKET_ID, unsuback_codes, reason),
        st.builds(p.PingReq),
        st.builds(p.PingResp),
    ]
    if five:
        found.append(
            st.builds(
                p.Disconnect,
                st.sampled_from([0, 4, 0x81, 0x8E]),
                some_properties(5, props.REASON_STRING, props.SESSION_EXPIRY_INTERVAL, props.SERVER_REFERENCE),
            )
        )
        found.append(
            st.builds(
                p.Auth,
                st.sampled_from([0, 0x18, 0x19]),
                some_properties(5, props.AUTHENTICATION_METHOD, props.REASON_STRING),
            )
        )
    else:
        found.append(st.builds(p.Disconnect))
    return st.one_of(found)


VERSIONS = st.sampled_from([3, 4, 5])
STREAMS = VERSIONS.flatmap(lambda version: st.tuples(st.just(version), st.lists(packets_of(version), max_size=8)))


@given(STREAMS, st.lists(st.integers(0, 3_000)))
@settings(max_examples=effort(150))
def test_any_cut_of_a_stream_gives_the_same_packets(stream: tuple[int, list[Packet]], cuts: list[int]) -> None:
    version, packets = stream
    data = b"".join([encode_packet(packet, version) for packet in packets])
    reader = PacketReader(version)
    found: list[Packet] = []
    at = 0
    for cut in sorted(min(cut, len(data)) for cut in cuts):
        found += reader.receive_data(data[at:cut])
        at = cut
    found += reader.receive_data(data[at:])
    assert found == packets
    assert b"".join([encode_packet(packet, version) for packet in found]) == data


@given(STREAMS, st.integers(0, 200))
@settings(max_examples=effort(150))
def test_maximum_packet_size_is_kept(stream: tuple[int, list[Packet]], maximum: int) -> None:
    version, packets = stream
    for packet in packets:
        whole = encode_packet(packet, version)
        data = encode_packet(packet, version, maximum)
        if maximum == 0 or len(whole) <= maximum:
            assert data == whole
        elif data:
            assert len(data) <= maximum
            [bare] = PacketReader(version).receive_data(data)
            assert type(bare) is type(packet)


@given(VERSIONS, st.binary(max_size=60), st.integers(0, 255))
@settings(max_examples=effort(500))
def test_random_bytes_raise_only_mqtt_errors(version: int, body: bytes, first: int) -> None:
    with contextlib.suppress(MqttError):
        decode_packet(first, body, 0, len(body), version)


@given(STREAMS, st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 255)), min_size=1, max_size=4), st.data())
@settings(max_examples=effort(300))
def test_mutated_streams_raise_only_mqtt_errors_for_any_cut(
    stream: tuple[int, list[Packet]], changes: list[tuple[int, int]], draw: st.DataObject
) -> None:
    version, packets = stream
    data = bytearray(b"".join([encode_packet(packet, version) for packet in packets]) or b"\x30\0")
    for at, value in changes:
        data[at % len(data)] = value
    cut = draw.draw(st.integers(0, len(data)))
    assert read(version, [bytes(data)]) == read(version, [bytes(data[:cut]), bytes(data[cut:])])


def read(version: int, chunks: list[bytes]) -> tuple[list[Packet], str]:
    """The packets before a fault, and the text of the fault, "" for none."""
    reader = PacketReader(version, 100_000)
    packets: list[Packet] = []
    try:
        for chunk in chunks:
            packets += reader.receive_data(chunk)
        packets += reader.receive_data(b"")
    except MqttError as error:
        return packets, error.text
    return packets, ""


@given(st.binary(max_size=40), st.integers(0, 5))
def test_a_packet_is_read_within_its_bounds(body: bytes, before: int) -> None:
    """The bytes around a packet in the chunk do not matter."""
    expected = outcome(body, 0, len(body))
    assert outcome(b"\1" * before + body + b"\1\1\1", before, before + len(body)) == expected


def outcome(data: bytes, start: int, end: int) -> str:
    try:
        return repr(decode_publish(0x32, data, start, end, 5))
    except MqttError as error:
        return error.text


@given(STREAMS)
def test_hot_helpers_write_the_same_bytes(stream: tuple[int, list[Packet]]) -> None:
    version, packets = stream
    for packet in packets:
        data = encode_packet(packet, version)
        if isinstance(packet, p.Publish) and packet.qos and packet.message_expiry_interval < 0:
            if not packet.topic_alias and not packet.subscription_identifiers:
                before, after = publish_parts(
                    version, packet.topic, packet.payload, packet.qos, packet.retain, packet.dup, packet.properties
                )
                assert before + packet.packet_id.to_bytes(2, "big") + after == data


@given(
    st.lists(
        st.sampled_from(
            [b"\x01\1", b"\x02\0\0\0\5", b"\x03\0\1t", b"\x09\0\1x", b"\x23\0\1", b"\x0b\1", b"\x26\0\0\0\0", b"\x0b\2"]
        ),
        unique=True,
    )
)
def test_forwardable_properties_keep_their_bytes_and_order(parts: list[bytes]) -> None:
    block = b"".join(parts)
    data = b"\0\1a" + bytes((len(block),)) + block + b"payload"
    publish = decode_publish(0x30, data, 0, len(data), 5)
    assert publish.properties == b"".join([part for part in parts if part[0] not in {0x02, 0x0B, 0x23}])
    assert publish.payload == b"payload"
    assert publish.message_expiry_interval == (5 if b"\x02\0\0\0\5" in parts else -1)
    assert publish.topic_alias == (1 if b"\x23\0\1" in parts else 0)
    assert publish.subscription_identifiers == tuple([part[1] for part in parts if part[0] == 0x0B])


@given(blocks(5))
def test_publish_properties_to_dict_is_the_inverse(block: bytes) -> None:
    found = props.publish_properties_to_dict(block)
    topic = props.get_str(found, props.RESPONSE_TOPIC)
    payload_format = props.get_int(found, props.PAYLOAD_FORMAT_INDICATOR, -1)
    assert block == props.encode_publish_properties(
        None if payload_format < 0 else payload_format,
        props.get_str(found, props.CONTENT_TYPE),
        None if topic is None else topic.encode(),
        props.get_bytes(found, props.CORRELATION_DATA),
        props.get_user_properties(found),
    )


@given(st.integers(0, VARINT_MAX), st.binary(max_size=3))
@example(127, b"")
@example(128, b"")
@example(16_383, b"")
@example(16_384, b"")
@example(2_097_151, b"")
@example(2_097_152, b"")
@example(VARINT_MAX, b"")
def test_varint(value: int, after: bytes) -> None:
    data = encode_varint(value)
    assert decode_varint(data + after, 0, len(data) + len(after)) == (value, len(data))
    for end in range(len(data)):
        assert decode_varint(data, 0, end) == (-1, 0)


@given(publishes(5))
def test_encode_publish_defaults(publish: p.Publish) -> None:
    data = encode_publish(4, publish.topic, publish.payload, publish.qos, publish.retain, False, 7, b"ignored", 5, 3)
    [found] = PacketReader(4).receive_data(data)
    packet_id = 7 if publish.qos else 0
    assert found == p.Publish(publish.topic, publish.payload, publish.qos, publish.retain, False, packet_id)
