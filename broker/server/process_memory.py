"""The memory of this process, as the system counts it, and what its allocator gives back."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from broker.config.durations import parse_size

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
GROUPS: Final = Path("/sys/fs/cgroup")
STATM: Final = "/proc/self/statm"  # in pages: size, resident, …


def resident_bytes() -> int:
    """Return what the process has in memory now; 0 where the system does not tell."""
    try:
        with open(STATM, "rb") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except OSError:
        return 0


def machine_bytes() -> int:
    """The memory of the machine, or of the process's control group where its limit is lower."""
    return min([os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES, *group_limits(Path("/proc/self/cgroup"), GROUPS)])


def group_limits(file: Path, groups: Path) -> list[int]:
    """Limits of the process's control group and of those around it, as Linux names them (cgroups, version 2); none where the
    system has others."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return []
    found: list[int] = []
    for line in lines:
        if line.startswith("0::/"):
            folder = groups / line[4:]
            for one in (folder, *folder.parents):
                if not one.is_relative_to(groups):
                    break
                try:
                    text = (one / "memory.max").read_text().strip()
                except OSError:
                    continue
                if text.isdigit():
                    found.append(int(text))
    return found


def memory_limit(text: str) -> int:
    """The bytes that a setting means, such as `60%` or `512MiB`; 0 for no limit."""
    if text.endswith("%"):
        return machine_bytes() * int(text[:-1]) // 100
    return parse_size(text)


def give_back() -> None:
    """Have the allocator give the system all whole pages that are free. Does nothing in a C library other than glibc."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    import ctypes  # 0.4 MB, which a node that stays small does not need

    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim
