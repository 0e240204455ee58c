"""Measures the memory of the process, has what is free given back, and tells the broker what it may take (`max_memory`)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.config.durations import parse_size
from broker.memory_limit import MEMORY_FREE, MEMORY_NAMES, MemoryLimit
from broker.metrics.metric import Metric, gauge
from broker.reclaiming import Reclaiming
from broker.server.logging import get_logger

if TYPE_CHECKING:
    from broker.server.host import Host

MEASURE_SECONDS: Final = 1.0
LIMITED_SECONDS: Final = 0.1  # between two measurements where max_memory is set; each takes some 20 µs
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
GROUPS: Final = Path("/sys/fs/cgroup")
STATM: Final = "/proc/self/statm"  # in pages: size, resident, …
QUIET_SECONDS: Final = 10.0  # shortest time between two lines of the log


class MemoryWatch:
    """`start` is called when the node serves. Does nothing where the system does not tell what the process has."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._log = get_logger("server")
        self._resident = resident_bytes()
        self._limit = MemoryLimit(0)
        self._reclaiming = Reclaiming(self._resident, host.now())
        self._logged_level = MEMORY_FREE
        self._logged_at = host.now() - QUIET_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._resident = resident_bytes()
        self._reclaiming = Reclaiming(self._resident, self._host.now())
        self.follow_settings()

    def follow_settings(self) -> None:
        self.stop()
        text = self._host.settings.mqtt.max_memory
        limit = self._limit.bytes_max = memory_limit(text)
        if not self._resident:
            if limit:
                self._log.warning("max_memory has no effect: this system does not tell what a process has", value=text)
            return
        if limit and self._resident >= limit:
            self._log.warning(
                "max_memory is less than the node takes now", value=text, bytes=self._resident, limit=limit
            )
        self._measure()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _measure(self) -> None:
        host = self._host
        limit = self._limit
        now = host.now()
        self._resident = resident_bytes()
        is_given_back = self._reclaiming.is_due(self._resident, now, limit.is_pressed(self._resident))
        if is_given_back:
            begun = time.monotonic()
            give_back()
            before = self._resident
            self._resident = resident_bytes()
            self._reclaiming.asked(before, self._resident, now, time.monotonic() - begun)
        host.broker.memory_level = limit.judge(self._resident, is_given_back)
        self._tell(now)
        self._timer = host.loop.call_later(LIMITED_SECONDS if limit.bytes_max else MEASURE_SECONDS, self._measure)

    def _tell(self, now: float) -> None:
        """Write a line when the level has changed."""
        level = self._limit.level
        if level == self._logged_level or now - self._logged_at < QUIET_SECONDS:
            return
        self._logged_level = level
        self._logged_at = now
        write = self._log.warning if level > MEMORY_FREE else self._log.info
        name = MEMORY_NAMES[level]
        write(f"memory is {name}", bytes=self._resident, max_memory=self._limit.bytes_max)

    def not_ready(self) -> list[str]:
        """Return why clients should be sent to other nodes; none while the memory is below max_memory."""
        if self._limit.level == MEMORY_FREE:
            return []
        return [
            f"the memory is {MEMORY_NAMES[self._limit.level]}: {self._resident} bytes, max_memory is {self._limit.bytes_max}"
        ]

    def metrics(self) -> list[Metric]:
        if not self._resident:
            return []
        return [
            gauge("gmqtt_memory_bytes_current", "Resident memory of the process.", self._resident),
            gauge("gmqtt_memory_limit_bytes_current", "max_memory in bytes; 0 for no limit.", self._limit.bytes_max),
        ]


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
