"""The thread that writes the log. It has one work at a time; the loop hears of the end of each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class Writer:
    """Runs work in order, in a thread of its own. `done` is called on the loop with the result, or with the OSError."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], Callable[[Any], None]] | None] = (
            SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, name="event-log", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[..., Any], arguments: tuple[Any, ...], done: Callable[[Any], None]) -> None:
        """Run work(*arguments) after all that was submitted before."""
        self._queue.put((work, arguments, done))

    def stop(self) -> None:
        """End the thread after all work that was submitted. Waits for it."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, arguments, done = item
            try:
                result = work(*arguments)
            except Exception as error:  # of any kind: the owner decides, and the thread lives
                result = error
            self._loop.call_soon_threadsafe(done, result)
