"""Turns of readers beside publishers."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.event_log.turns import (
    MEAN_PIECES,
    PIECE_SECONDS,
    PIECE_SECONDS_MAX,
    REST,
    REST_SECONDS_MIN,
    Party,
    ReaderTurns,
)


class Writing:
    """What is written, and when it ends."""

    def __init__(self, is_writing: bool) -> None:
        self.is_writing = is_writing
        self.written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def turns(self) -> ReaderTurns:
        return ReaderTurns(lambda: self.is_writing, lambda: self.written)

    def end(self) -> None:
        self.is_writing = False
        self.written.set_result(None)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_piece_waits_until_records_are_written() -> None:
    """The first one, too."""
    writing = Writing(True)
    turns = writing.turns()
    turns.worked(3_600.0)
    done: list[int] = []
    first = asyncio.ensure_future(turns.do(lambda: done.append(1)))
    await settle()
    assert not done
    writing.end()
    await first
    assert done == [1]
    assert turns.rested > 0


@pytest.mark.parametrize("pieces", [1, 5])
async def test_beside_publishers_who_write_always_each_piece_waits_for_its_rest_only(pieces: int) -> None:
    """Also where they come at once, and none has ended."""
    turns = Writing(True).turns()
    await asyncio.gather(*(turns.come() for _ in range(pieces)))
    assert turns.rested >= pieces * REST * PIECE_SECONDS


async def test_short_pieces_have_their_rests_together() -> None:
    """The timers of the loop end late: with one for each piece, readers had less than their share."""
    turns = Writing(True).turns()
    waited = 0
    for _ in range(20):
        before = turns.rested
        await turns.come()
        turns.worked(0.0)
        waited += turns.rested > before
    assert turns.rested + REST_SECONDS_MIN >= 20 * REST * PIECE_SECONDS
    assert waited <= 20 * REST * PIECE_SECONDS / REST_SECONDS_MIN + 1 < 20


async def test_the_first_piece_beside_publishers_who_come_back_waits() -> None:
    writing = Writing(True)
    turns = writing.turns()
    await turns.come()
    for is_writing, waits in ((True, False), (False, False), (True, True)):
        writing.is_writing = is_writing
        before = turns.rested
        await turns.come()
        assert (turns.rested > before) == waits


def test_a_piece_that_waits_long_for_its_disk_makes_no_long_rest() -> None:
    turns = ReaderTurns(lambda: True, asyncio.Future)
    for _ in range(3 * MEAN_PIECES):
        turns.worked(3_600.0)
    assert turns.rest <= REST * PIECE_SECONDS_MAX


@given(st.lists(st.floats(PIECE_SECONDS, PIECE_SECONDS_MAX), min_size=1, max_size=50))
def test_the_rests_are_so_many_times_as_long_as_the_pieces(seconds: list[float]) -> None:
    """Of many pieces together; the last ones are those to come."""

    turns = ReaderTurns(lambda: True, asyncio.Future)
    rests = 0.0
    for piece in seconds + [PIECE_SECONDS] * 200:
        rests += turns.rest
        turns.worked(piece)
    assert rests == pytest.approx(REST * (sum(seconds) + 200 * PIECE_SECONDS), rel=1e-6)


async def test_nobody_waits_while_nothing_is_written() -> None:
    turns = Writing(False).turns()
    turns.worked(3_600.0)
    await turns.come()
    assert turns.rested < 3_600.0


async def test_the_parties_of_a_party_have_turns_like_one() -> None:
    turns = Writing(False).turns()
    order: list[str] = []
    strangers = Party(turns)
    parties = {"a": Party(turns), **{f"stranger {number}": Party(strangers) for number in range(3)}}

    async def twice(name: str) -> None:
        for _ in range(2):
            await parties[name].do(lambda: order.append(name))

    await asyncio.gather(*map(twice, parties))
    assert len(order) == 2 * len(parties)
    assert order.index("a", order.index("a") + 1) <= 3, "at most two strangers came before its second piece"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_parties_have_the_same_number_of_turns(sizes: list[int]) -> None:
    """However many readers each of them has."""

    async def run() -> list[int]:
        turns = Writing(False).turns()
        order: list[int] = []
        parties = [Party(turns) for _ in sizes]
        pieces = [
            parties[number].do(lambda number=number: order.append(number))  # type: ignore[misc]
            for number, size in enumerate(sizes)
            for _ in range(size)
        ]
        await asyncio.gather(*pieces)
        return order

    order = asyncio.run(run())
    assert sorted(order) == sorted(number for number, size in enumerate(sizes) for _ in range(size))
    done = [0] * len(sizes)
    for number in order:
        done[number] += 1
        left = [other for other, size in enumerate(sizes) if done[other] < size]
        assert all(done[number] <= done[other] + 1 for other in left)
