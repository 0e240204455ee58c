"""Turns of the event loop: the clock, and the flush at the end of each turn.

A turn handles all input that has come in. Its end writes the output, once for each receiver. A small chunk that comes
by itself is flushed before the end of its turn. Every message passes here, so the module is compiled.
"""

# compiled with mypyc
from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from mypy_extensions import mypyc_attr

from broker.broker import Broker
from broker.publisher import Publisher
from broker.session.connection import Connection

FLUSH_ROUNDS_MAX: Final = 100  # rounds of one flush; the next turn continues
FLUSH_WRITES_MAX: Final = 2_000  # connections that one flush writes to; some 5 µs each
CLOSES_MAX: Final = 100  # sockets that one turn closes because their clients have gone; 16 µs each, 12 in the kernel
SMALL_CHUNK: Final = 512  # bytes; larger chunks come under load, where one flush for many saves CPU
SINGLE_SECONDS: Final = 0.00025  # shortest time between two chunks that are flushed at once


class ReadingShell(Protocol):
    """The shell of a publisher."""

    def set_reading(self, publisher: Publisher) -> None:
        """Pause reading while `publisher.held` is above zero."""


class WritingShell(Protocol):
    """The shell of a connection."""

    def carry_out(self, connection: Connection) -> None:
        """Write the connection's output; close the socket when the core has closed the connection."""


class FaultShell(Protocol):
    """Handles exceptions. The rest of the turn goes on after each of them."""

    def internal_error(self, connection: Connection, error: Exception) -> None:
        """A fault in handling one client. Its connection ends."""

    def plugin_error(self, error: Exception) -> None:
        """A fault at the end of a turn, or for a publisher that is not a client."""

    def timer_error(self, error: Exception) -> None:
        """A fault in a deadline or in sliced work."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TurnEnd:
    """A plugin's callback at the end of each turn."""

    def turn_ended(self, now: float) -> None:
        """The output of clients is written."""


class Turns:
    """ends   called after each flush; the federation writes its event streams there"""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop, faults: FaultShell) -> None:
        self.ends: list[TurnEnd] = []
        self._broker = broker
        self._loop = loop
        self._time: Callable[[], float] = loop.time  # bound once, for every chunk
        self._faults = faults
        self._is_scheduled = False
        self._is_going_on = False
        self._closes = 0  # in this turn
        self._closing: deque[asyncio.Transport] = deque()  # in later turns
        self._single_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def now(self) -> float:
        """Monotonic seconds, the `now` of every core: the loop's time, which is constant within a turn."""
        return self._time()

    def flush_soon(self) -> None:
        """Flush at the end of this turn. Call it after every change of the broker."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._end_turn)

    def chunk_handled(self, size: int, now: float) -> None:
        """Flush after a chunk of a client: at once for a small chunk that comes by itself, else at the end of the turn.
        The flush at once saves the way through the loop; under load it costs one flush more in SINGLE_SECONDS."""
        if size <= SMALL_CHUNK and not self._is_scheduled:
            clock = time.monotonic()  # the loop's time has a resolution of a millisecond
            if clock - self._single_at >= SINGLE_SECONDS:
                self._single_at = clock
                self.flush_now(now)
                return
        self.flush_soon()

    def may_close(self, transport: asyncio.Transport) -> bool:
        """The client has gone. Whether its socket may be closed now. Where many go at once, later turns close it."""
        self.flush_soon()
        if self._closes < CLOSES_MAX:
            self._closes += 1
            return True
        self._closing.append(transport)
        return False

    def _end_turn(self) -> None:
        self._is_scheduled = False
        self.flush_now(self.now())
        closing = self._closing
        self._closes = min(CLOSES_MAX, len(closing))
        for _ in range(self._closes):
            closing.popleft().close()
        if self._closes:
            self.flush_soon()

    def flush_now(self, now: float) -> None:
        """Write the output of the broker and set the timer. Must not be called during a flush."""
        broker = self._broker
        rounds = FLUSH_ROUNDS_MAX  # compiled, a `while` with native integers costs less than a range
        writes = FLUSH_WRITES_MAX
        while rounds > 0 and writes > 0:
            rounds -= 1
            dirty = broker.take_dirty(writes)
            writes -= len(dirty)
            for publisher in dirty:
                connection = cast(Connection, publisher)
                try:
                    cast(WritingShell, connection.owner).carry_out(connection)
                except Exception as error:  # the other connections must still be written
                    self._faults.internal_error(connection, error)
            if broker.reading_changes:
                self._set_reading()
            elif not broker.dirty:
                break
        else:
            self.flush_soon()
        if broker.slices.has_work() and not self._is_going_on:
            self._is_going_on = True
            self._loop.call_soon(self._go_on)
        for end in self.ends:
            try:
                end.turn_ended(now)
            except Exception as error:
                self._faults.plugin_error(error)
        if self._timer is None or broker.timers.is_earlier or broker.peer_holds:
            self._arm_timer()

    def _go_on(self) -> None:
        """Continue sliced work, in a turn of its own: the input of others is handled before."""
        self._is_going_on = False
        now = self.now()
        try:
            self._broker.go_on(now)
        except Exception as error:
            self._faults.timer_error(error)
        self.flush_now(now)

    def _set_reading(self) -> None:
        for publisher in self._broker.take_reading_changes():
            if publisher.owner is None:
                continue
            try:
                cast(ReadingShell, publisher.owner).set_reading(publisher)
            except Exception as error:
                if isinstance(publisher, Connection):
                    self._faults.internal_error(publisher, error)
                else:
                    self._faults.plugin_error(error)

    def _arm_timer(self) -> None:
        """Set the timer, unless it fires early enough. One that fires too early is set again, which costs less than moving
        it."""
        at = self._broker.next_timeout()
        if at is None:
            return
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._handle_timeout)

    def _handle_timeout(self) -> None:
        self._timer = None
        now = self.now()
        try:
            self._broker.handle_timeout(now)
        except Exception as error:
            self._faults.timer_error(error)
        self.flush_now(now)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
