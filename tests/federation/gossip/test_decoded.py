"""Broadcasts that were decoded lately."""

from __future__ import annotations

import pytest

from federation.gossip.decoded import DECODED_BYTES_MAX, DECODED_MAX, DecodedBroadcasts
from federation.gossip.errors import WireError
from federation.gossip.messages import DEAD, OUR_VERSIONS, SUSPECT, Accusation, Alive
from federation.gossip.msgpack_fields import encode


def test_equal_broadcasts_are_decoded_once_and_others_for_themselves() -> None:
    decoded = DecodedBroadcasts()
    alive = Alive(3, "n2", bytes(4), 8902, b"\xff\x80", OUR_VERSIONS)
    assert decoded.alive(alive.encode()) == alive
    assert decoded.alive(alive.encode()) is decoded.alive(alive.encode())
    newer = Alive(4, "n2", bytes(4), 8902, b"\xff\x80", OUR_VERSIONS)
    assert decoded.alive(newer.encode()) == newer
    accused = Accusation(3, "n2", "n3")
    assert decoded.accusation(accused.encode(SUSPECT)) == accused
    assert decoded.accusation(accused.encode(DEAD)) == accused


def test_what_does_not_decode_is_not_kept() -> None:
    decoded = DecodedBroadcasts()
    for _ in range(2):
        with pytest.raises(WireError):
            decoded.alive(b"\x04\xc1")
        with pytest.raises(WireError):
            decoded.accusation(b"\x03\x80\x80")


def test_it_keeps_a_bounded_number_of_short_ones() -> None:
    decoded = DecodedBroadcasts()
    first = Accusation(1, "n0", "n")
    kept = decoded.accusation(first.encode(SUSPECT))
    for number in range(1, DECODED_MAX):
        decoded.accusation(Accusation(1, f"n{number}", "n").encode(SUSPECT))
    assert decoded.accusation(first.encode(SUSPECT)) is kept
    decoded.accusation(Accusation(1, "one more", "n").encode(SUSPECT))
    assert decoded.accusation(first.encode(SUSPECT)) is not kept
    # A message may have further fields of any length; such a one is decoded each time.
    fields = {"Incarnation": 1, "Node": "n0", "From": "n", "Zone": b"z" * DECODED_BYTES_MAX}
    long = bytes((SUSPECT,)) + encode(fields)
    assert decoded.accusation(long) == first
    assert decoded.accusation(long) is not decoded.accusation(long)
