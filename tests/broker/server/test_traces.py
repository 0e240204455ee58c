"""What a trace asks for, and its bounds."""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace
from typing import Any

import pytest

from broker.api.recent_events import RecentEvents
from broker.codec.packets import Publish
from broker.server.log_listeners import LOG_LISTENERS
from broker.server.logging import get_logger
from broker.server.traces import (
    CHARACTERS_MAX,
    LINES_MAX,
    LINES_PER_SECOND_MAX,
    PAGE_LINES_MAX,
    Selection,
    Trace,
    TraceLine,
    Traces,
)


@pytest.mark.parametrize(
    ("selection", "client_id", "remote_addr", "topic", "may_be", "is_asked_for"),
    [
        (Selection(client_id="a"), "a", "10.0.0.1:1", b"", True, True),
        (Selection(client_id="a"), "", "10.0.0.1:1", b"", True, False),
        (Selection(client_id="a"), "ab", "10.0.0.1:1", b"", False, False),
        (Selection(topic_filter=b"a/#"), "x", "10.0.0.1:1", b"a/b", True, True),
        (Selection(topic_filter=b"a/#"), "x", "10.0.0.1:1", b"b", True, False),
        (Selection(topic_filter=b"#"), "x", "10.0.0.1:1", b"", True, False),
        (Selection(topic_filter=b"#"), "x", "10.0.0.1:1", b"$SYS/a", True, False),
        (Selection(remote_addr="10.0.0.1"), "x", "10.0.0.1:1", b"", True, True),
        (Selection(remote_addr="10.0.0.1:1"), "x", "10.0.0.1:1", b"", True, True),
        (Selection(remote_addr="10.0.0.1:1"), "x", "10.0.0.1:12", b"", False, False),
        (Selection(remote_addr="10.0.0.1"), "x", "10.0.0.12:1", b"", False, False),
        (Selection(remote_addr="::1"), "x", "[::1]:1", b"", True, True),
    ],
)
def test_a_trace_asks_for_clients_and_topics(
    selection: Selection, client_id: str, remote_addr: str, topic: bytes, may_be: bool, is_asked_for: bool
) -> None:
    assert selection.may_ask_for(client_id, remote_addr) == may_be
    assert selection.asks_for(client_id, remote_addr, topic) == is_asked_for


def line(number: int, value: str = "v") -> TraceLine:
    return TraceLine(number, 0.0, "sent", "PUBLISH", "a", "10.0.0.1:1", [("payload", value)])


@pytest.fixture
async def trace() -> Trace:
    return Trace("1", Selection("a"), False, 60.0, 0.0)


async def test_packets_above_the_rate_are_counted_without_a_line(trace: Trace) -> None:
    taken = [trace.takes_one(0.0) for _ in range(LINES_PER_SECOND_MAX + 7)]
    assert taken == [True] * LINES_PER_SECOND_MAX + [False] * 7
    assert (trace.packets, trace.left_out) == (LINES_PER_SECOND_MAX + 7, 7)
    assert trace.takes_one(1.0)


async def test_the_oldest_lines_go_by_their_number_and_by_their_size(trace: Trace) -> None:
    for number in range(1, LINES_MAX + 4):
        trace.add(line(number))
    assert (len(trace.lines), trace.lines[0].number) == (LINES_MAX, 4)
    long = CHARACTERS_MAX // 4
    for number in range(5):
        trace.add(line(10_000 + number, "x" * long))
    assert [kept.number for kept in trace.lines] == [10_001, 10_002, 10_003, 10_004]


async def test_pages_of_lines(trace: Trace) -> None:
    for number in range(1, PAGE_LINES_MAX + 3):
        trace.add(line(number))
    trace.ended = True

    def numbers(after: int) -> Any:
        lines, is_last = trace.page(after)
        return [one.number for one in lines], is_last

    assert numbers(0) == ([*range(1, PAGE_LINES_MAX + 1)], False)
    assert numbers(PAGE_LINES_MAX) == ([PAGE_LINES_MAX + 1, PAGE_LINES_MAX + 2], True)
    assert numbers(PAGE_LINES_MAX + 2) == ([], True)


async def test_packets_of_traces_are_no_events(log: io.StringIO) -> None:
    """Events need the role `read` only, which sees no payloads."""
    recent = RecentEvents(LOG_LISTENERS, asyncio.get_running_loop())
    recent.start()
    try:
        get_logger("server").info("before")
        traces = Traces(lambda: 0.0, lambda at: at, 1000)
        trace = traces.start(Selection(topic_filter=b"#"), 60, logs=True)
        connection: Any = SimpleNamespace(remote_addr="10.0.0.1:1")
        traces.show("received", Publish(topic=b"a", payload=b"secret"), b"a", "x", connection)
        traces.delete(trace)
        get_logger("server").info("after")
        assert "after" in (await anext(recent.watch(1))).line
    finally:
        recent.stop()
    assert "secret" in log.getvalue()
