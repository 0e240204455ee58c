"""Which worker serves a new connection: numbers that all see, and sockets that are passed on."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from broker.server import accepting
from broker.server.accepting import Accepting, passes
from broker.server.shared_counts import ABSENT, SharedCounts
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
    for index in range(3):
        counts.takes(index, 2.0)
    counts.set(1, 7)
    assert counts.least(1.0) == (1, 7)
    counts.set(0, 3)
    assert counts.least(1.0) == (0, 3)
    assert counts.of_others(0) == 7
    counts.set(0, ABSENT)
    assert counts.least(1.0) == (1, 7)
    assert counts.of_others(2) == 7
    counts.set(5, 1)  # a worker that leaves
    counts.takes(5, 2.0)


def test_all_processes_see_one_number() -> None:
    counts = SharedCounts(2)
    child = os.fork()
    if child == 0:
        counts.set(1, 42)
        counts.takes(1, 2.0)
        os._exit(0)
    os.waitpid(child, 0)
    assert counts.least(1.0) == (1, 42)


class Greets(asyncio.Protocol):
    """Says which worker it is of."""

    def __init__(self, name: bytes, made: Callable[[], None]) -> None:
        self.name = name
        self.made = made

    def connection_made(self, transport: Any) -> None:
        self.made()
        transport.write(self.name)


class Workers:
    """Two of them; the first one listens. numbers: their connections; has_room: whether they take clients"""

    def __init__(self, folder: Path, *numbers: int) -> None:
        self.counts = SharedCounts(2)
        self.numbers = list(numbers)
        self.has_room = [True, True]
        self._sockets = socket.socketpair()
        self.workers: list[Accepting] = []
        for index in range(2):
            self.counts.set(index, self.numbers[index])
            place = Place(index, 2, False, {0: 1, 1: 2}, "")
            figures = SharedFigures(range(place.count))
            worker = Worker(place, str(folder), self._sockets, {}, self._sockets[0], self.counts, False, figures, 0.0)
            connections, has_room = partial(self.numbers.__getitem__, index), partial(self.has_room.__getitem__, index)
            self.workers.append(Accepting(worker, connections, has_room, structlog.get_logger()))
            self.workers[-1].start()
        (self.shared,) = self.workers[0].listen(3, "127.0.0.1", 0, 10, lambda: Greets(b"0", self.counter(0)), False)
        (self.own,) = self.workers[0].listen(4, "127.0.0.1", 0, 10, lambda: Greets(b"0", self.counter(0)), True)
        self.workers[1]._makers[3] = lambda: Greets(b"1", self.counter(1))

    def counter(self, index: int) -> Callable[[], None]:
        def made() -> None:
            self.numbers[index] += 1
            self.counts.set(index, self.numbers[index])

        return made

    async def served_by(self, at: socket.socket | None = None) -> bytes:
        reader, writer = await asyncio.open_connection(*(at or self.shared).getsockname())
        name = await reader.read(1)
        writer.close()
        return name

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        for sock in self._sockets:
            sock.close()


@pytest.fixture
async def make_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Workers]]:
    monkeypatch.setattr(accepting, "TAKES_SECONDS", 3600.0)  # the test may take its time
    made: list[Workers] = []

    def make(*numbers: int) -> Workers:
        made.append(Workers(tmp_path, *numbers))
        return made[-1]

    yield make
    for workers in made:
        workers.close()


async def test_sockets_are_passed_to_the_worker_with_the_fewest_and_kept_when_it_has_ended(
    make_workers: Callable[..., Workers],
) -> None:
    workers = make_workers(20, 0)
    assert [await workers.served_by() for _ in range(3)] == [b"1"] * 3
    assert workers.workers[0].passed == 3
    assert await workers.served_by(workers.own) == b"0", "the other worker has no such listener"
    workers.workers[1].close()  # it has ended, and its number is still there
    assert await workers.served_by() == b"0"


async def test_a_worker_without_room_gets_no_sockets_and_passes_its_own(make_workers: Callable[..., Workers]) -> None:
    workers = make_workers(20, 0)
    workers.has_room[1] = False
    workers.workers[1]._say(False)
    assert [await workers.served_by() for _ in range(3)] == [b"0"] * 3
    workers.has_room[1] = True
    workers.workers[1]._say(True)
    workers.numbers[:] = [0, 50]
    workers.has_room[0] = False
    assert [await workers.served_by() for _ in range(3)] == [b"1"] * 3
    workers.has_room[1] = False
    workers.workers[1]._say(False)
    assert await workers.served_by() == b"0", "where none has room each refuses its own"


def test_a_worker_that_has_not_said_so_for_a_while_takes_no_clients() -> None:
    counts = SharedCounts(3)
    assert counts.least(10.0) is None
    for index, (number, until) in enumerate(((9, 12.0), (0, 10.5), (5, 12.0))):
        counts.set(index, number)
        counts.takes(index, until)
    found = [counts.least(now) for now in (10.0, 11.0, 12.5)]
    assert found == [(1, 0), (2, 5), None]
    counts.takes(2, 0.0)
    assert counts.least(11.0) == (0, 9)


def test_a_worker_loads_until_it_has_read_its_store_or_was_started_again() -> None:
    counts = SharedCounts(3)
    counts.has_loaded(0)
    counts.has_loaded(2)
    counts.has_loaded(7)  # a worker that leaves
    assert counts.is_loading()
    counts.set_restarts(1, 1)
    assert not counts.is_loading()
    counts.set_restarts(1, 0)
    counts.has_loaded(1)
    assert not counts.is_loading()
