"""The timers of a node's loop, as the shells of cores set them."""

from __future__ import annotations

import asyncio
from collections import Counter

from broker.server.node_loop import NodeLoop

TURNS = 20
TIMERS = 20  # of each turn, a millisecond apart


def test_a_timer_does_not_turn_until_its_time_has_come() -> None:
    """A core that is asked too early names the same time again."""
    calls: Counter[int] = Counter()

    async def wait_for_all() -> None:
        loop = asyncio.get_running_loop()
        all_fired = loop.create_future()
        due = TURNS * TIMERS

        def fired(number: int, at: float) -> None:
            nonlocal due
            calls[number] += 1
            if loop.time() < at:
                loop.call_at(at, fired, number, at)
                return
            due -= 1
            if due == 0:
                all_fired.set_result(None)

        for turn in range(TURNS):
            for number in range(TIMERS):
                at = loop.time() + number * 0.001
                loop.call_at(at, fired, turn * TIMERS + number, at)
            await asyncio.sleep(0.001)
        await all_fired

    with asyncio.Runner(loop_factory=NodeLoop) as runner:
        runner.run(wait_for_all())
    assert len(calls) == TURNS * TIMERS
    assert max(calls.values()) <= 2
