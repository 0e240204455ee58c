"""A log as streams read it: that of this node, or of another one."""

# not a core: reads logs
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from broker.event_log.stream.parsed import Portion
from broker.event_log.stream.place import LogPlace

NEWEST_MAX: Final = 8  # reads of the end of a log that are kept for those who come to it later; then the oldest goes


class StreamLog:
    """node   whose log it is
    next_offset  of the next record that will be served, as far as this node knows
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self._newest: dict[int, asyncio.Task[Portion | None]] = {}  # reads of the end of the log, by their first offset
        self._newest_end = 0

    @property
    def next_offset(self) -> int:
        raise AssertionError("a subclass implements this")

    async def locate(self, place: LogPlace | None, since_ns: int) -> LogPlace:
        """Return where a stream begins that was here before, or that begins at a Unix time, 0 for the first record. Raises
        LogFault."""
        raise AssertionError("a subclass implements this")

    async def read(self, log_id: str, start: int, filters: Sequence[bytes]) -> Portion | None:
        """Return what there is from `start` on, without blocks that have no topic of the filters. None at the end of the log.
        Raises LogFault."""
        raise AssertionError("a subclass implements this")

    def when_grown(self, log_id: str) -> asyncio.Future[None]:
        """Done when there are records that were not there at the call, or the log has to be looked at. Nobody may cancel
        it."""
        raise AssertionError("a subclass implements this")

    async def read_newest(self, log_id: str, start: int) -> Portion | None:
        """As `read`, of all topics. Streams that ask for the same share one read."""
        end = self.next_offset
        if start >= end:
            return None
        if end != self._newest_end:
            self._newest.clear()
            self._newest_end = end
        task = self._newest.get(start)
        if task is None:
            task = asyncio.get_running_loop().create_task(self.read(log_id, start, ()))
            task.add_done_callback(partial(self._newest_was_read, start))
            self._newest[start] = task
            if len(self._newest) > NEWEST_MAX:
                self._newest.pop(next(iter(self._newest)))
        return await asyncio.shield(task)

    def _newest_was_read(self, start: int, task: asyncio.Task[Portion | None]) -> None:
        """Keep what reaches to the end, for streams that come to it a little later. The others read on from files."""
        portion = None if task.cancelled() or task.exception() is not None else task.result()
        if self._newest.get(start) is task and (portion is None or portion.next_offset < self._newest_end):
            del self._newest[start]

    def stop(self) -> None:
        """Read no more."""
