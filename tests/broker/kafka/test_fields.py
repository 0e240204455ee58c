"""The codec of Kafka's messages: every version of every table comes back, and bytes that are cut or wrong are named."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kafka.fields import (
    BOOLEAN,
    BYTES,
    ELEMENTS_MAX,
    RECORDS,
    STRING,
    ArrayOf,
    Field,
    KafkaFault,
    Message,
    Reader,
    Scalar,
    Type,
    decode,
    encode,
    put_varint,
)
from broker.kafka.frames import APIS, HEADER, SIZE, api_versions, decode_request, encode_answer
from broker.kafka.messages import API_VERSIONS, METADATA

BITS = {">b": 8, ">h": 16, ">i": 32, ">q": 64}


def scalars(kind: Scalar) -> st.SearchStrategy[Any]:
    if kind is STRING:
        return st.text(st.characters(codec="utf-8"), max_size=200)
    if kind is BYTES:
        return st.binary(max_size=200)
    if kind is RECORDS:
        return st.lists(st.binary(min_size=1, max_size=200), max_size=1)
    if kind is BOOLEAN:
        return st.booleans()
    bits = BITS[kind.format]
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def values_of(kind: Type, version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, Scalar):
        return scalars(kind)
    if isinstance(kind, ArrayOf):
        return st.lists(scalars(kind.element), max_size=3)
    return st.lists(structures(kind, version), max_size=2)


def structures(fields: tuple[Field, ...], version: int) -> st.SearchStrategy[dict[str, Any]]:
    found = {}
    for field in fields:
        if field.since <= version < field.until:
            values = values_of(field.type, version)
            found[field.name] = st.none() | values if version >= field.nullable else values
    return st.fixed_dictionaries(found)


TABLES = [
    (message, version)
    for api in APIS.values()
    for message in (api.request, api.answer)
    for version in range(api.first_version, api.last_version + 1)
]


@given(st.data())
def test_every_version_of_every_table_comes_back(data: st.DataObject) -> None:
    message, version = data.draw(st.sampled_from(TABLES))
    values = data.draw(structures(message.fields, version))
    encoded = encode(message, version, values)
    reader = Reader(encoded)
    assert decode(message, version, reader) == values
    assert reader.left == 0


@given(st.data())
def test_a_request_that_ends_early_is_a_fault(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(APIS)))
    api = APIS[key]
    version = data.draw(st.integers(api.first_version, api.last_version))
    tags = b"\0" if version >= api.request.flexible else b""
    body = encode(api.request, version, data.draw(structures(api.request.fields, version)))
    whole = HEADER.pack(key, version, 7) + b"\0\1c" + tags + body
    request = decode_request(whole)
    assert (request.key, request.version, request.correlation_id, request.client_id) == (key, version, 7, "c")
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(KafkaFault):
        decode_request(whole[:end])


@given(st.binary(max_size=300), st.sampled_from(sorted(APIS)), st.integers(0, 12))
def test_any_bytes_are_a_request_or_a_fault(body: bytes, key: int, version: int) -> None:
    for data in (body, HEADER.pack(key, version, 1) + b"\xff\xff" + body):
        try:
            decode_request(data)
        except KafkaFault:
            pass


# From the definitions and the protocol guide, by hand: names are clients/src/main/resources/common/message/*.json.
@pytest.mark.parametrize(
    ("version", "data", "values"),
    [
        (0, "00000001 0003 616263", {"topics": [{"name": "abc"}]}),
        (1, "ffffffff", {"topics": None}),
        (4, "00000000 01", {"topics": [], "allow_auto_topic_creation": True}),
        (
            9,
            "02 04 616263 00 00 01 00 00",
            {
                "topics": [{"name": "abc"}],
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": True,
                "include_topic_authorized_operations": False,
            },
        ),
        # Tagged fields of later clients are skipped.
        (
            9,
            "00 00 00 00 02 05 01 ff 64 00",
            {
                "topics": None,
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": False,
            },
        ),
    ],
)
def test_requests_as_the_protocol_has_them(version: int, data: str, values: dict[str, Any]) -> None:
    assert decode(APIS[METADATA].request, version, Reader(bytes.fromhex(data))) == values


@pytest.mark.parametrize(
    "data",
    [
        "ffffffff",  # null, where version 0 has none
        "7fffffff",  # elements that cannot be there
        "00000001 7fff 61",  # a string that cannot be there
        "00000001 0001 ff",  # not UTF-8
    ],
)
def test_wrong_lengths_are_faults(data: str) -> None:
    with pytest.raises(KafkaFault):
        decode(APIS[METADATA].request, 0, Reader(bytes.fromhex(data)))


def test_the_elements_of_a_request_are_bounded() -> None:
    message = Message(99, (Field("numbers", ArrayOf(Scalar("int8", ">b"))),))
    for count, is_fine in ((ELEMENTS_MAX, True), (ELEMENTS_MAX + 1, False)):
        data = struct.pack(">i", count) + bytes(count)
        if is_fine:
            assert len(decode(message, 0, Reader(data))["numbers"]) == count
        else:
            with pytest.raises(KafkaFault):
                decode(message, 0, Reader(data))


@given(st.integers(0, 2**32 - 1))
def test_varints_come_back(value: int) -> None:
    output = bytearray()
    put_varint(output, value)
    reader = Reader(bytes(output))
    assert (reader.varint(), reader.left) == (value, 0)


def test_a_varint_without_an_end_is_a_fault() -> None:
    with pytest.raises(KafkaFault):
        Reader(b"\xff" * 10).varint()


def test_versions_that_are_not_answered() -> None:
    """ApiVersions gets the answer of version 0, by which clients find a version; all others a fault."""
    request = decode_request(HEADER.pack(API_VERSIONS, 99, 5) + b"\xff\xff whatever")
    assert request.values is None
    answer = b"".join(encode_answer(request, api_versions(request, APIS)))
    assert SIZE.unpack(answer[:4])[0] == len(answer) - 4
    error, count = struct.unpack(">hi", answer[8:14])
    assert (error, count) == (35, len(APIS))
    for key, version in ((METADATA, 99), (METADATA, -1), (1000, 0)):
        with pytest.raises(KafkaFault):
            decode_request(HEADER.pack(key, version, 5) + b"\xff\xff\0\0\0\0")


@pytest.mark.parametrize(("version", "header"), [(0, "00000007"), (9, "00000007 00")])
def test_headers_of_answers(version: int, header: str) -> None:
    values: dict[str, Any] = {"brokers": [], "cluster_id": None, "controller_id": 0, "topics": []}
    request = decode_request(HEADER.pack(METADATA, 0, 7) + b"\xff\xff\0\0\0\0")._replace(version=version)
    answer = b"".join(encode_answer(request, values))
    body = encode(APIS[METADATA].answer, version, values)
    assert answer[4:] == bytes.fromhex(header) + body
