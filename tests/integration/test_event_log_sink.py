"""A pipeline and a node as a process: rows are published once, whatever happens to the node meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from broker.event_log.pb import event_log_pb2 as pb
from broker.event_log.pb.event_log_pb2_grpc import EventLogSinkStub, EventLogStub
from broker.event_log.records import Record, records
from broker.event_log.staged_block import ROWS_MAX
from broker.event_log.staged_rows import MARKER
from mqtt_client import Clients
from node_process import PATIENT, Node, Nodes, free_port
from row_blocks import Row, a_row, block_of
from waiting import DEADLINE, eventually

OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_reconnect_backoff_ms", 100))


class Api:
    """The services of one node, also after a restart."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.log: Any = EventLogStub(channel)
        self.sink: Any = EventLogSinkStub(channel)

    async def stage(self, batch: int, rows: list[Row], partition: int = 0, attempt: int = 1) -> pb.StagedPartition:
        position = 0
        for at in range(0, len(rows), ROWS_MAX):
            blocks = block_of(rows[at : at + ROWS_MAX])
            request = pb.StageRequest(
                query="q", batch=batch, partition=partition, attempt=attempt, position=position, blocks=blocks
            )
            await self.sink.Stage(request, wait_for_ready=True)
            position += len(blocks)
        return pb.StagedPartition(partition=partition, attempt=attempt, rows=len(rows))

    async def has_records(self, count: int) -> None:
        """Wait until the log has this number of records."""
        async with asyncio.timeout(DEADLINE):
            while (await self.log.Describe(pb.DescribeLogRequest(), wait_for_ready=True)).next_offset < count:
                pass

    async def records(self) -> list[Record]:
        described = await self.log.Describe(pb.DescribeLogRequest(), wait_for_ready=True)
        found: list[Record] = []
        at = described.first_offset
        while at < described.next_offset:
            request = pb.ReadLogRequest(log_id=described.log_id, start_offset=at, end_offset=described.next_offset)
            answer = await self.log.Read(request)
            found += [record for record in records(answer.blocks) if record.offset >= at]
            at = answer.next_offset
        return found

    async def markers(self) -> list[str]:
        """The markers of all rows in the log, in its order."""
        return [value for record in await self.records() for key, value in record.user_properties if key == MARKER]


def logging_node(nodes: Nodes, **settings: Any) -> tuple[Node, str]:
    """A node with an event log, and the address of its gRPC API."""
    grpc_addr = f"127.0.0.1:{free_port()}"
    node = nodes.make(
        {
            "api": {"grpc": [{"address": grpc_addr}]},
            "plugins": {"event_log": {"dir": "event_log", **settings}},
            "plugin_order": ["event_log"],
        }
    )
    return node, grpc_addr


@pytest.fixture
async def node(nodes: Nodes) -> tuple[Node, str]:
    node, address = logging_node(nodes, topics=["other/#"])
    node.config.update(PATIENT)
    return await node.start(), address


@pytest.fixture
async def api(node: tuple[Node, str]) -> AsyncIterator[Api]:
    async with grpc.aio.insecure_channel(node[1], options=OPTIONS) as channel:
        yield Api(channel)


def numbered(count: int, first: int = 0) -> list[Row]:
    return [a_row(f"rows/{number % 7}", b"%d" % number, 1) for number in range(first, first + count)]


async def test_rows_reach_subscribers_and_the_log(node: tuple[Node, str], api: Api, clients: Clients) -> None:
    subscriber = await clients.connect(node[0].port)
    await subscriber.subscribe("rows/#", qos=1)
    rows = [a_row("rows/a", b"first", 1, False, [("k", "v")]), a_row("rows/b", b"\xff", 0, True)]
    partition = await api.stage(3, rows)
    request = pb.CommitRequest(query="q", batch=3, partitions=[partition])
    assert await api.sink.Commit(request) == pb.CommitResponse(rows=2, was_committed=False)
    assert await api.sink.Commit(request) == pb.CommitResponse(rows=2, was_committed=True)
    got = await subscriber.take(2)
    assert [(message.topic, message.payload, message.qos) for message in got] == [
        (b"rows/a", b"first", 1),
        (b"rows/b", b"\xff", 0),
    ]
    late = await clients.connect(node[0].port)
    await late.subscribe("rows/#")
    assert (await late.message()).retain
    found = await api.records()
    assert [(record.topic, record.qos, record.retain, record.user_properties) for record in found] == [
        ("rows/a", 1, False, [("k", "v"), (MARKER, "q/3/0")]),
        ("rows/b", 0, True, [(MARKER, "q/3/1")]),
    ]


