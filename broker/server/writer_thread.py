"""A thread that writes to a disk. It has one work at a time; the loop hears of the end of each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

Work: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Callable[[Any], None]]


class WriterThread:
    """Runs work in order. `done` is called on the loop with the result, or with the exception."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._ending = threading.Event()
        self._put_back: Work | None = None  # comes before the queue
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: Callable[..., Any], arguments: tuple[Any, ...], done: Callable[[Any], None]) -> None:
        """Run work(*arguments) after all that was submitted before."""
        self._queue.put((work, arguments, done))

    async def result(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run work(*arguments) after all that was submitted before. Returns its result, raises its error."""
        return await self._future(work, arguments)

    async def stop(self, last: Callable[..., None], *arguments: Any) -> None:
        """End the thread after all that was submitted before, with last(*arguments). What is submitted later never runs."""
        self._ending.set()
        done = self._future(last, arguments)
        self._queue.put(None)
        await done

    def _future(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = self._loop.create_future()

        def finish(result: Any) -> None:
            if done.cancelled():
                return
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)

        self.submit(work, arguments, finish)
        return done

    def run_waiting(self) -> bool:
        """For work that takes long, in the thread: run what was submitted since. False when the thread is to end."""
        while not self._ending.is_set():
            try:
                item = self._queue.get_nowait()
            except Empty:
                return True
            if self._ending.is_set():  # it may be the last work, which comes after the one that is running
                self._put_back = item
            elif item is not None:
                self._do(item)
        return False

    def _run(self) -> None:
        while (item := self._put_back or self._queue.get()) is not None:
            self._put_back = None
            self._do(item)

    def _do(self, item: Work) -> None:
        work, arguments, done = item
        try:
            result = work(*arguments)
        except Exception as error:  # of any kind: the owner decides, and the thread lives
            result = error
        with suppress(RuntimeError):  # the loop was closed before the thread was stopped
            self._loop.call_soon_threadsafe(done, result)
