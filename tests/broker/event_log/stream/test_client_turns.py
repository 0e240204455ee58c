"""Turns of clients that read a log: how many at once, and whose is next."""

from __future__ import annotations

import asyncio

from broker.event_log.stream.client_turns import ClientTurns


class Reads:
    """begun  whose reads have begun, in order; each goes on until it is ended"""

    def __init__(self, count: int) -> None:
        self.turns = ClientTurns(count)
        self.begun: list[str] = []
        self._ends: list[asyncio.Event] = []

    async def _read(self, client_id: str) -> None:
        async with self.turns.turn(client_id):
            self.begun.append(client_id)
            end = asyncio.Event()
            self._ends.append(end)
            await end.wait()

    async def ask(self, client_id: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._read(client_id))
        await settled()
        return task

    async def end(self) -> None:
        """The read that began first ends."""
        self._ends.pop(0).set()
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_each_client_that_waits_has_one_turn_before_any_has_a_second() -> None:
    reads = Reads(2)
    tasks = [await reads.ask(client_id) for client_id in ["many"] * 6 + ["one", "two", "one"]]
    assert reads.begun == ["many"] * 2
    for _ in tasks:
        await reads.end()
    assert reads.begun == ["many", "many", "many", "one", "two", "many", "one", "many", "many"]
    await asyncio.gather(*tasks)
    assert reads.turns.free == 2


async def test_who_waits_no_more_takes_no_turn() -> None:
    reads = Reads(1)
    first, gone, last = [await reads.ask(client_id) for client_id in ("a", "b", "c")]
    gone.cancel()
    await settled()
    await reads.end()
    assert reads.begun == ["a", "c"]
    await reads.end()
    await asyncio.gather(first, last)
    assert reads.turns.free == 1


async def test_who_is_cancelled_when_the_turn_comes_hands_it_on() -> None:
    reads = Reads(1)
    async with reads.turns.turn("a"):
        gone, last = await reads.ask("b"), await reads.ask("c")
    gone.cancel()  # its turn has come, and it has not run since
    await settled()
    assert gone.cancelled()
    assert reads.begun == ["c"]
    await reads.end()
    await last
    assert reads.turns.free == 1
