"""Reads of the log beside its writes."""

from __future__ import annotations

import asyncio

import pytest

from broker.event_log import reading
from broker.event_log.readers import PIECE_BYTES
from broker.event_log.records import records
from broker.event_log.turns import Party
from event_log_reader import MakeLog, read_all


async def test_a_read_has_a_turn_for_each_piece(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await make_log(segment_bytes=2**24)
    payloads = [b"%d" % number * (PIECE_BYTES * 9 // 10) for number in range(3)]
    for payload in payloads:
        log.append(b"t", payload)
        await log.flush()
    worked: list[float] = []
    monkeypatch.setattr(log.readers.turns, "worked", worked.append)
    assert [record.payload for record in await read_all(log)] == payloads
    assert len(worked) == 3
    assert all(seconds > 0 for seconds in worked)


@pytest.mark.interpreted
@pytest.mark.parametrize("at_once", [1, 3, 100])
async def test_small_blocks_are_picked_some_at_a_time(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(reading, "BLOCKS_AT_ONCE", at_once)
    log = await make_log()
    for number in range(9):
        log.append(b"t" if number % 3 else b"other", b"%d" % number)
        await log.flush()
    blocks, following = await log.readers.read(log.log_id, 2, 9, 0, (b"t",))
    assert following == 9
    assert [record.payload for record in records(blocks)] == [b"%d" % number for number in (2, 4, 5, 7, 8)]


async def test_the_log_is_read_for_one_of_a_party_at_a_time(make_log: MakeLog) -> None:
    log = await make_log()
    log.append(b"t", b"x")
    await log.flush()
    party = Party(log.readers.turns)
    async with party.reading:
        waiting = asyncio.ensure_future(log.readers.read(log.log_id, 0, 1, 0, (), party))
        others = [await log.readers.read(log.log_id, 0, 1, 0, (), other) for other in (None, Party(log.readers.turns))]
        assert not waiting.done()
    assert [await waiting] * 2 == others


async def test_a_search_by_time_has_a_turn_and_waits_for_its_party(make_log: MakeLog) -> None:
    log = await make_log()
    log.append(b"t", b"x")
    await log.flush()
    (record,) = await read_all(log)
    turns = log.readers.turns
    rest = turns.rest
    party = Party(turns)
    async with party.reading:
        waiting = asyncio.ensure_future(log.readers.find_record(log.log_id, 1, party))
        assert await log.readers.find_record(log.log_id, 1) == (0, record.time_ns)
        assert turns.rest != rest, "the piece has counted"
        assert not waiting.done()
    assert await waiting == (0, record.time_ns)
    assert await log.readers.find_record(log.log_id, record.time_ns + 1, party) == (1, 0)
