"""Which worker serves a new connection: numbers that all see, and sockets that are passed on."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from hypothesis import given
from hypothesis import strategies as st

from broker.server.accepting import Accepting, passes
from broker.server.shared_counts import ABSENT, QUIET_SECONDS_MAX, SharedCounts
from broker.server.shared_figures import SharedFigures
from broker.server.worker import Worker
from broker.workers.shares import Place


@given(st.integers(2, 8), st.integers(0, 1_000), st.randoms())
def test_numbers_stay_near_each_other_whatever_the_kernel_does(
    count: int, connections: int, rng: random.Random
) -> None:
    """Also where it gives all connections to one worker."""
    numbers = [0] * count
    favourite = rng.randrange(count)
    for _ in range(connections):
        worker = favourite if rng.random() < 0.8 else rng.randrange(count)
        least = min(range(count), key=lambda index: numbers[index])
        numbers[least if passes(numbers[worker], numbers[least]) else worker] += 1
    assert max(numbers) - min(numbers) <= 5 + min(numbers) // 32 + 1


def test_a_worker_that_takes_nothing_is_never_the_one_with_the_fewest() -> None:
    counts = SharedCounts(3)
    for index in range(6):
        counts.lives(index, 100.0)
    counts.set(1, 7)
    assert counts.least(100.0) == (1, 7)
    counts.set(0, 3)
    assert counts.least(100.0) == (0, 3)
    assert counts.of_others(0) == 7
    counts.set(0, ABSENT)
    assert counts.least(100.0) == (1, 7)
    assert counts.of_others(2) == 7
    counts.set(5, 1)  # a worker that leaves


def test_a_worker_that_hangs_gets_no_connections_of_others_and_counts_with_those_that_it_has() -> None:
    counts = SharedCounts(2)
    for index, number in ((0, 9), (1, 3)):
        counts.lives(index, 100.0)
        counts.set(index, number)
    counts.lives(0, 101.0)
    assert counts.least(101.0) == (1, 3)
    counts.lives(0, 100.1 + QUIET_SECONDS_MAX)
    assert counts.least(100.1 + QUIET_SECONDS_MAX) == (0, 9)
    assert counts.of_others(0) == 3
    assert counts.least(200.0)[1] == ABSENT, "the whole node stood still"


def test_all_processes_see_one_number() -> None:
    counts = SharedCounts(2)
    child = os.fork()
    if child == 0:
        counts.set(1, 42)
        os._exit(0)
    os.waitpid(child, 0)
    counts.lives(1, 1.0)
    assert counts.least(1.0) == (1, 42)


class Greets(asyncio.Protocol):
    """Says which worker it is of."""

    def __init__(self, name: bytes, made: Callable[[], None]) -> None:
        self.name = name
        self.made = made

    def connection_made(self, transport: Any) -> None:
        self.made()
        transport.write(self.name)


async def test_sockets_are_passed_to_the_worker_with_the_fewest_and_kept_when_it_has_ended(tmp_path: Path) -> None:
    counts = SharedCounts(2)
    numbers = [20, 0]
    workers: list[Accepting] = []

    def counter(index: int) -> Callable[[], None]:
        def made() -> None:
            numbers[index] += 1
            counts.set(index, numbers[index])

        return made

    sockets = socket.socketpair()
    for index in range(2):
        counts.set(index, numbers[index])
        counts.lives(index, asyncio.get_running_loop().time() + 3600.0)  # the test may take its time
        place = Place(index, 2, False, {0: 1, 1: 2}, "")
        worker = Worker(
            place, str(tmp_path), sockets, {}, sockets[0], counts, False, SharedFigures(range(place.count)), 0.0
        )
        workers.append(Accepting(worker, lambda index=index: numbers[index], structlog.get_logger()))  # type: ignore[misc]
        workers[-1].start()
    made = [counter(0), counter(1)]
    (listening,) = workers[0].listen(3, "127.0.0.1", 0, 10, lambda: Greets(b"0", made[0]), False)
    (own,) = workers[0].listen(4, "127.0.0.1", 0, 10, lambda: Greets(b"0", made[0]), True)
    workers[1]._makers[3] = lambda: Greets(b"1", made[1])

    async def served_by(at: socket.socket = listening) -> bytes:
        reader, writer = await asyncio.open_connection(*at.getsockname())
        name = await reader.read(1)
        writer.close()
        return name

    assert [await served_by() for _ in range(3)] == [b"1"] * 3
    assert workers[0].passed == 3
    assert await served_by(own) == b"0", "the other worker has no such listener"
    workers[1].close()  # it has ended, and its number is still there
    assert await served_by() == b"0"
    workers[0].close()
    for sock in sockets:
        sock.close()
