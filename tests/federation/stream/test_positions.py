"""Positions: how far the events of other stores are done, and which of them are forgotten."""

from __future__ import annotations

from broker.store.journal import Journal
from federation.stream.positions import POSITIONS_MAX, Position, Positions


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
