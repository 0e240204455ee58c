"""Measures the memory of the process, and gives back what is free."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from broker.metrics.metric import Metric, gauge
from broker.reclaiming import Reclaiming
from broker.server.process_memory import find_trim, resident_bytes

if TYPE_CHECKING:
    from broker.server.host import Host

MEASURE_SECONDS: Final = 1.0


class MemoryWatch:
    """`start` is called when the node serves. Does nothing where the system does not tell what the process has."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._trim = find_trim()
        self._resident = resident_bytes()
        self._reclaiming = Reclaiming(self._resident, host.now())
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._resident:
            self._reclaiming = Reclaiming(resident_bytes(), self._host.now())
            self._arm()

    def _arm(self) -> None:
        self._timer = self._host.loop.call_later(MEASURE_SECONDS, self._measure)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _measure(self) -> None:
        now = self._host.now()
        self._resident = resident_bytes()
        if self._trim is not None and self._reclaiming.is_due(self._resident, now):
            begun = time.monotonic()
            self._trim(0)
            before = self._resident
            self._resident = resident_bytes()
            self._reclaiming.asked(before, self._resident, now, time.monotonic() - begun)
        self._arm()

    def metrics(self) -> list[Metric]:
        if not self._resident:
            return []
        return [gauge("gmqtt_memory_bytes_current", "Resident memory of the process.", self._resident)]
