"""The bytes of the direct stream: any cut gives the same items, what is wrong is named, what is kept is bounded."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from direct_peers import read_batches
from federation.stream.direct_wire import (
    ACK_END,
    ACK_PONG,
    BATCH_HEADER_SIZE,
    NAME_BYTES_MAX,
    PING,
    PREFACE,
    PROMISED,
    STATUS_INVALID,
    STATUS_NOT_A_MEMBER,
    STATUS_OK,
    TEXT_BYTES_MAX,
    ClientReader,
    DirectError,
    Hello,
    Reply,
    ServerReader,
    encode_ack,
    encode_batch,
    encode_end,
    encode_hello,
    encode_reply,
)

BYTES_MAX = 4096
BatchFields = tuple[int, int, bytes]

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
batches = st.lists(
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), st.binary(max_size=300)),
    max_size=8,
)
cuts = st.lists(st.integers(1, 60), min_size=1, max_size=40)
texts = st.text(st.characters(codec="utf-8"), max_size=60)
event_ids = st.integers(0, ACK_PONG - 1)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """The data in pieces of these sizes, again and again."""
    pieces = []
    at = 0
    turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
        turn += 1
    return pieces


def serve(pieces: list[bytes], bytes_max: int = BYTES_MAX) -> tuple[Hello | None, list[BatchFields], str]:
    """What a server reads: Hello, batches, and why it stopped."""
    reader = ServerReader(bytes_max)
    hello: Hello | None = None
    found: list[BatchFields] = []
    for piece in pieces:
        data = piece
        if hello is None:
            try:
                hello = reader.receive_hello(data)
            except DirectError as error:
                return None, [], str(error)
            if hello is None:
                continue
            data = b""
        found += read_batches(reader, data)
        if reader.fault is not None:
            return hello, found, str(reader.fault)
    return hello, found, ""


# --- what the server reads


@given(names, names, batches, cuts)
def test_any_cut_gives_the_same_hello_and_batches(
    name: str, session_id: str, sent: list[BatchFields], sizes: list[int]
) -> None:
    data = encode_hello(name, session_id, "store") + b"".join(encode_batch(*batch) for batch in sent)
    for pieces in ([data], cut(data, sizes), cut(data, [1])):
        hello, found, fault = serve(pieces)
        assert hello is not None
        assert (hello.node_name, hello.session_id) == (name, session_id)
        assert found == sent
        assert fault == ""


@given(batches, st.binary(min_size=BATCH_HEADER_SIZE, max_size=60), cuts)
def test_batches_in_front_of_a_fault_count_however_they_are_cut(
    sent: list[BatchFields], after: bytes, sizes: list[int]
) -> None:
    wrong = (BYTES_MAX + 1).to_bytes(4, "big") + after
    data = encode_hello("a", "b", "store") + b"".join(encode_batch(*batch) for batch in sent) + wrong
    for pieces in ([data], cut(data, sizes), cut(data, [1])):
        hello, found, fault = serve(pieces)
        assert hello is not None
        assert found == sent
        assert fault == f"batch of {BYTES_MAX + 1} bytes, {BATCH_HEADER_SIZE - 4} to {BYTES_MAX} are allowed"


def test_nothing_is_read_behind_a_fault() -> None:
    reader = ServerReader(BYTES_MAX)
    assert reader.receive_hello(encode_hello("a", "b", "store") + bytes(BATCH_HEADER_SIZE)) is not None
    assert read_batches(reader, b"") == []
    assert str(reader.fault) == f"batch of 0 bytes, {BATCH_HEADER_SIZE - 4} to {BYTES_MAX} are allowed"
    assert read_batches(reader, encode_batch(0, 1, b"x")) == []


@given(st.binary(max_size=200), cuts)
def test_garbage_raises_direct_errors_only(garbage: bytes, sizes: list[int]) -> None:
    serve(cut(garbage, sizes))
    serve(cut(PREFACE + garbage, sizes))
    serve(cut(encode_hello("a", "b", "store") + garbage, sizes))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "does not begin with the preface"),
        (b"GMQD\x02\0\x01a\0\x01b", "does not begin with the preface"),
        (PREFACE + b"\0\0" + b"\0\x01b", "node name of 0 bytes"),
        (PREFACE + b"\xff\xff", "node name of 65535 bytes"),
        (PREFACE + (NAME_BYTES_MAX + 1).to_bytes(2, "big"), f"node name of {NAME_BYTES_MAX + 1} bytes"),
        (PREFACE + b"\0\x01a\0\0", "session id of 0 bytes"),
        (PREFACE + b"\0\x01a\x04\x01", "session id of 1025 bytes"),
        (PREFACE + b"\0\x01a\0\x02\xff\xff\0\x01b", "session id or store id is not UTF-8"),
        (PREFACE + b"\0\x01a\0\x01b\0\0", "store id of 0 bytes"),
    ],
)
def test_the_error_of_a_wrong_hello_names_its_fault(data: bytes, text: str) -> None:
    for pieces in ([data], cut(data, [1])):
        hello, _, fault = serve(pieces)
        assert hello is None
        assert text in fault


def test_a_hello_that_is_not_whole_waits() -> None:
    whole = encode_hello("node1", "session", "store")
    reader = ServerReader(BYTES_MAX)
    for at in range(len(whole) - 1):
        assert reader.receive_hello(whole[at : at + 1]) is None
    hello = reader.receive_hello(whole[-1:])
    assert hello is not None
    assert (hello.node_name, hello.session_id) == ("node1", "session")


def test_a_name_that_is_not_utf_8_keeps_its_bytes() -> None:
    name = b"node\xff".decode("utf-8", "surrogateescape")
    hello, _, _ = serve([encode_hello(name, "s", "store")])
    assert hello is not None
    assert hello.node_name == name


@pytest.mark.parametrize("length", [0, 1, BATCH_HEADER_SIZE - 5, BYTES_MAX + 1, 2**32 - 1])
def test_the_size_of_a_batch_is_bounded(length: int) -> None:
    _, found, fault = serve([encode_hello("a", "b", "store") + length.to_bytes(4, "big") + bytes(BATCH_HEADER_SIZE)])
    assert found == []
    assert fault == f"batch of {length} bytes, {BATCH_HEADER_SIZE - 4} to {BYTES_MAX} are allowed"


@pytest.mark.parametrize(("first_id", "count"), [(2**63, 2**31), (2**64 - 1, 2**32 - 1)])
def test_ids_and_counts_have_no_sign(first_id: int, count: int) -> None:
    header = (
        (BATCH_HEADER_SIZE - 3).to_bytes(4, "big") + first_id.to_bytes(8, "big") + count.to_bytes(4, "big") + bytes(12)
    )
    _, found, _ = serve([encode_hello("a", "b", "store") + header + b"x"])
    assert found == [(first_id, count, b"x")]


@pytest.mark.parametrize("is_promised", [False, True])
def test_a_batch_names_its_block(is_promised: bool) -> None:
    reader = ServerReader(BYTES_MAX)
    assert reader.receive_hello(encode_hello("a", "b", "store")) is not None
    serial = 3 << 40 | 7
    reader.receive(encode_batch(0, 1, b"x", serial | PROMISED if is_promised else serial, 2**31 - 1))
    assert reader.next_batch()
    assert (reader.serial, reader.done, reader.is_promised) == (serial, 2**31 - 1, is_promised)


def test_the_largest_batch_passes() -> None:
    events = bytes(BYTES_MAX + 4 - BATCH_HEADER_SIZE)
    _, found, fault = serve([encode_hello("a", "b", "store"), encode_batch(7, 3, events)])
    assert found == [(7, 3, events)]
    assert fault == ""


def test_a_ping_is_a_batch_without_events() -> None:
    _, found, _ = serve([encode_hello("a", "b", "store") + PING + encode_batch(0, 1, b"x") + PING])
    assert found == [(0, 0, b""), (0, 1, b"x"), (0, 0, b"")]


@pytest.mark.thorough
def test_a_batch_that_comes_in_small_pieces_needs_no_more_memory_than_its_size() -> None:
    size = 2**19
    reader = ServerReader(2**20)
    assert reader.receive_hello(encode_hello("a", "b", "store")) is not None
    data = encode_batch(0, 1, bytes(size))
    tracemalloc.start()
    try:
        for at in range(0, len(data) - 3, 3):
            assert read_batches(reader, data[at : at + 3]) == []
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 2 * size
    assert read_batches(reader, data[-(len(data) % 3 or 3) :]) == [(0, 1, bytes(size))]


# --- what the client reads


@given(
    st.sampled_from([STATUS_OK, STATUS_NOT_A_MEMBER, STATUS_INVALID]),
    st.booleans(),
    st.integers(0, 2**64 - 1),
    texts,
    st.lists(event_ids, max_size=6),
    st.one_of(st.none(), st.tuples(st.booleans(), texts)),
    cuts,
)
def test_any_cut_gives_the_same_reply_and_answers(
    status: int,
    clean_start: bool,
    next_event_id: int,
    text: str,
    acks: list[int],
    end: tuple[bool, str] | None,
    sizes: list[int],
) -> None:
    data = encode_reply(Reply(status, clean_start, next_event_id, text))
    for event_id in acks:
        data += encode_ack(ACK_PONG) + encode_ack(event_id)
    if end is not None:
        data += encode_end(*end) + encode_ack(1) + b"\xff"
    for pieces in ([data], cut(data, sizes), cut(data, [1])):
        reader = ClientReader()
        reply: Reply | None = None
        newest = -1
        ended: tuple[bool, str] | None = None
        for piece in pieces:
            rest = piece
            if reply is None:
                reply = reader.receive_reply(rest)
                if reply is None:
                    continue
                rest = b""
            answers = reader.receive_answers(rest)
            if answers.ack >= 0:
                newest = answers.ack
            if answers.end_text is not None:
                assert ended is None, "the end comes once"
                ended = (answers.end_malformed, answers.end_text)
        assert reply is not None
        assert (reply.status, reply.clean_start, reply.next_event_id, reply.text) == (
            status,
            clean_start,
            next_event_id,
            text,
        )
        assert newest == (acks[-1] if acks else -1)
        assert ended == end


@given(st.binary(max_size=100), cuts)
def test_garbage_for_the_client_raises_direct_errors_only(garbage: bytes, sizes: list[int]) -> None:
    for start in (b"", encode_reply(Reply(STATUS_OK, True, 0, ""))):
        reader = ClientReader()
        reply: Reply | None = None
        try:
            for piece in cut(start + garbage, sizes):
                rest = piece
                if reply is None:
                    reply = reader.receive_reply(rest)
                    rest = b""
                if reply is not None:
                    reader.receive_answers(rest)
        except DirectError:
            pass


@pytest.mark.parametrize(
    "data",
    [
        b"\0",  # whatever HTTP/2 frame
        bytes.fromhex("000018040000000000") + bytes(24),  # SETTINGS
        bytes.fromhex("0000080700000000000000000000000001"),  # GOAWAY
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\x15\x03\x03\0\x02\x02\x46",  # alert of TLS
        b"\x01\x02" + bytes(10),
        b"\x01\0" + bytes(8) + (TEXT_BYTES_MAX + 1).to_bytes(2, "big"),
    ],
)
def test_bytes_that_are_no_reply_are_an_error(data: bytes) -> None:
    with pytest.raises(DirectError):
        ClientReader().receive_reply(data)


@pytest.mark.parametrize("rest", [b"\x02\0\0", b"\0" + (TEXT_BYTES_MAX + 1).to_bytes(2, "big")])
def test_a_wrong_end_is_an_error(rest: bytes) -> None:
    reader = ClientReader()
    with pytest.raises(DirectError):
        reader.receive_answers(ACK_END.to_bytes(8, "big") + rest)


def test_long_texts_are_cut() -> None:
    reply = ClientReader().receive_reply(encode_reply(Reply(STATUS_INVALID, False, 0, "é" * 2000)))
    assert reply is not None
    assert len(reply.text) == TEXT_BYTES_MAX // 2
    answers = ClientReader().receive_answers(encode_end(True, "x" * 70_000))
    assert answers.end_text == "x" * TEXT_BYTES_MAX
    assert answers.end_malformed
