"""Batches that wait because receivers here are full, and the error that ends a stream."""

from __future__ import annotations

from collections import deque
from typing import Final

WAITING_BYTES_MAX: Final = 16 * 2**20  # the sender's window is smaller


class StreamError(Exception):
    """The stream must end; the text tells the other node why. `malformed`: the same would happen another time."""

    def __init__(self, text: str, malformed: bool) -> None:
        super().__init__(text)
        self.text = text
        self.malformed = malformed


class WaitingBatch:
    """A batch that is not applied, or only in part. Its frames from `pos` on are left; the next one of them has the event id
    first_id + done. They are not cut out, which would copy the rest of a large batch at each stop."""

    __slots__ = ("count", "data", "done", "first_id", "pos")

    def __init__(self, first_id: int, count: int, done: int, data: bytes, pos: int) -> None:
        self.first_id = first_id
        self.count = count
        self.done = done
        self.data = data
        self.pos = pos


class WaitingBatches:
    """In the order in which they came, at most WAITING_BYTES_MAX bytes and one batch more."""

    __slots__ = ("_batches", "_size")

    def __init__(self) -> None:
        self._batches: deque[WaitingBatch] = deque()
        self._size = 0

    def is_empty(self) -> bool:
        return not self._batches

    def append(self, batch: WaitingBatch) -> None:
        """Raises StreamError when there are too many bytes: the other node does not keep to its window."""
        size = len(batch.data)
        if self._size + size > WAITING_BYTES_MAX and self._batches:
            raise StreamError(f"more than {WAITING_BYTES_MAX} bytes wait for receivers here", False)
        self._batches.append(batch)
        self._size += size

    def put_back(self, batch: WaitingBatch) -> None:
        """What is left of the first one."""
        self._batches.appendleft(batch)
        self._size += len(batch.data)

    def take(self) -> WaitingBatch:
        batch = self._batches.popleft()
        self._size -= len(batch.data)
        return batch

    def clear(self) -> None:
        self._batches.clear()
        self._size = 0
