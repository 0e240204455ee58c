"""Takes the records that wait to the disk: when, in which groups, and what happens while the disk takes none."""

# not a core: waits for a thread
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from broker.event_log.active import ActiveSegment, Failure, Written
from broker.event_log.appender import Appender
from broker.event_log.block import Block
from broker.event_log.tap import LogTap
from broker.server.logging import get_logger
from broker.server.writer_thread import WriterThread

LINGER_SECONDS: Final = 0.1  # that records wait with sync `commit` if no acknowledgement waits for them
RETRY_SECONDS: Final = 2.0  # between two attempts while the disk takes no records


class LogWriter:
    """stopped  why records are not written now; "" while they are
    tap      where acknowledgements and publishers wait; None without a broker
    ends     the log is being stopped: whoever waits for a record hears of the first fault
    """

    def __init__(
        self,
        thread: WriterThread,
        active: ActiveSegment,
        appender: Appender,
        linger: float,
        refuses: bool,
        wrote: Callable[[list[Written]], None],
        begun: Callable[[int], None],
    ) -> None:
        """`wrote` is told what was written, `begun` the size of the header when a segment was begun without a record."""
        self.stopped = ""
        self.tap: LogTap | None = None
        self.ends = False
        self.log_id = ""
        self.appender = appender
        self._thread = thread
        self._active = active
        self._linger = linger
        self._refuses = refuses
        self._wrote = wrote
        self._begun = begun
        self._loop = asyncio.get_running_loop()
        self._log = get_logger("event_log")
        self._commit = 0  # of the records that are being written
        self._waiting: list[asyncio.Future[None]] = []  # for records in the appender
        self._writing: list[asyncio.Future[None]] = []  # for records that are being written
        self._failed: list[Block] = []  # that were not written
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None

    # --- when ---

    def records_wait(self) -> None:
        """Records wait at the end of a turn."""
        if self.appender.is_urgent:
            self.write()
        elif not self.appender.is_timed and not self.appender.is_busy:
            self.appender.is_timed = True
            self._timer = self._loop.call_later(self._linger, self.write)

    def write(self) -> None:
        """Hand the records that wait to the writer's thread, unless it is busy: then they follow when it is done."""
        appender = self.appender
        if appender.is_busy or not appender.records:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._commit = appender.commit
        self._writing, self._waiting = self._waiting, []
        self._thread.submit(self._active.write, (self.log_id, appender.take()), self._written)
        appender.is_busy = True
        if self.tap is not None:
            self.tap.taken()

    async def flush(self) -> None:
        """Wait until everything that was appended can be read. Raises OSError when the disk does not take it."""
        if self.appender.records:
            waiting = self._waiting
            self.appender.is_urgent = True
        elif self.appender.is_busy:
            waiting = self._writing
        else:
            return
        done: asyncio.Future[None] = self._loop.create_future()
        waiting.append(done)
        self.write()
        await done

    def _written(self, result: tuple[list[Written], Failure | None]) -> None:
        """The thread has done what it could."""
        written, failure = result
        self._wrote(written)
        if failure is None:
            self._settle(None)
        else:
            self._fail(failure)

    def _settle(self, error: OSError | None) -> None:
        """The records that were being written are on disk, or with an error given up. Go on with those that wait."""
        appender = self.appender
        appender.is_busy = False
        if self._commit:
            assert self.tap is not None
            self.tap.finish(self._commit)
            self._commit = 0
        done, self._writing = self._writing, []
        self._answer(done, error)
        if appender.records:
            self.records_wait()

    def _answer(self, done: list[asyncio.Future[None]], error: OSError | None) -> None:
        for waiter in done:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    # --- a disk that takes nothing ---

    def _fail(self, failure: Failure) -> None:
        """Stop logging, or refuse publishes, until the disk takes records again."""
        is_first = not self.stopped
        exc_info: Exception | None = failure.error
        if isinstance(failure.error, OSError):
            self.stopped, exc_info = f"{failure.error.strerror or failure.error}", None
        else:  # a fault of this program
            self.stopped = f"{type(failure.error).__name__}: {failure.error}"
        error = OSError(self.stopped)
        self._failed = failure.blocks
        appender = self.appender
        if is_first:
            consequence = "publishes are refused" if self._refuses else "messages pass without being logged"
            self._log.error("the disk takes no records", error=self.stopped, consequence=consequence, exc_info=exc_info)
        if self._refuses:
            if self.tap is not None:
                self.tap.is_full = True
            if self.ends:
                self._answer(self._waiting + self._writing, error)
        else:
            appender.is_stopped = True
            appender.lost += sum(block.records for block in failure.blocks)
            self._failed = []
            self._give_up(error)
        self._retry = self._loop.call_later(RETRY_SECONDS, self._try_again)

    def _give_up(self, error: OSError) -> None:
        """Drop the records that wait; their messages are acknowledged without them."""
        appender = self.appender
        appender.lost += appender.records
        commit = appender.commit
        appender.take()
        waiting, self._waiting = self._waiting, []
        if commit:
            self._commit = commit
        if self.tap is not None:
            self.tap.taken()
        self._settle(error)
        self._answer(waiting, error)
        appender.is_busy = True  # until a retry succeeds

    def _try_again(self) -> None:
        self._retry = None
        self._thread.submit(self._begin_again, (), self._tried)

    def _begin_again(self) -> tuple[int, list[Written], Failure | None]:
        """In the writer's thread."""
        size = self._active.begin_again(self.log_id)
        return size, *self._active.write(self.log_id, self._failed)

    def _tried(self, result: Any) -> None:
        if isinstance(result, Exception):
            self._retry = self._loop.call_later(RETRY_SECONDS, self._try_again)
            return
        size, written, failure = result
        self._begun(size)
        self._wrote(written)
        if failure is not None:
            self._fail(failure)
            return
        self._failed = []
        self.stopped = ""
        self.appender.is_stopped = False
        if self.tap is not None:
            self.tap.is_full = False
        self._log.info("the disk takes records again", records_lost=self.appender.lost)
        self._settle(None)

    def close(self) -> None:
        """Cancel the timers. Whoever waits for a record hears that it was not written."""
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._answer(self._waiting + self._writing, OSError("the event log was closed"))
