"""Reads of the log beside its writes."""

from __future__ import annotations

import asyncio

import pytest

from broker.event_log.appender import State
from broker.event_log.readers import PIECE_BYTES
from event_log_reader import MakeLog, read_all


@pytest.mark.parametrize(("state", "rests"), [(State.IDLE, 0), (State.WRITING, 3), (State.REFUSING, 0)])
async def test_a_read_rests_after_each_piece_while_records_are_written(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, state: State, rests: int
) -> None:
    log = await make_log(segment_bytes=2**24)
    payloads = [b"%d" % number * (PIECE_BYTES * 9 // 10) for number in range(3)]
    for payload in payloads:
        log.append(b"t", payload)
        await log.flush()
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        if seconds:
            found.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(log.appender, "state", state)
    assert [record.payload for record in await read_all(log)] == payloads
    assert len(found) == rests
    assert all(seconds > 0 for seconds in found)
    assert log.readers.rested == pytest.approx(sum(found))
    monkeypatch.undo()


async def test_the_rests_of_several_reads_follow_each_other(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await make_log()
    log.append(b"t", b"x")
    await log.flush()
    resting = 0
    most = 0
    sleep = asyncio.sleep

    async def rest(_seconds: float) -> None:
        nonlocal resting, most
        resting += 1
        most = max(most, resting)
        await sleep(0)
        await sleep(0)
        resting -= 1

    monkeypatch.setattr(asyncio, "sleep", rest)
    monkeypatch.setattr(log.appender, "state", State.WRITING)
    await asyncio.gather(*(read_all(log) for _ in range(4)))
    assert most == 1
    monkeypatch.undo()
