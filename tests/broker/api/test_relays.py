"""Lines of the log and of traces of other workers, at worker 0."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest

from broker.api import relays
from broker.api.errors import ApiError
from broker.api.fields import timestamp
from broker.api.method import ApiMethod, Calls
from broker.api.pb import admin_pb2
from broker.api.recent_events import RecentEvents
from broker.api.relays import EventRelay, TraceRelay
from broker.api.siblings import Siblings
from broker.api.tokens import Role
from broker.api.traces import TraceService
from broker.server.log_listeners import LogListeners
from broker.server.traces import Selection, TraceLine, Traces
from waiting import eventually


class Writes(Siblings):
    """Other workers that write lines into their logs. One that ends, ends its answers."""

    def __init__(self, count: int) -> None:
        super().__init__(dict.fromkeys(range(1, count + 1), ""))
        self.lines: dict[int, asyncio.Queue[str]] = {}

    async def stream(self, index: int, path: str, request: bytes) -> AsyncGenerator[bytes, None]:
        self.lines[index] = asyncio.Queue()
        try:
            while line := await self.lines[index].get():
                event = admin_pb2.NodeEvent(number=1, time=timestamp(5.0 + index), level="info", line=line)
                yield event.SerializeToString()
            raise ApiError(grpc.StatusCode.UNAVAILABLE, "it has ended")
        finally:
            del self.lines[index]


@pytest.mark.interpreted  # replaces constants
async def test_who_watches_sees_lines_of_all_workers_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(relays, "LINGER_SECONDS", 0.0)
    siblings = Writes(2)
    events = RecentEvents(LogListeners(), asyncio.get_running_loop())
    relay = EventRelay(siblings, events, logging.getLogger())
    assert not siblings.lines
    async with relay.watched():
        watching = events.watch(0)
        first = asyncio.ensure_future(anext(watching))
        await eventually(lambda: len(siblings.lines) == 2, "both are followed")
        siblings.lines[2].put_nowait("of the second")
        event = await first
        assert (event.number, event.line, event.time) == (1, "of the second", 7.0)
        siblings.lines[1].put_nowait("")  # it ends, and is followed again
        ended = siblings.lines[1]
        await eventually(lambda: siblings.lines.get(1, ended) is not ended, "it is followed again")
        siblings.lines[1].put_nowait("of the next process")
        event = await anext(watching)
        assert (event.number, event.line) == (2, "of the next process")
    await eventually(lambda: not siblings.lines, "nobody is followed when nobody watches")


class Traced(Siblings):
    """One other worker with its TraceService."""

    def __init__(self, node: Any) -> None:
        super().__init__({1: ""})
        self.traces: Traces = node.made_traces()
        self.service = TraceService(node, node.api.long_calls)

    async def call(self, index: int, path: str, request: bytes) -> bytes:
        name = path.rpartition("/")[2]
        descriptor = admin_pb2.DESCRIPTOR.services_by_name["TraceService"].methods_by_name[name]
        method = ApiMethod(descriptor, self.service, Calls(), logging.getLogger())
        return (await method.call(method.read_request(request), None, Role.ADMIN)).SerializeToString()


async def test_lines_of_a_trace_come_from_all_workers_until_it_is_deleted(node: Any) -> None:
    siblings = Traced(node)
    own = Traces(node.now, node.wall_time, 1000)
    relay = TraceRelay(siblings, lambda: own, node.now, logging.getLogger())
    trace = own.start(Selection(client_id="c"), 60, False)
    await relay.begin(trace)
    (theirs,) = siblings.traces.by_id.values()
    assert (theirs.selection, theirs.logs) == (trace.selection, False)
    line = TraceLine(1, 9.0, "received", "PUBLISH", "c", "127.0.0.1:1", [("topic", "t")])
    own.take_over(trace, line._replace(packet="CONNECT"), 0)  # one of this worker
    theirs.packets = 4
    theirs.add(line._replace(number=4))  # three have no line
    lines, ended = await own.read(trace, 1, 10.0)
    assert ([(one.number, one.packet, one.fields) for one in lines], ended) == ([(5, "PUBLISH", line.fields)], False)
    assert (trace.packets, trace.left_out) == (5, 3)
    own.delete(trace)
    await relay.end(trace.id)
    await eventually(lambda: not siblings.traces.by_id, "the other one is deleted, too")


async def test_no_other_worker_is_asked_for_a_trace_after_the_stop(node: Any) -> None:
    own = Traces(node.now, node.wall_time, 1000)
    before = asyncio.all_tasks()
    service = TraceService(node, node.api.long_calls, Traced(node))
    await service._relay.begin(own.start(Selection(client_id="c"), 60, False))  # type: ignore[union-attr]
    assert asyncio.all_tasks() - before
    service.stop()
    await eventually(lambda: not asyncio.all_tasks() - before, "nothing follows any more")
