"""Positions: how far the events of other stores are done, and which of them are forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.store.journal import Journal
from federation.stream.positions import POSITIONS_MAX, STARTS_MAX, Position, Positions
from federation.stream.serials import START_BITS


def done(positions: Positions, journal: Journal, store_id: str) -> Position:
    """A block of the store changes something here."""
    position = positions.of("n2", store_id)
    position.serial += 1
    journal.add(object())
    positions.changed(position)
    return position


def test_the_store_whose_events_came_first_is_forgotten() -> None:
    journal = Journal()
    positions = Positions(journal)
    first = done(positions, journal, "first")
    quiet = done(positions, journal, "quiet")
    for number in range(POSITIONS_MAX - 2):
        done(positions, journal, f"store {number}")
    assert positions.forgotten == 0
    done(positions, journal, "first")
    done(positions, journal, "one more")
    assert positions.forgotten == 1
    assert positions.of("n2", "first") is first
    assert positions.of("n2", "quiet") is not quiet


def test_a_store_that_was_forgotten_is_written_anew() -> None:
    journal = Journal()
    positions = Positions(journal)
    first = done(positions, journal, "first")
    for number in range(POSITIONS_MAX):
        done(positions, journal, f"store {number}")
    assert first.number == 0
    journal.add(object())
    positions.changed(first)
    assert journal.kept[first.number] is first
    assert positions.of("n2", "first") is first
    assert len(journal.kept) == POSITIONS_MAX


def test_a_node_that_tells_no_numbers_of_blocks_has_no_record() -> None:
    journal = Journal()
    positions = Positions(journal)
    journal.add(object())
    positions.changed(positions.of("n2", ""))
    assert journal.kept == {}


EARLIER, LATER = 1 << START_BITS, 2 << START_BITS


def test_a_block_of_an_earlier_start_that_comes_behind_a_later_one_is_not_done() -> None:
    """The disk of its node lacked it, and a copy had it."""
    position = Position("n2", "store")
    assert position.take(EARLIER | 7, 0, 2) == 0
    assert position.take(LATER | 1, 0, 3) == 0
    assert position.take(EARLIER | 9, 0, 4) == 0
    for serial, count in ((EARLIER | 7, 2), (EARLIER | 8, 5), (EARLIER | 9, 4), (LATER | 1, 3)):
        assert position.skips(serial, 0, count) == count
    assert position.skips(EARLIER | 9, 0, 6) == 4
    assert position.skips(EARLIER | 10, 0, 1) == position.skips(LATER | 2, 0, 1) == 0


block_taken = st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 3), st.integers(1, 3))


@given(st.lists(block_taken, max_size=30))
def test_positions_do_each_event_once_in_the_order_of_each_start(taken: list[tuple[int, int, int, int]]) -> None:
    """As a model that knows the newest event of each start; a record of the position knows the same."""
    position = Position("n2", "store")
    newest: dict[int, tuple[int, int]] = {}
    for start, number, done, count in taken:
        known = newest.get(start, (0, 0))
        expected = sum((number, place) <= known for place in range(done + 1, done + count + 1))
        assert position.take(start << START_BITS | number, done, count) == expected
        newest[start] = max(known, (number, done + count))
        _, _, *values = position.values(0.0)
        del values[2]
        position = Position("n2", "store")
        position.restore(tuple(values))


def test_starts_of_a_store_are_bounded() -> None:
    position = Position("n2", "store")
    for start in range(1, 3 * STARTS_MAX):
        position.take(start << START_BITS | 5, 0, 1)
    assert sorted(position.former) == list(range(2 * STARTS_MAX - 1, 3 * STARTS_MAX - 1))
