"""What the records of this store are made of, by ranges of their numbers."""

# compiled with mypyc
from __future__ import annotations

from bisect import bisect_right
from typing import Generic, TypeVar

Value = TypeVar("Value")


class RecordRanges(Generic[Value]):
    """Ranges come by rising numbers. Policy: of more than `count_max` the older half is forgotten.

    forgotten  number of ranges that are not known any more
    """

    def __init__(self, count_max: int) -> None:
        self.forgotten = 0
        self._count_max = count_max
        self._firsts: list[int] = []
        self._ranges: list[tuple[int, Value]] = []  # (one above the last number, what they are)

    def add(self, first: int, end: int, value: Value) -> None:
        """Records with numbers from `first` to below `end` are this, but for those before the end of the newest range. That is
        longer from now on where it is the same, and begins there."""
        if self._firsts and self._firsts[-1] == first and self._ranges[-1][1] == value:
            self._ranges[-1] = end, value
            return
        if self._ranges:  # one that is inside of another one comes before that
            first = max(first, self._ranges[-1][0])
        if first >= end:
            return
        if len(self._firsts) >= self._count_max:
            left_out = self._count_max // 2
            self.forgotten += left_out
            del self._firsts[:left_out]
            del self._ranges[:left_out]
        self._firsts.append(first)
        self._ranges.append((end, value))

    def of(self, number: int) -> Value | None:
        """Return what the record is; None where that is not known."""
        at = bisect_right(self._firsts, number) - 1
        if at >= 0:
            end, value = self._ranges[at]
            if number < end:
                return value
        return None
