"""The memory of connections before CONNECT: the sum, and which of them ends."""

from __future__ import annotations

from broker.unaccepted import Unaccepted


def test_the_oldest_ends_until_the_rest_is_within_the_bound() -> None:
    found = Unaccepted()
    for name in ("a", "b", "c"):
        found.note(name, 10)
    assert found.take_oldest(30) is None
    found.note("a", 25)  # further input does not make it younger
    assert found.take_oldest(30) == "a"
    assert found.take_oldest(30) is None
    assert (found.bytes, found.closed, len(found)) == (20, 1, 2)


def test_accepted_and_ended_connections_count_no_more() -> None:
    found = Unaccepted()
    found.note("a", 10)
    found.note("b", 10)
    found.forget("a")
    found.forget("a")
    assert (found.bytes, len(found)) == (10, 1)
    found.note("b", 4)
    assert found.bytes == 4
    assert found.take_oldest(3) == "b"
    assert (found.bytes, found.take_oldest(0)) == (0, None)
