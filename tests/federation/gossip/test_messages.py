"""Messages of memberlist."""

from __future__ import annotations

from federation.gossip.messages import (
    Ping,
)

PING = Ping(1, "a", b"\x7f\x00\x00\x01", 17947, "b").encode()


def test_small_vectors_of_the_specification() -> None:
    assert PING.hex() == (
        "0085a44e6f6465a161a55365714e6f01aa536f7572636541646472a47f000001aa536f757263654e6f6465a162aa536f75726365506f7274cd461b"
    )
