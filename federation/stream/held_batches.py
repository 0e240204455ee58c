"""Batches of a direct stream that are held while receivers are full, and the error that ends a stream."""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

HELD_BYTES_MAX: Final = 16 * 2**20  # the sender's window is smaller


class StreamError(Exception):
    """The stream must end. The other node gets the text. `malformed`: sending the same bytes again would fail again."""

    def __init__(self, text: str, malformed: bool) -> None:
        super().__init__(text)
        self.text = text
        self.malformed = malformed


@dataclass
class HeldBatch:
    """A batch with frames that are not applied yet: those from `pos` on. The first of them has the event id
    first_id + done. They stay in `data`, because slicing would copy the rest of a large batch each time. serial, skipped: as of
    PeerReceiver.receive_batch."""

    first_id: int
    count: int
    done: int
    data: bytes
    pos: int
    serial: int
    skipped: int


class HeldBatches:
    """Batches in the order in which they came, at most HELD_BYTES_MAX bytes and one batch more."""

    def __init__(self) -> None:
        self._batches: deque[HeldBatch] = deque()
        self._size = 0

    def is_empty(self) -> bool:
        return not self._batches

    def append(self, batch: HeldBatch) -> None:
        """Raises StreamError when there are too many bytes: the other node does not keep to its window."""
        size = len(batch.data)
        if self._size + size > HELD_BYTES_MAX and self._batches:
            raise StreamError(f"more than {HELD_BYTES_MAX} bytes wait for receivers here", False)
        self._batches.append(batch)
        self._size += size

    def put_back(self, batch: HeldBatch) -> None:
        """Put the rest of the first batch back to the front."""
        self._batches.appendleft(batch)
        self._size += len(batch.data)

    def take(self) -> HeldBatch:
        batch = self._batches.popleft()
        self._size -= len(batch.data)
        return batch

    def clear(self) -> None:
        self._batches.clear()
        self._size = 0
