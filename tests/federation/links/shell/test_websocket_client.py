"""The handshake of a WebSocket to an upstream, and upstreams that refuse it."""

from __future__ import annotations

import pytest

from federation.links.shell.websocket_client import WebSocketClient, WebSocketFault


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
    with pytest.raises(WebSocketFault, match=words):  # noqa: PT012
        assert client.receive_data(answer) == b""
        client.receive_end()
    assert not client.is_open
