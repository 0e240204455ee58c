"""Publishes the rows of a staged block: all at once where nobody gets them, else as many as the receivers take."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.broker import Broker
from broker.errors import MqttError
from broker.event_log.block import RETAIN_FLAG, SECTION_FIELDS
from broker.event_log.records import EXPIRY_BYTES, QOS_BITS
from broker.event_log.staged_block import MarkedRows, StagedBlock
from broker.event_log.staged_rows import RowSet, marker_properties
from broker.event_log.tap import LogTap
from broker.message import Message
from broker.publisher import Publisher

ROWS_OF_STEP: Final = 100


class RowPublisher:
    """The rows of one block. `first` is the number of its first row. The log gets no rows in `logged`, and of these nobody
    else gets those below `routed`, and those of QoS 0.

    row  number of the next row
    """

    def __init__(self, block: StagedBlock, prefix: str, first: int, logged: RowSet, routed: int) -> None:
        self.row = first
        self._block = block
        self._prefix = prefix
        self._first = first
        self._end = first + block.records
        self._logged = logged
        self._routed = routed
        self._has_logged = logged.has_any(first, self._end)
        self._at = 0  # of the next payload in the heap

    @property
    def is_done(self) -> bool:
        return self.row == self._end

    def publish_all(self, broker: Broker, tap: LogTap, publisher: Publisher, now: float) -> None:
        """Publish all rows, if nobody gets them but the log, and the log has none of them. `tap` is that of the log."""
        block = self._block
        if broker.tap is not tap or tap.is_full() or block.has_retained or self._has_logged:
            return
        broker.now = now
        try:
            if not broker.router.reaches_nobody(block.topics):
                return
        except MqttError:
            return  # the settings have changed since the rows were staged: `publish_some` names the row
        for flags in block.fields[SECTION_FIELDS - 1 :: SECTION_FIELDS]:
            broker.counters.count_received(flags & QOS_BITS)
        tap.published_block(MarkedRows(block, self._prefix, self._first), publisher, now)
        self.row = self._end

    def publish_some(self, broker: Broker, tap: LogTap, publisher: Publisher, now: float) -> None:
        """Publish ROWS_OF_STEP rows, or fewer when the publisher is held or a slice is over. Raises MqttError for the row
        `row`."""
        block = self._block
        block.separate()
        end = min(self._end, self.row + ROWS_OF_STEP)
        tap.is_forced = True
        broker.slices.begin()
        try:
            while self.row < end and not publisher.held and not broker.slices.is_over():
                self._publish(block, broker, tap, publisher, now)
        finally:
            tap.is_forced = tap.has_logged = False

    def _publish(self, block: StagedBlock, broker: Broker, tap: LogTap, publisher: Publisher, now: float) -> None:
        section = (self.row - self._first) * SECTION_FIELDS
        fields = block.fields
        size = fields[section + 4]
        flags = fields[section + 7]
        tap.has_logged = self._has_logged and self.row in self._logged
        if not tap.has_logged or (flags & QOS_BITS and self.row >= self._routed):
            extra = fields[section + 6]
            own = block.extras[extra - 1][EXPIRY_BYTES:] if extra else b""
            message = Message(
                block.topics[fields[section + 2]],
                block.heap(self._at, size),
                flags & QOS_BITS,
                flags >= RETAIN_FLAG,
                own + marker_properties(self._prefix, self.row),
            )
            broker.publish(message, now, publisher)
        self._at += size
        self.row += 1
