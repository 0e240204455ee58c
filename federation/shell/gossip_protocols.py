"""The protocols that asyncio calls for gossip: datagrams, streams that other nodes opened, streams that this node
opened."""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

from federation.gossip.exchange import IncomingStream, StreamRequest
from federation.serf.serf import Serf


class GossipLink:
    """One Serf node and its open streams. `changed` is called after each input to the node.

    streams       that are open, of either side
    accepted      those of other nodes, the oldest first
    dropped_from  socket address of the last peer whose input was dropped; None for none. A flood has no time for its text
    """

    def __init__(self, serf: Serf, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]) -> None:
        self.serf = serf
        self.loop = loop
        self.changed = changed
        self.stopped = False
        self.dropped_from: object = None
        self.streams: set[asyncio.Transport] = set()
        self.accepted: OrderedDict[AcceptedStream, None] = OrderedDict()

    def now(self) -> float:
        """Return the time as exactly as round trips need it. The loop's time is that of the begin of its turn, under uvloop in
        milliseconds."""
        return time.monotonic()

    def abort(self) -> None:
        """Close all streams at once; nothing more reaches the node."""
        self.stopped = True
        for transport in list(self.streams):
            transport.abort()

    def accept(self, stream: AcceptedStream) -> IncomingStream | None:
        """Admit a stream of another node.

        When too many are open the oldest is closed, so that a peer that opens streams and sends nothing shuts nobody out.
        """
        if self.stopped:
            return None
        incoming = self.serf.open_incoming_stream()
        if incoming is None and self.accepted:
            next(iter(self.accepted)).close()
            incoming = self.serf.open_incoming_stream()
        if incoming is not None:
            self.accepted[stream] = None
        return incoming


class Datagrams(asyncio.DatagramProtocol):
    """Datagrams of one turn of the loop are answered together at its end: of a flood each packet costs its own rules alone."""

    def __init__(self, link: GossipLink) -> None:
        self._link = link
        self._answers_soon = False

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        link = self._link
        counters = link.serf.counters
        drops = counters.drops
        link.serf.receive_packet(data, (addr[0], addr[1]), link.now())
        if counters.drops != drops:
            link.dropped_from = addr
        if not self._answers_soon:
            self._answers_soon = True
            link.loop.call_soon(self._answer)

    def _answer(self) -> None:
        self._answers_soon = False
        self._link.changed()

    def error_received(self, exc: Exception) -> None:
        self._link.serf.counters.send_errors += 1


class AcceptedStream(asyncio.Protocol):
    """A stream that another node opened."""

    def __init__(self, link: GossipLink) -> None:
        self._link = link
        self._incoming: IncomingStream | None = None
        self._transport: asyncio.Transport
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses
        link = self._link
        peer = transport.get_extra_info("peername") or ("", 0)
        if link.serf.admits(peer[0]):
            self._incoming = link.accept(self)
        else:
            link.dropped_from = peer
        if self._incoming is None:
            self._transport.abort()
            return
        link.streams.add(self._transport)
        self._timeout = link.loop.call_later(link.serf.config.profile.tcp_timeout, self.close)

    def close(self) -> None:
        """Close at once; output that is not sent yet is lost."""
        self._transport.abort()
        self._forget()

    def data_received(self, data: bytes) -> None:
        if self._incoming is None:
            return
        link = self._link
        counters = link.serf.counters
        drops = counters.drops
        reply = self._incoming.receive_data(data, link.now())
        if counters.drops != drops:
            link.dropped_from = self._transport.get_extra_info("peername")
        if reply:
            self._transport.write(reply)
        if self._incoming.closed:
            self._transport.close()
        link.changed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def _forget(self) -> None:
        self._link.accepted.pop(self, None)
        self._link.streams.discard(self._transport)
        if self._timeout is not None:
            self._timeout.cancel()
        if self._incoming is not None:
            self._incoming.abandon()


class OpenedStream(asyncio.Protocol):
    """A stream that this node opened: one message each way."""

    def __init__(self, link: GossipLink, request: StreamRequest) -> None:
        self._link = link
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._done = False
        self._finished: asyncio.Future[None] = link.loop.create_future()

    async def run(self) -> None:
        """Connect, send the request and pass on the answer, within the timeout of the request."""
        request = self._request
        try:
            async with asyncio.timeout(request.timeout):
                await self._link.loop.create_connection(lambda: self, request.address[0], request.address[1])
                await self._finished
        except TimeoutError:
            self._fail(f"no answer within {request.timeout:g} s")
        except OSError as error:
            self._fail(os.strerror(error.errno) if error.errno else str(error))
        finally:
            self._done = True
            if self._transport is not None:
                self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._link.streams.add(self._transport)
        self._transport.write(self._request.data)

    def data_received(self, data: bytes) -> None:
        if not self._done and not self._link.stopped:
            self._deliver(data, "")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._link.streams.discard(self._transport)
        self._fail("the connection was closed without an answer" if exc is None else str(exc))

    def _fail(self, text: str) -> None:
        if not self._done and not self._link.stopped:
            self._deliver(None, text)

    def _deliver(self, data: bytes | None, error: str) -> None:
        link = self._link
        if link.serf.receive_stream_reply(self._request.request_id, data, error, link.now()):
            self._done = True
            if not self._finished.done():
                self._finished.set_result(None)
        link.changed()
