"""Holds of groups of readers: forward only, by group, and back from their file."""

from __future__ import annotations

import pytest

from broker.event_log.holds import HOLDS_MAX, Hold, Holds, decode_holds, encode_holds


@pytest.fixture
def holds() -> Holds:
    made = Holds()
    made.put("g", "1", 30, 1)
    made.put("g", "2", 10, 2)
    made.put("h", "1", 20, 3)
    return made


def test_a_hold_moves_forward_only(holds: Holds) -> None:
    holds.put("g", "2", 15, 4)
    holds.put("g", "2", 5, 5)
    assert Hold("g", "2", 15, 5) in holds.all()
    assert (holds.lowest(), holds.highest()) == (15, 30)


@pytest.mark.parametrize(("group", "query", "count"), [("g", "1", 1), ("g", "", 2), ("g", "3", 0), ("x", "", 0)])
def test_release(holds: Holds, group: str, query: str, count: int) -> None:
    assert holds.remove(group, query) == count
    assert holds.remove(group, query) == 0
    assert len(holds.all()) == 3 - count


def test_holds_of_removed_records_are_released(holds: Holds) -> None:
    assert [hold.offset for hold in holds.remove_below(20)] == [10]
    assert [hold.offset for hold in holds.remove_below(31)] == [30, 20]
    assert (holds.lowest(), holds.highest()) == (None, 0)


def test_their_number_is_bounded() -> None:
    holds = Holds(Hold("g", str(number), 0, 0) for number in range(HOLDS_MAX))
    assert not holds.has_room("g", "one more")
    assert holds.has_room("g", "0")


def test_the_file(holds: Holds) -> None:
    data = encode_holds("id", holds, 3)
    found = decode_holds(data)
    assert found is not None
    assert (found[0], found[1].all()) == ("id", holds.all())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"log_id": "id"}',
        b'{"log_id": "id", "holds": [{}]}',
        b"\xff",
        b'{"log_id": "id", "holds": 3}',
    ],
)
def test_a_damaged_file(data: bytes) -> None:
    assert decode_holds(data) is None
