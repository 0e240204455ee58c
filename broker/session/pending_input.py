"""The input of a connection that is not handled yet."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

MERGE_BYTES: Final = 4096  # chunks of one packet are joined up to this size, which saves objects


class PendingInput:
    """The beginning of a packet, or, while the connection is held, whole packets that wait.

    size      bytes
    needed    size of the first packet in bytes, 0 while it is not known
    began_at  monotonic seconds when its first bytes came
    """

    __slots__ = ("_chunks", "_start", "began_at", "needed", "size")

    def __init__(self, data: bytes, start: int, needed: int, began_at: float) -> None:
        """data[start:] is not handled."""
        self.size = len(data) - start
        self.needed = needed
        self.began_at = began_at
        self._chunks = [data]
        self._start = start

    def add(self, data: bytes) -> None:
        chunks = self._chunks
        self.size += len(data)
        if len(chunks[-1]) < MERGE_BYTES:
            chunks[-1] += data
        else:
            chunks.append(data)

    def joined(self, data: bytes) -> tuple[bytes, int]:
        """(bytes, position in them to go on from): what is not handled, and `data` behind it."""
        chunks = self._chunks
        if len(chunks) == 1 and not data:
            return chunks[0], self._start
        first = chunks[0][self._start :] if self._start else chunks[0]
        return b"".join([first, *chunks[1:], data]), 0
