"""Bodies read piece by piece: what the library would build at once is read the same, and bounds hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.body_reader import SLICE_STEPS, BodyReader
from federation.gossip.errors import WireError
from federation.gossip.msgpack_fields import decode, encode

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=40)


@given(st.dictionaries(st.binary(max_size=8), scalars | st.lists(scalars, max_size=4), max_size=20))
def test_a_map_is_read_as_at_once(body: dict[bytes, object]) -> None:
    reader = BodyReader(encode(body))
    found: dict[object, object] = {}
    for _ in range(reader.map_length(20, "it")):
        key = reader.scalar()
        if isinstance(body[key], list):  # type: ignore[index]
            found[key] = [reader.scalar() for _ in range(reader.array_length(4, "it"))]
        else:
            found[key] = reader.scalar()
    reader.end()
    assert found == decode(encode(body)) == body


@pytest.mark.parametrize("value", [{}, [], {b"a": 1}, [1, [2]], [None] * 20, {n: n for n in range(70_000)}])
def test_a_map_or_array_is_no_scalar_and_can_be_passed_over(value: object) -> None:
    body = encode([value, 7])
    reader = BodyReader(body)
    assert reader.array_length(2, "it") == 2
    with pytest.raises(WireError, match="belongs"):
        reader.scalar()
    assert len(list(reader.skip())) == len(body) // 64 // SLICE_STEPS
    assert reader.scalar() == 7
    reader.end()


@given(st.lists(st.sampled_from([0, 3, 16_380, 16_384, 40_000]).map(bytes), min_size=1, max_size=8))
def test_bodies_that_are_longer_than_the_pieces_they_are_read_in(values: list[bytes]) -> None:
    reader = BodyReader(encode([values, *values]))
    assert reader.array_length(9, "it") == len(values) + 1
    for _ in reader.skip():
        pass
    assert [reader.scalar() for _ in values] == values
    reader.end()


@pytest.mark.parametrize("body", [b"", b"\x01", b"\xc1", b"\x81", b"\x81\xa1", b"\xdf\x00", b"\x91\x01"])
def test_what_is_no_map(body: bytes) -> None:
    def read() -> None:
        reader = BodyReader(body)
        for _ in range(reader.map_length(5, "it")):
            reader.scalar()
            list(reader.skip())
        reader.end()

    with pytest.raises(WireError):
        read()


def test_bounds_and_what_follows() -> None:
    with pytest.raises(WireError, match="names has 4294967295 entries"):
        BodyReader(b"\xdf\xff\xff\xff\xff").map_length(1000, "names")
    with pytest.raises(WireError, match="names has 3 entries"):
        BodyReader(b"\x93").array_length(2, "names")
    reader = BodyReader(b"\xc0\xc0\x01")
    assert (reader.map_length(0, "it"), reader.is_nil(), reader.is_nil()) == (0, True, False)
    with pytest.raises(WireError, match="follow"):
        reader.end()
    with pytest.raises(WireError):
        list(BodyReader(b"\x91" * 100_000 + b"\xc0").skip())


@given(st.binary(max_size=200))
def test_garbage_is_a_wire_error_or_nothing(body: bytes) -> None:
    reader = BodyReader(body)
    try:
        for _ in range(reader.map_length(50, "it")):
            reader.scalar()
            reader.scalar()
        reader.end()
    except WireError:
        pass
