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
    turns         which of them is read when
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
        self.turns = StreamTurns(loop)

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


class StreamTurns:
    """A turn of the loop reads one slice of one stream, and streams with bytes that wait come in order: all of them together
    keep clients waiting for no longer than one does."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: OrderedDict[GossipStream, None] = OrderedDict()
        self._is_taken = False

    def try_take(self) -> bool:
        """Take this turn; False when another stream has it, or waits for one."""
        if self._is_taken:
            return False
        self._is_taken = True
        self._loop.call_soon(self._next)
        return True

    def wait(self, stream: GossipStream) -> None:
        """Give the stream a later turn. One has been taken."""
        self._waiting[stream] = None

    def remove(self, stream: GossipStream) -> None:
        self._waiting.pop(stream, None)

    def _next(self) -> None:
        self._is_taken = bool(self._waiting)
        if self._waiting:
            self._loop.call_soon(self._next)
            self._waiting.popitem(last=False)[0].read_waiting()


class GossipStream(asyncio.Protocol):
    """A stream of either side. While bytes of it wait no more are taken from its socket."""

    def __init__(self, link: GossipLink) -> None:
        self._link = link
        self._transport: asyncio.Transport | None = None
        self._late = b""  # that came while other streams waited

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses

    def data_received(self, data: bytes) -> None:
        self._late += data
        if self._link.turns.try_take():
            self.read_waiting()
        else:
            self._wait()

    def read_waiting(self) -> None:
        """Read one slice of what came."""
        data = self._late
        self._late = b""
        if self.read_slice(data):
            self._wait()
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _wait(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._link.turns.wait(self)

    def read_slice(self, data: bytes) -> bool:
        """Read `data`, or what waits of before. True: more of it waits."""
        raise AssertionError("a subclass implements this")


class AcceptedStream(GossipStream):
    """A stream that another node opened."""

    def __init__(self, link: GossipLink) -> None:
        super().__init__(link)
        self._incoming: IncomingStream | None = None
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._transport is not None
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
        if self._transport is not None:
            self._transport.abort()
        self._forget()

    def read_slice(self, data: bytes) -> bool:
        link = self._link
        if self._incoming is None or self._transport is None or link.stopped:
            return False
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
        return self._incoming.is_behind

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def _forget(self) -> None:
        self._link.accepted.pop(self, None)
        self._link.turns.remove(self)
        if self._transport is not None:
            self._link.streams.discard(self._transport)
        if self._timeout is not None:
            self._timeout.cancel()
        if self._incoming is not None:
            self._incoming.abandon()


class OpenedStream(GossipStream):
    """A stream that this node opened: one message each way."""

    def __init__(self, link: GossipLink, request: StreamRequest) -> None:
        super().__init__(link)
        self._request = request
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
        super().connection_made(transport)
        assert self._transport is not None
        self._link.streams.add(self._transport)
        self._transport.write(self._request.data)

    def read_slice(self, data: bytes) -> bool:
        if self._done or self._link.stopped:
            return False
        self._deliver(data, "")
        return not self._done and self._link.serf.stream_is_behind(self._request.request_id)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.turns.remove(self)
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
