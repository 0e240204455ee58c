"""Fetch of the plugin `kafka` over its socket: what it waits for, and what its answers hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.authorization import Authorizer, ClientIdentity, Verdict
from broker.event_log.plugin import EventLogPlugin
from broker.kafka import batches, connection
from broker.kafka import reading as kafka_reading
from broker.kafka.messages import FETCH, METADATA
from broker.server.lifecycle import Server
from kafka_client import KafkaClient, fetch_request, read_rows
from kafka_server import address, plugin, publish, samples, with_kafka
from node_process import free_port
from waiting import eventually

StartServer = Callable[[dict[str, Any]], Awaitable[Server]]


@pytest.fixture
async def server(start_server: StartServer, tmp_path: Path) -> Server:
    return await start_server(with_kafka(tmp_path, free_port()))


async def test_a_fetch_waits_for_records(server: Server) -> None:
    async with KafkaClient(address(server)) as client:
        version = client.send(FETCH, fetch_request("sensors", 0, max_wait_ms=60_000))
        await eventually(lambda: samples(server, "gmqtt_kafka_requests_total").get(("Fetch",)), "the Fetch waits")
        await publish(server, ("other", b"passed over"))
        await publish(server, ("sensors/1", b"wanted"))
        answer = await client.receive(FETCH, version)
        rows, following = read_rows(answer["responses"][0]["partitions"][0]["records"])
        assert (rows, following) == ([(1, b"sensors/1", b"wanted")], 2)
        # Without a record of the topic the answer covers the others, so that the consumer does not read them again.
        await publish(server, ("other", b"passed over"))
        found = await client.fetch("sensors", 2, max_wait_ms=1)
        assert read_rows(found["records"]) == ([], 3)
        assert (found["high_watermark"], found["log_start_offset"]) == (3, 0)


async def test_a_fetch_that_is_repeated_goes_on_behind_what_had_no_record(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-go 0.4 asks for the same offset after an answer without records."""
    log = next(each for each in server.plugins if isinstance(each, EventLogPlugin)).log
    assert log is not None
    started: list[int] = []
    read = log.readers.read

    async def noted(log_id: str, start: int, *arguments: Any) -> tuple[bytes, int]:
        started.append(start)
        return await read(log_id, start, *arguments)

    monkeypatch.setattr(log.readers, "read", noted)
    await publish(server, ("other", b"passed over"))
    async with KafkaClient(address(server)) as client:
        for end in (1, 2):
            assert read_rows((await client.fetch("sensors", 0, max_wait_ms=1))["records"]) == ([], end)
            await publish(server, ("other", b"passed over"))
        await publish(server, ("sensors/1", b"wanted"))
        found = await client.fetch("sensors", 0, max_wait_ms=1)
        assert read_rows(found["records"]) == ([(3, b"sensors/1", b"wanted")], 4)
        assert started == [0, 1, 2]
        assert read_rows((await client.fetch("all", 0, max_wait_ms=1))["records"])[0][0][0] == 0
        assert read_rows((await client.fetch("sensors", 1, max_wait_ms=1))["records"])[0][0][0] == 3
    async with KafkaClient(address(server)) as client:
        assert read_rows((await client.fetch("sensors", 0, max_wait_ms=1))["records"])[0][0][0] == 3
    assert started[3:] == [0, 1, 0]


class Rules(Authorizer):
    verdict = Verdict.DENY

    def may_read(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return self.verdict


async def test_what_a_fetch_has_passed_is_judged_by_other_rules(server: Server) -> None:
    rules = Rules()
    server.broker.add_authorizer(rules)
    await publish(server, ("sensors/1", b"x"))
    async with KafkaClient(address(server)) as client:
        for verdict, rows in ((Verdict.DENY, []), (Verdict.ALLOW, [(0, b"sensors/1", b"x")])):
            rules.verdict = verdict
            server.broker.authorization_changed()
            assert read_rows((await client.fetch("sensors", 0, max_wait_ms=1))["records"]) == (rows, 1)


async def test_a_fetch_whose_session_loses_a_partition_is_answered(server: Server) -> None:
    """By another connection with the same session, while it waits for records."""
    async with KafkaClient(address(server)) as client, KafkaClient(address(server)) as other:
        request = fetch_request("sensors", 0, session_epoch=0, max_wait_ms=1)
        request["topics"] += fetch_request("all", 0)["topics"]
        session = (await client.call(FETCH, request))["session_id"]
        request |= {"session_id": session, "topics": []}
        version = client.send(FETCH, request | {"session_epoch": 1, "max_wait_ms": 60_000})
        await eventually(lambda: samples(server, "gmqtt_kafka_requests_total")["Fetch",] == 2, "the Fetch waits")
        forgotten = [{"topic": "sensors", "partitions": [0]}]
        await other.call(FETCH, request | {"session_epoch": 2, "forgotten_topics_data": forgotten})
        await publish(server, ("other", b"x"))
        answer = await client.receive(FETCH, version)
        found = {topic["topic"]: topic["partitions"][0]["records"] for topic in answer["responses"]}
        assert read_rows(found["all"]) == ([(0, b"other", b"x")], 1)


async def test_a_fetch_does_not_hold_up_the_request_behind_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java client sends a Fetch ahead, and Spark asks for the end of the log then."""
    monkeypatch.setattr(kafka_reading, "WAIT_SECONDS_MAX", 3_600.0)
    monkeypatch.setattr(kafka_reading, "WAKE_SECONDS", 3_600.0)  # as where many others wait
    await publish(server, ("sensors/1", b"x"))
    async with KafkaClient(address(server)) as client:
        for is_sent_at_once in (True, False):
            before = samples(server, "gmqtt_kafka_requests_total").get(("Fetch",), 0.0)
            version = client.send(FETCH, fetch_request("sensors", 1, max_wait_ms=3_600_000))
            if not is_sent_at_once:
                await eventually(
                    lambda before=before: samples(server, "gmqtt_kafka_requests_total")["Fetch",] > before,
                    "the Fetch waits",
                )
            behind = client.send(METADATA, {"topics": [{"name": "all"}]}, 0)
            answer = await client.receive(FETCH, version, sent_since=1)
            assert answer["responses"][0]["partitions"][0]["records"] == []
            assert (await client.receive(METADATA, behind))["topics"]
        # Without one behind it, the next one waits for records. Then it waits for others, so that they look together.
        version = client.send(FETCH, fetch_request("sensors", 1, max_wait_ms=3_600_000))
        await publish(server, ("sensors/1", b"y"))
        behind = client.send(METADATA, {"topics": [{"name": "all"}]}, 0)
        answer = await client.receive(FETCH, version, sent_since=1)
        assert read_rows(answer["responses"][0]["partitions"][0]["records"])[0] == [(1, b"sensors/1", b"y")]
        await client.receive(METADATA, behind)
        monkeypatch.setattr(kafka_reading, "WAKE_SECONDS", 0.001)
        version = client.send(FETCH, fetch_request("sensors", 2, max_wait_ms=3_600_000))
        await publish(server, ("sensors/1", b"z"))
        answer = await client.receive(FETCH, version)
        assert read_rows(answer["responses"][0]["partitions"][0]["records"])[0] == [(2, b"sensors/1", b"z")]


@pytest.mark.parametrize(
    ("sizes", "limits"),
    [
        ([400_000] * 3, {}),
        ([40_000] * 3, {"partition_max_bytes": 100_000}),
    ],
    ids=["of an answer", "of a partition"],
)
async def test_a_fetch_does_not_wait_for_more_than_fits(
    server: Server, monkeypatch: pytest.MonkeyPatch, sizes: list[int], limits: dict[str, int]
) -> None:
    """Whatever fetch.min.bytes says."""
    monkeypatch.setattr(kafka_reading, "WAIT_SECONDS_MAX", 3_600.0)
    for size in sizes:
        await publish(server, ("sensors/1", bytes(size)))  # each is a block
    async with KafkaClient(address(server)) as client:
        found = await client.fetch("sensors", 0, max_wait_ms=3_600_000, min_bytes=2**30, **limits)
        rows, _ = read_rows(found["records"])
        assert [len(payload) for _, _, payload in rows] == sizes[: len(rows)] != []


@pytest.mark.interpreted
async def test_answers_are_made_in_turns(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are read, and slices of their answers made and written, in the turns of all readers of the log."""
    monkeypatch.setattr(batches, "SLICE_STEPS", 10)
    monkeypatch.setattr(kafka_reading, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(connection, "WRITE_BYTES", 1)
    await publish(server, *(("sensors/1", b"%d" % number) for number in range(40)))
    log = next(each for each in server.plugins if isinstance(each, EventLogPlugin)).log
    assert log is not None
    worked: list[float] = []
    monkeypatch.setattr(log.readers.turns, "worked", worked.append)
    async with KafkaClient(address(server)) as client:
        assert len(await client.rows("sensors", 0, 40)) == 40
    # One of reading the log, of the request, of its answer; at least four slices, and five parts.
    assert len(worked) >= 12
    assert all(seconds > 0 for seconds in worked)


async def test_strangers_have_turns_of_their_own(server: Server) -> None:
    await publish(server, ("sensors/1", b"x"))
    async with KafkaClient(address(server)) as client, KafkaClient(address(server)) as stranger:
        await client.fetch("sensors", 0)
        kafka = plugin(server)._server
        assert kafka is not None
        async with kafka._strangers._line:
            waiting = asyncio.ensure_future(stranger.fetch("sensors", 0))
            assert await client.rows("sensors", 0, 1)
            assert not waiting.done()
        assert read_rows((await waiting)["records"])[1] == 1


async def test_answers_grow_with_what_a_client_has_taken(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that one that reads nothing costs little."""
    monkeypatch.setattr(kafka_reading, "FIRST_FETCH_BYTES", 8_000)
    for number in range(60):
        await publish(server, ("sensors/1", b"%d" % (number % 10) * 1_000))  # each is a block
    async with KafkaClient(address(server)) as client:
        counts = []
        offset = 0
        while offset < 60:
            rows, offset = read_rows((await client.fetch("sensors", offset))["records"])
            counts.append(len(rows))
        assert max(counts[:2]) <= 8
        assert counts == sorted(counts[:-1]) + counts[-1:]
        assert max(counts) > 16


async def test_offsets_that_are_not_in_the_log(start_server: StartServer, tmp_path: Path) -> None:
    """Those of the future, and those that the retention has removed."""
    limits = {"segment_bytes": "64KiB", "retention": {"bytes": "128KiB"}}
    server = await start_server(with_kafka(tmp_path, free_port(), **limits))
    log = next(each for each in server.plugins if isinstance(each, EventLogPlugin)).log
    assert log is not None
    for number in range(40):
        await publish(server, ("sensors/1", b"%04d" % number * 2_500))
    log._retain()
    assert log.first_offset > 0
    async with KafkaClient(address(server)) as client:
        for offset in (0, log.first_offset - 1, 41, 2**60, -1):
            assert (await client.fetch("sensors", offset))["error_code"] == 1
        rows = await client.rows("sensors", log.first_offset, 40)
        assert [row[0] for row in rows] == list(range(log.first_offset, 40))
        assert await client.list_offset("sensors", -2) == (0, -1, log.first_offset)


async def test_a_fetch_ends_in_time_where_little_is_wanted(start_server: StartServer, tmp_path: Path) -> None:
    """It covers what was read until then, a segment at least."""
    server = await start_server(with_kafka(tmp_path, free_port(), segment_bytes="64KiB"))
    for number in range(40):
        await publish(server, ("other", b"%04d" % number * 2_500))
    await publish(server, ("sensors/1", b"wanted"))
    async with KafkaClient(address(server)) as client:
        rows, following = read_rows((await client.fetch("sensors", 0, max_wait_ms=0))["records"])
        assert rows == []
        assert 0 < following < 40
        assert await client.rows("sensors", following, 41, max_wait_ms=0) == [(40, b"sensors/1", b"wanted")]


async def test_fetch_sessions_tell_what_has_changed(server: Server) -> None:
    await publish(server, ("sensors/1", b"x"))
    async with KafkaClient(address(server)) as client:
        first = await client.call(FETCH, fetch_request("sensors", 0, session_epoch=0))
        session = first["session_id"]
        assert session
        changes = {"session_id": session, "max_wait_ms": 1}
        second = await client.call(FETCH, fetch_request("sensors", 1, session_epoch=1, **changes))
        assert second["responses"] == []
        await publish(server, ("sensors/1", b"y"))
        third = await client.call(FETCH, fetch_request("sensors", 1, session_epoch=2, **changes) | {"topics": []})
        assert read_rows(third["responses"][0]["partitions"][0]["records"])[0] == [(1, b"sensors/1", b"y")]
        wrong = await client.call(FETCH, fetch_request("sensors", 1, session_epoch=9, **changes))
        assert (wrong["error_code"], wrong["responses"]) == (71, [])
