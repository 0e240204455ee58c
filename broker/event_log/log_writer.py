"""Takes the records that wait to the disk: when, in which groups, and what happens while the disk takes none."""

# not a core: waits for a thread
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from broker.event_log.active import ActiveSegment, Failure, Written
from broker.event_log.appender import Appender, State
from broker.event_log.block import Block
from broker.event_log.tap import LogTap
from broker.server.logging import get_logger
from broker.server.writer_thread import WriterThread

LINGER_SECONDS: Final = 0.1  # that records wait with sync `commit` if no acknowledgement waits for them
FOLLOWED_SECONDS: Final = 0.005  # at most, while subscribers wait for them
RETRY_SECONDS: Final = 2.0  # between two attempts while the disk takes no records
LOOK_SECONDS: Final = 1.0  # between two looks whether the files are still there: what is written meanwhile is lost


class LogWriter:
    """`appender.state` is the state of the writing, which moves here.

    stopped  why records are not written now; "" while they are
    tap      where acknowledgements and publishers wait; None without a broker
    ends     the log is being stopped: whoever waits for a record hears of the first fault
    is_followed  subscribers wait for new records (broker/event_log/stream)
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
        self.is_followed = False
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
        self._timer: asyncio.TimerHandle | None = None  # of records that linger, or of the next attempt
        self._look_timer: asyncio.TimerHandle | None = None

    # --- when ---

    def records_wait(self) -> None:
        """Records wait at the end of a turn."""
        if self.appender.is_urgent:
            self.write()
        elif self.appender.state is State.IDLE:
            self.appender.move(State.LINGERING)
            linger = min(self._linger, FOLLOWED_SECONDS) if self.is_followed else self._linger
            self._timer = self._loop.call_later(linger, self.write)

    def follow(self, is_followed: bool) -> None:
        """Subscribers wait for new records from now on, also for those that linger already; or no more."""
        self.is_followed = is_followed
        if is_followed and self._timer is not None and self.appender.state is State.LINGERING:
            at = min(self._timer.when(), self._loop.time() + FOLLOWED_SECONDS)
            self._timer.cancel()
            self._timer = self._loop.call_at(at, self.write)

    def look(self) -> None:
        """Look whether somebody removed or replaced the files, and again after LOOK_SECONDS."""
        self._thread.submit(self._active.look, (), self._looked)

    def _looked(self, taken: str | Exception) -> None:
        if self.appender.state is State.CLOSED:
            return
        self._look_timer = self._loop.call_later(LOOK_SECONDS, self.look)
        if taken:  # the next write fails; without records it is this one
            self._write()

    def write(self) -> None:
        """Hand the records that wait to the writer's thread, unless it is busy: then they follow when it is done."""
        if self.appender.records:
            self._write()

    def _write(self) -> None:
        appender = self.appender
        if appender.state not in (State.IDLE, State.LINGERING):
            return
        if self._timer is not None:
            self._timer.cancel()
        appender.move(State.WRITING)
        self._thread.submit(self._active.write, (self.log_id, self._take()), self._written)

    def _take(self) -> list[Block]:
        """The records that wait. Their commit and those who wait for them are those of what is being written now."""
        self._commit = self.appender.commit
        self._writing, self._waiting = self._waiting, []
        blocks = self.appender.take()
        if self.tap is not None:
            self.tap.taken()
        return blocks

    async def flush(self) -> None:
        """Wait until everything that was appended can be read. Raises OSError when the disk does not take it."""
        if self.appender.records:
            waiting = self._waiting
            self.appender.is_urgent = True
        elif self.appender.state is State.WRITING or self.appender.state is State.REFUSING:
            waiting = self._writing
        else:
            return
        done: asyncio.Future[None] = self._loop.create_future()
        waiting.append(done)
        self.write()
        await done

    def _written(self, result: tuple[list[Written], Failure | None]) -> None:
        """The thread has done what it could."""
        if self.appender.state is State.CLOSED:
            return
        written, failure = result
        self._wrote(written)
        if failure is None:
            self._settle(None)
            self._go_on()
        else:
            self._fail(failure)

    def _settle(self, error: OSError | None) -> None:
        """The records that were being written are on disk, or with an error given up."""
        if self._commit:
            assert self.tap is not None
            self.tap.finish(self._commit)
            self._commit = 0
        done, self._writing = self._writing, []
        self._answer(done, error)

    def _go_on(self) -> None:
        """Write what has come meanwhile."""
        self.appender.move(State.IDLE)
        if self.appender.records:
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
        exc_info: Exception | None = failure.error
        if isinstance(failure.error, OSError):
            stopped, exc_info = f"{failure.error.strerror or failure.error}", None
        else:  # a fault of this program
            stopped = f"{type(failure.error).__name__}: {failure.error}"
        if not self.stopped:
            consequence = "publishes are refused" if self._refuses else "messages pass without being logged"
            self._log.error("the disk takes no records", error=stopped, consequence=consequence, exc_info=exc_info)
        self.stopped = stopped
        appender = self.appender
        if appender.state is State.WRITING:
            appender.move(State.REFUSING if self._refuses else State.DROPPING)
        error = OSError(stopped)
        if self._refuses:
            self._failed = failure.blocks
            if self.ends:
                self._answer(self._waiting + self._writing, error)
        else:
            self._settle(error)
            appender.lost += sum(block.records for block in failure.blocks + self._take())
            self._settle(error)
        self._try_again_later()

    def _try_again_later(self) -> None:
        self._timer = self._loop.call_later(RETRY_SECONDS, self._thread.submit, self._begin_again, (), self._tried)

    def _begin_again(self) -> tuple[int, list[Written], Failure | None]:
        """In the writer's thread. What a failed sync left in the present segment is not known to be on disk: begin another."""
        size = self._active.begin(self.log_id, self._active.next_offset)
        return size, *self._active.write(self.log_id, self._failed)

    def _tried(self, result: tuple[int, list[Written], Failure | None] | Exception) -> None:
        if self.appender.state is State.CLOSED:
            return
        if isinstance(result, Exception):
            self._try_again_later()
            return
        size, written, failure = result
        self._begun(size)
        self._wrote(written)
        if failure is not None:
            self._fail(failure)
            return
        self._failed = []
        self.stopped = ""
        self._log.info("the disk takes records again", records_lost=self.appender.lost)
        self._settle(None)
        self._go_on()

    def close(self) -> None:
        """Cancel the timer. Whoever waits for a record hears that it was not written."""
        self.appender.move(State.CLOSED)
        for timer in (self._timer, self._look_timer):
            if timer is not None:
                timer.cancel()
        self._answer(self._waiting + self._writing, OSError("the event log was closed"))
