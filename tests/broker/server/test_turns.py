"""Which chunks count as alone."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, cast

from broker.broker import Broker
from broker.config.settings import MqttSettings
from broker.server.turns import ALONE_SECONDS, SMALL_CHUNK, Turns


def make() -> Turns:
    loop = asyncio.get_running_loop()
    return Turns(Broker(MqttSettings(), random.Random(1), loop.time()), loop, cast(Any, None))


def pass_time() -> None:
    """A loop that stands still for long enough."""
    since = time.time()
    while time.time() - since < 2 * ALONE_SECONDS:
        pass


async def test_small_chunks_with_time_between_them_are_alone() -> None:
    turns = make()
    for size in (0, 1, SMALL_CHUNK):
        assert turns.is_alone(size)
        pass_time()
    assert not turns.is_alone(SMALL_CHUNK + 1)
    assert turns.is_alone(SMALL_CHUNK)


async def test_many_at_once_are_not() -> None:
    turns = make()
    since = time.time()
    found = sum([turns.is_alone(10) for _ in range(10_000)])
    assert 1 <= found <= (time.time() - since) / ALONE_SECONDS + 1


async def test_what_waits_for_the_end_of_the_turn_goes_first() -> None:
    turns = make()
    turns.flush_soon()
    assert not turns.is_alone(10)
    await asyncio.sleep(0)
    assert turns.is_alone(10)
