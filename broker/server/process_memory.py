"""The memory of this process, as the system counts it, and what its allocator gives back."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
STATM: Final = "/proc/self/statm"  # in pages: size, resident, …


def resident_bytes() -> int:
    """Return what the process has in memory now; 0 where the system does not tell."""
    try:
        with open(STATM, "rb") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except OSError:
        return 0


def find_trim() -> Callable[[int], int] | None:
    """malloc_trim of glibc, which gives the system all whole pages that are free; None in another C library."""
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim
