"""Turns of checks: how many run, who waits, what happens to those without a place, and to those that may not begin yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from broker.auth.check_queue import CheckPool, CheckQueue, NotChecked
from broker.auth.failed_logins import Start
from waiting import DEADLINE


class Checks:
    """Checks in a queue that run until the gate opens."""

    def __init__(self, queue: CheckQueue) -> None:
        self.opened = asyncio.Event()
        self.running: list[str] = []
        self.most = 0
        self._queue = queue

    def begin(self, name: str, start: Callable[[], Start] = lambda: Start.NOW) -> asyncio.Task[str]:
        """The address is the first letter of the name."""

        async def run() -> str:
            async with self._queue.turn(name[0], start):
                self.running.append(name)
                self.most = max(self.most, len(self.running))
                await self.opened.wait()
                self.running.remove(name)
            return name

        return asyncio.ensure_future(run())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_queue_bounds_the_checks_that_run() -> None:
    queue = CheckQueue(2)
    checks = Checks(queue)
    tasks = [checks.begin(f"a{number}") for number in range(5)]
    await settle()
    assert (checks.running, queue.waiting) == (["a0", "a1"], 3)
    checks.opened.set()
    async with asyncio.timeout(DEADLINE):
        assert len(await asyncio.gather(*tasks)) == 5
    assert checks.most == 2


async def test_a_check_without_a_place_is_refused() -> None:
    """One of an address with fewer takes the place of one with more."""
    queue = CheckQueue(2, waiting_max=3)
    checks = Checks(queue)
    tasks = [checks.begin(f"a{number}") for number in range(6)]
    await settle()
    other = checks.begin("b0")
    await settle()
    checks.opened.set()
    async with asyncio.timeout(DEADLINE):
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert await other == "b0"
    assert [isinstance(result, NotChecked) for result in results] == [False] * 4 + [True] * 2
    assert queue.refused == 2


async def test_a_check_that_never_may_begin_does_not_run() -> None:
    queue = CheckQueue(1)
    checks = Checks(queue)
    running = checks.begin("a0")
    await settle()
    unwanted = checks.begin("b0", lambda: Start.NEVER)
    checks.opened.set()
    async with asyncio.timeout(DEADLINE):
        assert await running == "a0"
        with pytest.raises(NotChecked):
            await unwanted


async def test_a_check_that_may_begin_later_keeps_its_place_and_no_other_address_from_its_turn() -> None:
    queue = CheckQueue(2)
    checks = Checks(queue)
    start = Start.LATER
    later = checks.begin("a0", lambda: start)
    behind = checks.begin("a1")
    other = checks.begin("b0")
    await settle()
    assert checks.running == ["b0"]
    start = Start.NOW
    queue.advance()
    await settle()
    assert checks.running == ["b0", "a0"]
    checks.opened.set()
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(later, behind, other)


async def test_a_caller_that_is_cancelled_leaves_its_place() -> None:
    queue = CheckQueue(1)
    checks = Checks(queue)
    tasks = [checks.begin(name) for name in ("a0", "b0", "c0")]
    await settle()
    tasks[1].cancel()
    await settle()
    checks.opened.set()
    async with asyncio.timeout(DEADLINE):
        assert await tasks[2] == "c0"


async def test_the_stop_ends_those_that_wait() -> None:
    queue = CheckQueue(2)
    checks = Checks(queue)
    tasks = [checks.begin(f"a{number}") for number in range(4)]
    await settle()
    queue.stop()
    checks.opened.set()
    async with asyncio.timeout(DEADLINE):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, NotChecked) for result in results] == [False, False, True, True]
    with pytest.raises(NotChecked):
        await checks.begin("a9")


async def test_a_fault_in_a_thread_reaches_its_caller_only() -> None:
    def fail() -> int:
        raise KeyError("x")

    pool = CheckPool(1)
    with pytest.raises(KeyError):
        await pool.run(fail)
    assert await pool.run(lambda: 1) == 1
    pool.stop()
