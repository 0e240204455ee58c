"""The socket of a link: whatever ends a try to connect, the link learns it, and tries again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from federation.links.shell.upstream_socket import UpstreamSocket
from federation.links.status import LinkState
from link_world import World
from waiting import eventually


@pytest.mark.parametrize(
    ("error", "words", "is_fault"),
    [
        (UnicodeError("label empty or too long"), ("tls.server-name-indication", "label empty"), False),
        (RuntimeError("surprise"), ("internal error",), True),
    ],
)
async def test_an_error_of_a_connect_ends_the_try(
    error: Exception, words: tuple[str, ...], is_fault: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise error

    world = World({"uri": "mqtts://north.example.com", "tls": {"server-name-indication": "north"}})
    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
    turns = SimpleNamespace(now=lambda: world.now, flush_soon=lambda: None)
    faults: list[Exception] = []
    socket = UpstreamSocket(world.link, cast(Any, turns), lambda: None, faults.append)
    world.want()
    socket.follow()
    await eventually(lambda: world.state() is LinkState.ERROR, "the link is in error")
    assert all(word in world.link.last_error for word in words)
    assert faults == ([error] if is_fault else [])
    await socket.stop()
