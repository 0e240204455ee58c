"""Checks in threads: how many run, who waits, and what happens to those without a place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from broker.auth.check_pool import CheckPool, NotChecked

TIMEOUT = 30.0


@pytest.fixture
async def pool() -> AsyncIterator[CheckPool]:
    made = CheckPool(2, waiting_max=3)
    yield made
    made.stop()


class Gate:
    """Calls that run until the gate opens."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.running = 0
        self.most = 0
        self._lock = threading.Lock()

    def call(self) -> int:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.opened.wait(TIMEOUT)
        with self._lock:
            self.running -= 1
        return 7


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_the_threads_bound_the_checks_that_run(pool: CheckPool) -> None:
    gate = Gate()
    calls = [asyncio.ensure_future(pool.run("a", gate.call, lambda: True)) for _ in range(5)]
    await settle()
    gate.opened.set()
    async with asyncio.timeout(TIMEOUT):
        assert await asyncio.gather(*calls) == [7] * 5
    assert gate.most <= 2


async def test_a_check_without_a_place_is_refused(pool: CheckPool) -> None:
    """One of an address with fewer takes the place of one with more."""
    gate = Gate()
    calls = [asyncio.ensure_future(pool.run("a", gate.call, lambda: True)) for _ in range(6)]
    await settle()
    other = asyncio.ensure_future(pool.run("b", gate.call, lambda: True))
    await settle()
    gate.opened.set()
    async with asyncio.timeout(TIMEOUT):
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert await other == 7
    assert [result == 7 for result in results] == [True, True, True, True, False, False]
    assert all(isinstance(result, NotChecked) for result in results[4:])
    assert pool.refused == 2


async def test_a_check_that_is_not_wanted_any_more_does_not_run(pool: CheckPool) -> None:
    gate = Gate()
    calls = [asyncio.ensure_future(pool.run("a", gate.call, lambda: True)) for _ in range(2)]
    await settle()
    unwanted = asyncio.ensure_future(pool.run("b", lambda: pytest.fail("it ran"), lambda: False))
    await settle()
    gate.opened.set()
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(*calls)
        with pytest.raises(NotChecked):
            await unwanted


async def test_a_fault_reaches_its_caller_only(pool: CheckPool) -> None:
    def fail() -> int:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await pool.run("a", fail, lambda: True)
    assert await pool.run("a", lambda: 1, lambda: True) == 1


async def test_the_stop_ends_those_that_wait(pool: CheckPool) -> None:
    gate = Gate()
    calls = [asyncio.ensure_future(pool.run("a", gate.call, lambda: True)) for _ in range(4)]
    await settle()
    pool.stop()
    gate.opened.set()
    async with asyncio.timeout(TIMEOUT):
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(result, NotChecked) for result in results] == [False, False, True, True]
    with pytest.raises(NotChecked):
        await pool.run("a", lambda: 1, lambda: True)
