"""Reads of the log beside the loop's other work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.event_log.readers import TURNS_BETWEEN_PIECES
from broker.event_log.segment_reader import PIECE_BYTES
from event_log_reader import MakeLog, read_all

pytestmark = pytest.mark.uncompiled


async def test_the_loop_has_its_turns_between_the_pieces_of_a_read(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await make_log(segment_bytes=2**24)
    payloads = [b"%d" % number * PIECE_BYTES for number in range(3)]
    for payload in payloads:
        log.append(b"t", payload)
        await log.flush()
    loop = asyncio.get_running_loop()

    def run_at_once(_threads: object, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = loop.create_future()
        done.set_result(work(*arguments))
        return done

    monkeypatch.setattr(loop, "run_in_executor", run_at_once)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    assert [record.payload for record in await read_all(log)] == payloads
    counting.cancel()
    assert turns >= 2 * TURNS_BETWEEN_PIECES
