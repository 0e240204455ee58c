"""What asyncio calls for a gossip shell: datagrams, streams that others opened, streams that we opened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from federation.gossip.exchange import IncomingStream, StreamRequest

if TYPE_CHECKING:
    from federation.shell.gossip import GossipShell


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, shell: GossipShell) -> None:
        self._shell = shell

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        shell = self._shell
        shell.serf.receive_packet(data, (addr[0], addr[1]), shell.loop.time())
        shell.flush()

    def error_received(self, exc: Exception) -> None:
        self._shell.send_errors += 1


class AcceptedStream(asyncio.Protocol):
    """A stream that another node opened."""

    def __init__(self, shell: GossipShell) -> None:
        self._shell = shell
        self._incoming: IncomingStream | None = None
        self._transport: asyncio.Transport
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        shell = self._shell
        if not shell.stopped:
            self._incoming = shell.serf.open_incoming_stream()
            if self._incoming is None:
                shell.make_room()
                self._incoming = shell.serf.open_incoming_stream()
        if self._incoming is None:
            self._transport.abort()
            return
        shell.accepted[self] = None
        shell.streams.add(self._transport)
        self._timeout = shell.loop.call_later(shell.serf.config.profile.tcp_timeout, self.close)

    def close(self) -> None:
        """At once, whatever is under way."""
        self._transport.abort()
        self._forget()

    def data_received(self, data: bytes) -> None:
        if self._incoming is None:
            return
        reply = self._incoming.receive_data(data, self._shell.loop.time())
        if reply:
            self._transport.write(reply)
        if self._incoming.closed:
            self._transport.close()
        self._shell.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def _forget(self) -> None:
        self._shell.accepted.pop(self, None)
        self._shell.streams.discard(self._transport)
        if self._timeout is not None:
            self._timeout.cancel()
        if self._incoming is not None:
            self._incoming.abandon()


class OpenedStream(asyncio.Protocol):
    """A stream that we opened: one message each way."""

    def __init__(self, shell: GossipShell, request: StreamRequest) -> None:
        self._shell = shell
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._done = False
        self.finished: asyncio.Future[None] = shell.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._shell.streams.add(self._transport)
        self._transport.write(self._request.data)

    def data_received(self, data: bytes) -> None:
        if not self._done and not self._shell.stopped:
            self._deliver(data, "")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._shell.streams.discard(self._transport)
        self.fail("the connection was closed without an answer" if exc is None else str(exc))

    def fail(self, text: str) -> None:
        if not self._done and not self._shell.stopped:
            self._deliver(None, text)

    def close(self) -> None:
        self._done = True
        if self._transport is not None:
            self._transport.close()

    def _deliver(self, data: bytes | None, error: str) -> None:
        shell = self._shell
        if shell.serf.receive_stream_reply(self._request.request_id, data, error, shell.loop.time()):
            self._done = True
            if not self.finished.done():
                self.finished.set_result(None)
        shell.flush()
