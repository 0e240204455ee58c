"""The log of this node, as streams read it."""

# not a core: reads a log in threads
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from broker.event_log.log import EventLog
from broker.event_log.stream.parsed import Portion, parse_portion
from broker.event_log.stream.place import LogPlace
from broker.event_log.stream.start import OFFSET_EARLIEST, OFFSET_LATEST

READ_BYTES: Final = 256 * 1024
"""Bytes of blocks that a stream reads at once, or one block of any size. It is in memory until the client has taken it."""


class OwnLog:
    """node   its name
    missed  number of records that streams were to read and the log does not have any more
    """

    def __init__(self, log: EventLog) -> None:
        self.node = log.node
        self.missed = 0
        self._log = log
        self._newest: dict[int, asyncio.Task[Portion]] = {}  # reads of the end of the log, by their first offset
        self._newest_end = 0

    @property
    def next_offset(self) -> int:
        return self._log.next_offset

    def when_grown(self) -> asyncio.Future[None]:
        """Done when there are records that were not there at the call. Nobody may cancel it."""
        return self._log.when_grown()

    async def locate(self, place: LogPlace | None, since_ns: int) -> LogPlace:
        """Return where a stream begins that was here before, or that begins at a Unix time, 0 for the first record. Raises
        LogFault."""
        log = self._log
        first, end = log.first_offset, log.next_offset
        if place is None:
            return LogPlace(log.log_id, await log.readers.find(log.log_id, since_ns) if since_ns else first)
        if place.offset == OFFSET_EARLIEST:
            return LogPlace(log.log_id, first)
        if place.offset == OFFSET_LATEST:
            return LogPlace(log.log_id, end)
        offset, barrier = place.offset, place.barrier
        if place.log_id:
            shared_end = log.lineage.shared_end(place.log_id)
            if shared_end is None:  # another log: all of it is new
                return LogPlace(log.log_id, first)
            offset, barrier = min(offset, shared_end), min(barrier, shared_end)
        return LogPlace(log.log_id, min(offset, end), min(barrier, end))

    async def read(self, log_id: str, start: int, filters: Sequence[bytes]) -> Portion | None:
        """What there is from `start` on; blocks without a topic of the filters are left out. None at the end of the log.
        Raises LogFault."""
        log = self._log
        first = max(start, log.first_offset)
        if first >= log.next_offset:
            return None
        portion, _ = await log.readers.read_as(log_id, first, log.next_offset, READ_BYTES, filters, parse_portion)
        self.missed += portion.first_offset - start
        return portion

    async def read_newest(self, log_id: str, start: int) -> Portion | None:
        """As `read`, of all topics. Streams that ask for the same share one read."""
        end = self._log.next_offset
        if start >= end:
            return None
        if end != self._newest_end:
            self._newest.clear()
            self._newest_end = end
        task = self._newest.get(start)
        if task is None:
            task = self._newest[start] = asyncio.get_running_loop().create_task(self._read_all(log_id, start))
        return await asyncio.shield(task)

    async def _read_all(self, log_id: str, start: int) -> Portion:
        portion = await self.read(log_id, start, ())
        assert portion is not None
        return portion
