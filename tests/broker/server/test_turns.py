"""The flush: at once for a small chunk that comes by itself, else at the end of the turn, with bounded work."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, cast

import pytest

from broker.broker import Broker
from broker.config.settings import MqttSettings
from broker.server.turns import CLOSES_MAX, FLUSH_WRITES_MAX, SINGLE_SECONDS, SMALL_CHUNK, Turns
from broker.session.connection import Connection
from broker.slices import Work


class Owner:
    """Records the output of its connection."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def carry_out(self, connection: Connection) -> None:
        self.written.append(connection.take_output())


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


class Node:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.broker = Broker(MqttSettings(), random.Random(1), self.loop.time())
        self.turns = Turns(self.broker, self.loop, cast(Any, None))
        self.owner = Owner()
        self.connection = self.open(self.owner)

    def open(self, owner: Owner) -> Connection:
        return Connection(self.broker, owner, "", "", self.loop.time())

    def chunk(self, size: int = 10, output: bytes = b"x") -> list[bytes]:
        """Handle a chunk of this size that makes some output. Returns what is written at once."""
        self.connection.write_packets(output, 1)
        self.turns.chunk_handled(size, self.loop.time())
        written, self.owner.written = self.owner.written, []
        return written

    async def next_turn(self) -> list[bytes]:
        await asyncio.sleep(0)
        written, self.owner.written = self.owner.written, []
        return written


async def test_a_small_chunk_by_itself_is_flushed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    node = Node()
    for size in (0, 1, SMALL_CHUNK):
        assert node.chunk(size) == [b"x"]
        clock.now += 2 * SINGLE_SECONDS
    assert node.chunk(SMALL_CHUNK + 1) == []
    assert await node.next_turn() == [b"x"]


async def test_chunks_close_together_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    node = Node()
    assert node.chunk() == [b"x"]
    clock.now += SINGLE_SECONDS / 2
    assert node.chunk(output=b"1") == []
    clock.now += SINGLE_SECONDS * 2
    assert node.chunk(output=b"2") == [], "the end of the turn is asked for already"
    assert await node.next_turn() == [b"12"]
    clock.now += SINGLE_SECONDS * 2
    assert node.chunk() == [b"x"]


async def test_a_turn_writes_to_a_bounded_number_of_connections() -> None:
    node = Node()
    owners = [Owner() for _ in range(FLUSH_WRITES_MAX + 10)]
    for owner in owners:
        node.open(owner).write_packets(b"x", 1)
    node.turns.flush_now(node.loop.time())
    assert sum(len(owner.written) for owner in owners) == FLUSH_WRITES_MAX
    await node.next_turn()
    assert [owner.written for owner in owners] == [[b"x"]] * len(owners)


async def test_a_turn_closes_a_bounded_number_of_sockets() -> None:
    """The others wait in the order in which their clients have gone."""

    class Wire(asyncio.Transport):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def close(self) -> None:
            closed.append(self.number)

    closed: list[int] = []
    node = Node()
    count = 3 * CLOSES_MAX + 1
    assert [node.turns.may_close(Wire(number)) for number in range(count)].count(True) == CLOSES_MAX
    after_turns = []
    while len(closed) < count - CLOSES_MAX:
        await node.next_turn()
        after_turns.append(len(closed))
    assert after_turns == [CLOSES_MAX, 2 * CLOSES_MAX, 2 * CLOSES_MAX + 1]
    assert closed == list(range(CLOSES_MAX, count))
    assert node.turns.may_close(Wire(count)), "this turn has closed one"
    await node.next_turn()
    assert [node.turns.may_close(Wire(number)) for number in range(CLOSES_MAX + 1)].count(True) == CLOSES_MAX


async def test_work_goes_on_in_later_turns() -> None:
    class Steps(Work):
        left = 3

        def go_on(self, now: float) -> bool:
            self.left -= 1
            return self.left == 0

    node = Node()
    work = Steps()
    node.broker.slices.later(work)
    node.turns.flush_now(node.loop.time())
    turns = 0
    while work.left:
        turns += 1
        await node.next_turn()
    assert turns == 3
    assert not node.broker.slices.has_work()
