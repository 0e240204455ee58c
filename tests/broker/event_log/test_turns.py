"""Turns of readers beside publishers."""

from __future__ import annotations

import asyncio
import time

from hypothesis import given
from hypothesis import strategies as st

from broker.event_log.turns import REST, Party, ReaderTurns


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
    writing = Writing(True)
    turns = writing.turns()
    done: list[int] = []
    await turns.do(lambda: done.append(1))
    turns.worked(3_600.0)
    second = asyncio.ensure_future(turns.do(lambda: done.append(2)))
    await settle()
    assert done == [1]
    writing.end()
    await second
    assert done == [1, 2]
    assert turns.rested > 0


async def test_beside_publishers_who_write_always_a_piece_waits_for_its_rest_only() -> None:
    turns = Writing(True).turns()
    turns.worked(1e-3)
    turns.worked(1e-3)  # of another reader at the same time: the rests follow each other
    began_at = time.perf_counter()
    await turns.come()
    assert time.perf_counter() - began_at > REST * 1e-3
    assert turns.rested > REST * 1e-3


async def test_nobody_waits_while_nothing_is_written() -> None:
    turns = Writing(False).turns()
    turns.worked(3_600.0)
    turns.worked(3_600.0)
    await turns.come()
    assert turns.rested < 3_600.0


async def test_what_was_read_before_publishers_came_counts_once() -> None:
    writing = Writing(False)
    turns = writing.turns()
    for _ in range(100):
        turns.worked(3_600.0)
    turns.worked(0.0)
    writing.is_writing = True
    await turns.come()


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
