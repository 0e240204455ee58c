"""TLS and WebSocket for the load generators, with the calls of a socket that the generators use.

`recv` returns all that is there, so that epoll tells of everything else. After a BlockingIOError `send` is called with the same
data again, perhaps with more behind it.
"""

from __future__ import annotations

import base64
import os
import socket
import ssl
from typing import Final, Protocol

READ_BYTES: Final = 262_144
MASK: Final = bytes(4)  # of all frames: the payload stays as it is
BINARY: Final = 0x82


class Stream(Protocol):
    """A socket, or a layer on one."""

    def send(self, data: bytes | memoryview, /) -> int: ...
    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def fileno(self) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def close(self) -> None: ...


class TlsStream:
    """TLS on a connected socket."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._tls = context.wrap_socket(sock, server_hostname="localhost")
        self.sendall = self._tls.sendall
        self.fileno = self._tls.fileno
        self.settimeout = self._tls.settimeout
        self.close = self._tls.close
        self._is_blocking = True

    def setblocking(self, flag: bool) -> None:
        self._is_blocking = flag
        self._tls.setblocking(flag)

    def send(self, data: bytes | memoryview) -> int:
        try:
            return self._tls.send(data)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def recv(self, size: int) -> bytes:
        if self._is_blocking:
            return self._tls.recv(size)
        parts: list[bytes] = []
        try:
            while part := self._tls.recv(READ_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            if not parts:
                raise BlockingIOError from None
        return b"".join(parts)


class WebSocketStream:
    """Binary frames on a connected socket. One `send` is one frame."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.fileno = sock.fileno
        self.setblocking = sock.setblocking
        self.settimeout = sock.settimeout
        self.close = sock.close
        self._received = b""
        self._content = b""
        self._unsent = memoryview(b"")
        self._unsent_content = 0
        key = base64.b64encode(os.urandom(16)).decode()
        sock.sendall(
            "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = sock.recv(READ_BYTES)
            if not more:
                raise SystemExit("broker closed the connection in the WebSocket handshake")
            answer += more
        head, _, self._received = answer.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise SystemExit(f"no WebSocket: {head[:100]!r}")

    def sendall(self, data: bytes) -> None:
        self._sock.sendall(frame(data))

    def send(self, data: bytes | memoryview) -> int:
        if not self._unsent:
            self._unsent = memoryview(frame(bytes(data)))
            self._unsent_content = len(data)
        while self._unsent:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        return self._unsent_content

    def recv(self, size: int) -> bytes:
        while not self._content:
            self._take_frames()
            if not self._content:
                more = self._sock.recv(READ_BYTES)
                if not more:
                    return b""
                self._received += more
        if size < len(self._content):
            part, self._content = self._content[:size], self._content[size:]
        else:
            part, self._content = self._content, b""
        return part

    def _take_frames(self) -> None:
        """Move the content of all whole frames."""
        received = self._received
        parts: list[bytes] = []
        pos = 0
        while pos + 2 <= len(received):
            length = received[pos + 1]
            body = pos + 2
            if length == 126:
                body += 2
                length = int.from_bytes(received[pos + 2 : body], "big")
            elif length == 127:
                body += 8
                length = int.from_bytes(received[pos + 2 : body], "big")
            if body > len(received) or body + length > len(received):
                break
            parts.append(received[body : body + length])
            pos = body + length
        self._received = received[pos:]
        self._content = b"".join(parts)


def frame(data: bytes) -> bytes:
    size = len(data)
    if size < 126:
        return bytes([BINARY, 0x80 | size]) + MASK + data
    if size < 65536:
        return bytes([BINARY, 0x80 | 126]) + size.to_bytes(2, "big") + MASK + data
    return bytes([BINARY, 0x80 | 127]) + size.to_bytes(8, "big") + MASK + data


def layered(sock: socket.socket, transport: str, cacert: str) -> Stream:
    """The stream of a transport: tcp, tls or ws. `cacert` is the file with the certificate that signs the server's."""
    if transport == "tls":
        return TlsStream(sock, _context(cacert))
    return WebSocketStream(sock) if transport == "ws" else sock


_contexts: Final[dict[str, ssl.SSLContext]] = {}  # by cacert: one for all connections


def _context(cacert: str) -> ssl.SSLContext:
    if cacert not in _contexts:
        _contexts[cacert] = ssl.create_default_context(cafile=cacert)
    return _contexts[cacert]
