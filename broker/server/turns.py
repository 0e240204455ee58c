"""The two things every shell needs: the clock, and the flush, which writes what the broker wants written.

A turn of the loop handles everything that has come in; its output leaves once for each receiver at the end of the turn.
A small chunk that comes by itself does not wait for that end. Every message passes here, so the module is compiled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol, cast

from mypy_extensions import mypyc_attr

from broker.broker import Broker
from broker.publisher import Publisher
from broker.session.connection import Connection

FLUSH_ROUNDS_MAX: Final = 100  # rounds of one turn; the rest goes on in the next turn
FLUSH_WRITES_MAX: Final = 2_000  # connections that are written to in one turn; some 5 µs each
SMALL_CHUNK: Final = 512  # bytes; a larger one is part of a stream of them, where gathering saves more than it costs
SINGLE_SECONDS: Final = 0.00025  # from one chunk that is flushed at once to the next


class ReadingOwner(Protocol):
    """A shell that reads for a publisher."""

    def set_reading(self, publisher: Publisher) -> None:
        """Pause or resume reading as `publisher.held` says."""


class WritingOwner(Protocol):
    """A shell that writes for a connection."""

    def carry_out(self, connection: Connection) -> None:
        """Write the output of this turn; close when the core says so."""


class FaultOwner(Protocol):
    """Who is told of faults of ours. Nothing else of the turn may suffer from one."""

    def internal_error(self, connection: Connection, error: Exception) -> None:
        """In handling one client, who pays with the connection."""

    def plugin_error(self, error: Exception) -> None:
        """At the end of a turn, or for a publisher that is no client."""

    def timer_error(self, error: Exception) -> None:
        """In what was due."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TurnEnd:
    """Something of a plugin that acts at the end of each turn."""

    def turn_ended(self, now: float) -> None:
        """After the clients' writes."""


class Turns:
    """ends   told of the end of each flush: there the federation's batches leave"""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop, faults: FaultOwner) -> None:
        self.ends: list[TurnEnd] = []
        self._broker = broker
        self._loop = loop
        self._time: Callable[[], float] = loop.time  # bound once, for every chunk
        self._faults = faults
        self._is_scheduled = False
        self._is_going_on = False
        self._single_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def now(self) -> float:
        """Monotonic seconds, the `now` of every core: the loop's time, which stands still within a turn."""
        return self._time()

    def flush_soon(self) -> None:
        """After acting on the broker: write what it wants written at the end of this loop turn, once for each receiver."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._end_turn)

    def chunk_handled(self, size: int, now: float) -> None:
        """A chunk of a client was handled: write what it brought. A small one that comes by itself does not wait for the end
        of the turn. Under load that is one flush more in SINGLE_SECONDS; alone, it saves the way back to the loop."""
        if size <= SMALL_CHUNK and not self._is_scheduled:
            clock = time.monotonic()  # the loop's time stands still within a millisecond
            if clock - self._single_at >= SINGLE_SECONDS:
                self._single_at = clock
                self.flush_now(now)
                return
        self.flush_soon()

    def _end_turn(self) -> None:
        self._is_scheduled = False
        self.flush_now(self.now())

    def flush_now(self, now: float) -> None:
        """Write what the broker wants written, and move the timer. Not from inside of a flush."""
        broker = self._broker
        rounds = FLUSH_ROUNDS_MAX  # a loop over a range would make an object of each number
        writes = FLUSH_WRITES_MAX
        while rounds > 0 and writes > 0:
            rounds -= 1
            dirty = broker.take_dirty(writes)
            writes -= len(dirty)
            for publisher in dirty:
                connection = cast(Connection, publisher)
                try:
                    cast(WritingOwner, connection.owner).carry_out(connection)
                except Exception as error:  # the others of this turn must still be written
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
        """In the turn after: whoever has sent something meanwhile came first."""
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
                cast(ReadingOwner, publisher.owner).set_reading(publisher)
            except Exception as error:
                if isinstance(publisher, Connection):
                    self._faults.internal_error(publisher, error)
                else:
                    self._faults.plugin_error(error)

    def _arm_timer(self) -> None:
        """A timer that fires early looks again, which costs less than to move it."""
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
        """No more timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