async def test_wrong_calls_are_refused_by_field_and_value(api: Api) -> None:
    staged = await api.stage(1, numbered(2))
    wrong = pb.StagedPartition(partition=0, attempt=9, rows=2)
    for call, code, text in (
        (api.sink.Stage(pb.StageRequest(query="../q")), "INVALID_ARGUMENT", "query is '../q'; it is 1 to 128"),
        (api.sink.Commit(pb.CommitRequest(query="")), "INVALID_ARGUMENT", "query is ''"),
        (
            api.sink.Stage(pb.StageRequest(query="q", blocks=b"x" * 100)),
            "INVALID_ARGUMENT",
            "blocks: byte 0 of blocks begins no block",
        ),
        (
            api.sink.Commit(pb.CommitRequest(query="q", batch=1, partitions=[staged, wrong])),
            "INVALID_ARGUMENT",
            "partitions names partition 0 twice",
        ),
        (
            api.sink.Commit(pb.CommitRequest(query="q", batch=1, partitions=[wrong])),
            "FAILED_PRECONDITION",
            "batch 1: 0 rows of partition 0, attempt 9 are staged, not 2",
        ),
        (
            api.sink.Stage(pb.StageRequest(query="q", batch=1, attempt=1, position=5, blocks=b"x" * 1000)),
            "FAILED_PRECONDITION",
            "position is 5, but 154 bytes of this partition and attempt are staged",
        ),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code().name == code
        assert (caught.value.details() or "").startswith(text)
    assert await api.sink.Abort(pb.AbortRequest(query="q", batch=1)) == pb.AbortResponse()
    assert await api.markers() == []


@pytest.mark.slow
async def test_each_row_is_in_the_log_once_whenever_the_node_is_killed(node: tuple[Node, str], api: Api) -> None:
    """The node is killed in the middle of commits; what a query then does is to commit again."""
    rng = random.Random(20261122)
    expected: list[str] = []
    for batch in range(1, 5):
        partitions = [
            await api.stage(batch, numbered(3_000, 3_000 * part), part, rng.randrange(1 << 40)) for part in range(3)
        ]
        request = pb.CommitRequest(query="q", batch=batch, partitions=partitions)
        commit = asyncio.ensure_future(api.sink.Commit(request))
        await api.has_records(len(expected) + rng.randrange(1, 8_000))
        await node[0].kill()
        await asyncio.gather(commit, return_exceptions=True)
        await node[0].start()
        answer = await api.sink.Commit(request, wait_for_ready=True)
        assert answer.rows == 9_000
        expected += [f"q/{batch}/{row}" for row in range(9_000)]
    assert await api.markers() == expected
    found = await api.records()
    assert [record.payload for record in found] == [b"%d" % number for number in range(9_000)] * 4


@pytest.mark.one_process("compares the list of members; test_workers.py has the lists of a node with several")
async def test_members_tell_where_each_others_logs_are(nodes: Nodes) -> None:
    order = ["event_log", "federation", "admin"]
    first = nodes.make_federated([], {"plugins": {"event_log": {"dir": "first"}}, "plugin_order": order})
    second = nodes.make_federated([first], {"plugins": {"event_log": {"dir": "second"}}, "plugin_order": order})
    without = nodes.make_federated([first])
    for one in (first, second, without):
        one.spawn()
    for one in (first, second, without):
        await eventually(one.serves, f"{one.name} serves clients")
    await nodes.all_alive([first, second, without])
    status, described = await first.rest("GET", "/v1/event_log")
    assert status == 200
    assert described["node"] == first.name
    second_api = second.config["api"]["grpc"][0]["address"].removeprefix("tcp://")
    assert described["members"] == [
        {"node": second.name, "status": "ALIVE", "api_addr": second_api, "has_log": True},
        {"node": without.name, "status": "ALIVE", "api_addr": "", "has_log": False},
    ]
    status, answer = await without.rest("GET", "/v1/event_log")
    assert status == 404
    assert 'the plugin "event_log" serves it and is not loaded' in answer["message"]
