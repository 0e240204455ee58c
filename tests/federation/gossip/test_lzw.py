"""LZW: compressed bytes come back; broken and endless input is refused."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.errors import WireError
from federation.gossip.lzw import Decompressor, compress, decompress
from lzw_encoder import packed_zeros


@given(st.binary(max_size=3000))
def test_lzw_gives_back_its_input(data: bytes) -> None:
    assert decompress(compress(data), len(data)) == data


@given(st.lists(st.sampled_from([b"a", b"ab", b"\x00", bytes(300)]), max_size=200))
def test_lzw_with_much_repetition(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert decompress(compress(data), len(data)) == data


def test_lzw_through_full_tables() -> None:
    data = bytes(Random(1).choices(range(7), k=100_000))
    assert decompress(compress(data), len(data)) == data


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x01", b"\xff\xff\xff\xff", b"\x05\x05"])
def test_lzw_garbage(data: bytes) -> None:
    with pytest.raises(WireError):
        decompress(data, 1000)


def test_lzw_bomb_is_stopped() -> None:
    with pytest.raises(WireError, match="grows past 1000 bytes"):
        decompress(compress(bytes(1_000_000)), 1000)


@pytest.mark.parametrize("count", [0, 1, 2, 255, 256, 70_000, 7_400_000, 9_000_000])
def test_zeros_come_back_from_little(count: int) -> None:
    packed = packed_zeros(b"head", count)
    assert decompress(packed, 10_000_000) == b"head" + bytes(count)
    assert len(packed) < 30_000
    with pytest.raises(WireError, match="past"):
        decompress(packed, count + 3)


@given(st.binary(max_size=3000), st.lists(st.integers(1, 50), min_size=1))
def test_pieces_give_what_the_whole_gives(data: bytes, cuts: list[int]) -> None:
    packed = compress(data) + b"and what follows"
    decoder, found, at = Decompressor(len(data)), b"", 0
    while at < len(packed):
        for cut in cuts:
            found += decoder.receive_data(packed[at : at + cut])
            at += cut
    assert decoder.is_over
    assert found == data
