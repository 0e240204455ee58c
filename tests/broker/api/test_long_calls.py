"""Long calls: their order, their share of the loop, their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker.api.long_calls import CALL_SECONDS, LongCalls, Steps


class Clock:
    """Each step of a call takes a quarter of its time in a turn."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def steps(clock: Clock, name: str, count: int, log: list[str]) -> Steps[str]:
    for _ in range(count):
        clock.now += CALL_SECONDS / 4
        log.append(name)
        yield
    return name


async def test_calls_take_turns_and_the_loop_goes_on_in_between(clock: Clock) -> None:
    long_calls = LongCalls(clock)
    log: list[str] = []
    ended = asyncio.Event()

    async def others() -> None:
        while not ended.is_set():
            log.append("|")
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    names = await asyncio.gather(*(long_calls.run(steps(clock, name, 10, log)) for name in "ab"))
    ended.set()
    await beside
    assert names == ["a", "b"]
    turns = [turn for turn in "".join(log).split("|") if turn]
    assert turns == ["aaaa", "bbbb", "aaaa", "bbbb", "aa", "bb"]


async def test_a_short_call_does_not_wait(clock: Clock) -> None:
    long_calls = LongCalls(clock)
    log: list[str] = []
    call = long_calls.run(steps(clock, "a", 3, log))
    with pytest.raises(StopIteration) as ended:
        call.send(None)  # it ends without having waited for anything
    assert (ended.value.value, log) == ("a", ["a"] * 3)


def failing() -> Iterator[None]:
    yield
    raise KeyError("x")


async def test_a_call_that_fails_or_is_cancelled_lets_the_next_one_run(clock: Clock) -> None:
    long_calls = LongCalls(clock)
    log: list[str] = []
    with pytest.raises(KeyError):
        await long_calls.run(failing())  # type: ignore[arg-type]
    long = asyncio.create_task(long_calls.run(steps(clock, "a", 1000, log)))
    waiting = asyncio.create_task(long_calls.run(steps(clock, "b", 1, log)))
    await asyncio.sleep(0)
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    assert await waiting == "b"
