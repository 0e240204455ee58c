"""Messages between two clients of one node, on a topic that no link has: how long they take while things go wrong."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from mqtt_client import MqttClient
from waiting import DEADLINE

PAUSE_SECONDS: Final = 0.02
TOPIC: Final = "local/traffic"


@dataclass
class LocalTraffic:
    """taken    when each message was published (monotonic seconds), and how many seconds it took
    troubles  from when to when something went wrong
    """

    entry: int | Path
    taken: list[tuple[float, float]] = field(default_factory=list)
    troubles: list[tuple[float, float]] = field(default_factory=list)

    async def run(self) -> None:
        subscriber = await MqttClient.connect(self.entry, "local-subscriber")
        publisher = await MqttClient.connect(self.entry, "local-publisher")
        try:
            await subscriber.subscribe(TOPIC, qos=1)
            while True:
                begin = time.monotonic()
                await publisher.publish(TOPIC, b"", 1)
                await subscriber.message(DEADLINE)
                self.taken.append((begin, time.monotonic() - begin))
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            await asyncio.gather(subscriber.close(), publisher.close())

    def medians(self) -> tuple[float, float]:
        """Milliseconds: while all worked, and while something went wrong; 0.0 without a message."""
        quiet: list[float] = []
        bad: list[float] = []
        for at, seconds in self.taken:
            is_bad = any(begin <= at <= end for begin, end in self.troubles)
            (bad if is_bad else quiet).append(seconds * 1000)
        return median(quiet or [0.0]), median(bad or [0.0])
