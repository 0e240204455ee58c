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
from broker.event_log.stream.stream_log import StreamLog

READ_BYTES: Final = 256 * 1024
"""Bytes of blocks that a stream reads at once, or one block of any size. It is in memory until the client has taken it."""


class OwnLog(StreamLog):
    """As StreamLog."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(log.node)
        self._log = log

    @property
    def next_offset(self) -> int:
        return self._log.next_offset

    def when_grown(self, log_id: str) -> asyncio.Future[None]:
        return self._log.when_grown()

    def end(self) -> LogPlace:
        return LogPlace(self._log.log_id, self._log.next_offset)

    async def locate(self, place: LogPlace | None, since_ns: int) -> LogPlace:
        log = self._log
        first, end = log.first_offset, log.next_offset
        if place is None:
            return LogPlace(log.log_id, await log.readers.find(log.log_id, since_ns) if since_ns else first)
        if place.offset == OFFSET_EARLIEST:
            return LogPlace(log.log_id, first)
        if place.offset == OFFSET_LATEST:
            return self.end()
        offset, barrier = place.offset, place.barrier
        if place.log_id:
            shared_end = log.lineage.shared_end(place.log_id)
            if shared_end is None:  # another log: all of it is new
                return LogPlace(log.log_id, first)
            offset, barrier = min(offset, shared_end), min(barrier, shared_end)
        return LogPlace(log.log_id, min(offset, end), min(barrier, end))

    async def read(self, log_id: str, start: int, filters: Sequence[bytes]) -> Portion | None:
        log = self._log
        first = max(start, log.first_offset)
        if first >= log.next_offset:
            return None
        portion, _ = await log.readers.read_as(log_id, first, log.next_offset, READ_BYTES, filters, parse_portion)
        return portion
