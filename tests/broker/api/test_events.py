"""What happens on a node as Server-Sent Events: live, resumed, bounded, and when nothing happens."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from broker.api import grpc_server, http_server
from broker.api.pb.admin_pb2 import WatchEventsRequest
from broker.api.pb.admin_pb2_grpc import NodeServiceStub
from broker.api.recent_events import EVENTS_MAX, LINE_MAX, RecentEvents
from broker.api.tokens import Role, Token, hash_token, write_tokens
from broker.server.log_listeners import LOG_LISTENERS, LogListeners
from waiting import eventually


def tell(line: str, level: str = "info", listeners: LogListeners = LOG_LISTENERS) -> None:
    for listener in listeners.wanting(logging.INFO, "server"):
        listener(level, line)


async def event(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    """The next event of a stream, comments left out."""
    lines: dict[str, str] = {}
    while "data" not in lines:
        async with asyncio.timeout(20):
            line = (await answer.content.readline()).decode().rstrip("\n")
        name, _, value = line.partition(": ")
        lines[name] = value
    found = dict(json.loads(lines["data"]))
    assert found["number"] == lines["id"]
    return found


@pytest.fixture
async def events(node: Any, rest: Any) -> AsyncIterator[Callable[..., Any]]:
    """Open a stream of events. Its watch has begun when this returns."""
    await node.admin.start()
    answers: list[aiohttp.ClientResponse] = []

    async def watch(**headers: str) -> aiohttp.ClientResponse:
        answer: aiohttp.ClientResponse = await rest.session.get(f"{rest.base}/v1/events", headers=headers)
        answers.append(answer)
        return answer

    yield watch
    for answer in answers:
        answer.close()
    await node.admin.stop()


async def test_events_come_live_and_are_resumed(events: Callable[..., Any]) -> None:
    tell("before")
    answer = await events()
    assert (answer.status, answer.content_type) == (200, "text/event-stream")
    tell("one")
    first = await event(answer)
    assert (first["line"], first["level"]) == ("one", "info")
    tell("two", "warn")
    assert (await event(answer))["line"] == "two"
    answer.close()
    tell("three")
    resumed = await events(**{"Last-Event-ID": first["number"]})
    assert [(await event(resumed))["line"] for _ in range(2)] == ["two", "three"]


async def test_a_comment_comes_when_nothing_happens(
    events: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "EVENT_SECONDS", 0.05)
    answer = await events()
    for _ in range(3):
        async with asyncio.timeout(20):
            assert (await answer.content.readuntil(b"\n\n")).startswith(b":")


async def test_a_wrong_number_is_an_error(events: Callable[..., Any]) -> None:
    answer = await events(**{"Last-Event-ID": "yesterday"})
    assert answer.status == 400
    assert "after" in (await answer.json())["message"]


async def test_a_client_that_goes_ends_its_watch(
    node: Any, events: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "EVENT_SECONDS", 0.05)
    answer = await events()
    assert node.api.calls.streams.running == 1
    answer.close()
    await eventually(lambda: node.api.calls.streams.running == 0, "the watch has ended")


async def test_events_over_grpc(node: Any, channel: grpc.aio.Channel, events: Callable[..., Any]) -> None:
    await events()  # the listener is there
    tell("one")
    stream = NodeServiceStub(channel).Events(WatchEventsRequest(after=1))
    tell("two")
    async for found in stream:
        assert found.number >= 2
        break
    stream.cancel()


async def test_what_is_kept_is_bounded() -> None:
    listeners = LogListeners()
    recent = RecentEvents(listeners, asyncio.get_running_loop())
    recent.start()
    for number in range(1, EVENTS_MAX + 11):
        tell(f"{number}" * LINE_MAX, listeners=listeners)
    found = []
    async for kept in recent.watch(1):
        found.append(kept)
        if kept.number == EVENTS_MAX + 10:
            break
    assert [kept.number for kept in found] == list(range(11, EVENTS_MAX + 11))
    assert all(len(kept.line) == LINE_MAX for kept in found)
    recent.stop()
    assert [kept async for kept in recent.watch(5)] == []


async def test_a_watch_ends_with_its_token(
    node: Any,
    channel: grpc.aio.Channel,
    events: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(http_server, "EVENT_SECONDS", 0.05)
    monkeypatch.setattr(grpc_server, "CHECK_SECONDS", 0.05)
    kept, deleted = (Token(name, Role.READ, "", hash_token(name)) for name in ("kept", "deleted"))
    guard = node.api.guard
    guard.path = str(tmp_path / "tokens")
    (tmp_path / "tokens").write_bytes(write_tokens([kept, deleted]))
    guard.load()
    answers = [await events(Authorization=f"Bearer {name}") for name in ("kept", "deleted")]
    stub = NodeServiceStub(channel)
    stream = stub.Events(WatchEventsRequest(), metadata=(("authorization", "Bearer deleted"),))
    following = asyncio.ensure_future(stream.read())
    await eventually(lambda: node.api.calls.streams.running == 3, "all watches have begun")
    (tmp_path / "tokens").write_bytes(write_tokens([kept]))
    guard.load()
    async with asyncio.timeout(20):
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await following
        assert (await answers[1].content.read()).replace(b": nothing happened\n\n", b"") == b""
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    tell("goes on")
    assert (await event(answers[0]))["line"] == "goes on"
    await eventually(lambda: node.api.calls.streams.running == 1, "the others have ended")
