"""A connection that brings a direct stream: the shell around federation/stream/direct_server.py."""

# compiled with mypyc
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from broker.message import NEVER
from broker.publisher import Publisher
from federation.shell.stream_host import StreamHost
from federation.stream.direct_server import DirectServer
from federation.trust import Caller

CLOSE_SECONDS_MAX: Final = 2.0  # for the client to take why its stream ended
ANSWERS_BYTES_MAX: Final = 65_536  # acknowledgements that the client does not take; more of them abort the stream


class DirectServerProtocol(asyncio.Protocol):
    """One connection that began with the preface of a direct stream."""

    def __init__(self, host: StreamHost, caller: Caller) -> None:
        self._host = host
        self._caller = caller
        self._time: Callable[[], float] = host.loop.time  # bound once, for every batch
        self._turns = host.turns
        self.core = DirectServer(host.node.receivers, host.bytes_max, host.loop.time(), caller)
        self._is_open = False
        self._is_closing = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=ANSWERS_BYTES_MAX)
        self._arm()

    def pause_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._host.log.info("ended an event stream", node=self.core.name, reason="it does not read what we answer")
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._is_closing:
            return
        now = self._time()
        try:
            self.core.receive_data(data, now)
        except Exception as error:
            self._failed(error)
        if self._is_open:
            if self._turns is not None:
                self._turns.chunk_handled(len(data), now)
            else:
                self._host.changed()
        elif self.core.receiver is not None:
            self._open()
        self._write(now)

    def _failed(self, error: Exception) -> None:
        """A fault of ours: the event is counted as done, so it does not come again."""
        self._host.log.error("fault in handling an event stream", node=self.core.name, exc_info=error)
        self.core.end("internal error")

    def _open(self) -> None:
        self._is_open = True
        receiver = self.core.receiver
        assert receiver is not None
        receiver.publisher.owner = self
        self._host.stream_opened(self)
        self._follow_reading()

    def set_reading(self, publisher: Publisher) -> None:
        """Receivers here are full, or have room again."""
        transport = self._transport
        if transport is None or self._is_closing:
            return
        now = self._time()
        try:
            self.core.reading_changed(now)
        except Exception as error:
            self._failed(error)
        self._follow_reading()
        self._write(now)
        if self._turns is None or self.core.is_over:
            self._host.changed()

    def _follow_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.core.wants_reading():
            transport.resume_reading()
        else:
            transport.pause_reading()

    def carry_out(self) -> None:
        self._write(self._time())

    def _write(self, now: float) -> None:
        """Return what the core wants written; its timer."""
        transport = self._transport
        core = self.core
        if transport is None or self._is_closing:
            return
        data = core.data_to_send(now)
        if data:
            transport.write(data)
        if core.is_over:
            self._close(transport)
            return
        if core.awaits_store():
            self._host.acks_due[self] = None
        if core.next_timeout() < self._timer_at:
            self._arm()

    def _close(self, transport: asyncio.Transport) -> None:
        """Return what is written may still be taken, but not for ever."""
        if self.core.is_distrusted:
            self._host.distrusted_caller(self._caller, self.core.refused)
        elif self.core.refused:
            self._host.refused(self.core.refused)
        else:
            self._host.log.info("ended an event stream", node=self.core.name, reason=self.core.end_text)
        self._is_closing = True
        transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._host.loop.call_later(CLOSE_SECONDS_MAX, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._host.connections.discard(self._transport)
            self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        core = self.core
        core.close()
        receiver = core.receiver
        if receiver is not None:
            if receiver.publisher.owner is self:
                receiver.publisher.owner = None
            self._host.stream_closed(self)

    # --- time: a timer that fires early looks again, which costs less than to move it

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self.core.next_timeout()
        self._timer = self._host.loop.call_at(self._timer_at, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._timer_at = NEVER
        now = self._time()
        self.core.handle_timeout(now)
        self._write(now)
