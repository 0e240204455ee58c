"""Message bodies."""

from __future__ import annotations

import tracemalloc

import pytest

from federation.gossip.errors import WireError
from federation.gossip.msgpack_fields import decode


def test_room_for_an_array_is_not_reserved_before_its_elements_arrive() -> None:
    claims = b"\xdc\xf0\x00" * 500  # 500 arrays in one another of 61,440 elements each: 246 MB of room
    body = claims + bytes(62_000 - len(claims))
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="not msgpack"):
            decode(body)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert decode(b"\x92\x01\xa1x") == [1, b"x"]
    with pytest.raises(WireError, match="bytes follow it"):
        decode(b"\x01\x02")
