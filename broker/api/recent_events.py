"""The newest lines of the log, for those who watch what happens on a node."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from broker.server import traces
from broker.server.log_listeners import LogListeners

EVENTS_MAX: Final = 1000  # that are kept; older ones are a gap for who comes back later
LINE_MAX: Final = 2000  # characters; the rest of a line is cut
# Events need the role `read` only, which sees no payloads.
UNWANTED: Final = (traces.PART,)


class Event(NamedTuple):
    """`number` counts from 1, `time` is in seconds of wall time."""

    number: int
    time: float
    level: str
    line: str


class RecentEvents:
    """Lines come on the thread that wrote them; watchers are woken on the loop."""

    def __init__(self, listeners: LogListeners, loop: asyncio.AbstractEventLoop) -> None:
        self._listeners = listeners
        self._loop = loop
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._waiting: set[asyncio.Future[None]] = set()
        self._lock = threading.Lock()  # for the numbers: several threads write lines
        self._is_stopped = False

    def start(self) -> None:
        self._listeners.listen(self._note, logging.INFO, UNWANTED)

    def stop(self) -> None:
        """Also ends the watches."""
        self._listeners.remove(self._note)
        self._is_stopped = True
        self._wake()

    @property
    def last(self) -> int:
        """The number of the newest event. 0 before the first one."""
        return self._events[-1].number if self._events else 0

    def _note(self, level: str, line: str) -> None:
        self.add(time.time(), level, line)

    def add(self, at: float, level: str, line: str) -> None:
        """Add a line that was written at that time."""
        with self._lock:
            self._events.append(Event(self.last + 1, at, level, line[:LINE_MAX]))
        if self._waiting and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def watch(self, after: int) -> AsyncIterator[Event]:
        """Events with a higher number, those that are kept first. 0, or a number of another process: from now on."""
        seen = after if 0 < after <= self.last else self.last
        while not self._is_stopped:
            for event in [event for event in list(self._events) if event.number > seen]:
                yield event
                seen = event.number
            waiting = self._loop.create_future()
            self._waiting.add(waiting)
            try:
                if self.last == seen:  # what came while the last one was taken has woken nobody
                    await waiting
            finally:
                self._waiting.discard(waiting)
