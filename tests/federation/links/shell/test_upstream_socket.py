"""The socket of a link: whatever ends a try to connect, the link learns it, and tries again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from websockets.http11 import Request
from websockets.server import ServerProtocol

from federation.links.shell.upstream_socket import SUBPROTOCOLS, UpstreamSocket, WebSocketClient
from federation.links.status import LinkState
from link_world import World
from waiting import eventually

CONNACK = b"\x20\x03\x00\x86\x00"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n", "HTTP 400"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP 404"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "did not receive a valid HTTP response"),
        (b"", "did not receive a valid HTTP response"),
    ],
)
def test_an_upstream_that_refuses_and_closes_says_why(answer: bytes, words: str) -> None:
    client = WebSocketClient("h", 80, "/mqtt", False, 1000)
    assert client.take_output().startswith(b"GET /mqtt HTTP/1.1\r\n")
    assert client.receive_data(answer) == b""
    client.receive_end()
    assert words in client.fault
    assert not client.is_open


def opened() -> tuple[WebSocketClient, ServerProtocol]:
    client = WebSocketClient("h", 80, "/mqtt", False, 1000)
    server = ServerProtocol(subprotocols=SUBPROTOCOLS)
    server.receive_data(client.take_output())
    (request,) = server.events_received()
    assert isinstance(request, Request)
    server.send_response(server.accept(request))
    assert client.receive_data(b"".join(server.data_to_send())) == b""
    assert (client.is_open, client.fault) == (True, "")
    return client, server


def test_data_in_front_of_the_end_is_handled() -> None:
    client, server = opened()
    server.send_binary(CONNACK)
    server.send_close(1000)
    assert client.receive_data(b"".join(server.data_to_send())) == CONNACK
    assert client.fault == "WebSocket: closed by the upstream"


def test_a_text_frame_ends_the_connection() -> None:
    client, server = opened()
    server.send_text(b"x")
    assert client.receive_data(b"".join(server.data_to_send())) == b""
    assert "a text frame" in client.fault


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
    faults: list[Exception] = []
    host = SimpleNamespace(now=lambda: world.now, flush_soon=lambda: None, plugin_error=faults.append)
    socket = UpstreamSocket(world.link, cast(Any, host))
    world.want()
    socket.carry_out()
    await eventually(lambda: world.state() is LinkState.ERROR, "the link is in error")
    assert all(word in world.link.last_error for word in words)
    assert faults == ([error] if is_fault else [])
    await socket.stop()
