"""When the retained messages of topics were deleted: an older message that waited for a link does not bring one back."""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from typing import Final

TOPICS_MAX: Final = 65_536
TOPIC_BYTES_MAX: Final = 16 * 2**20  # of all topics together


class Deletions:
    """Bounds: topics and their bytes. Policy: past either the oldest deletion is forgotten, which `forgotten` counts."""

    def __init__(self, topics_max: int = TOPICS_MAX, bytes_max: int = TOPIC_BYTES_MAX) -> None:
        self.forgotten = 0
        self._topics_max = topics_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._times: OrderedDict[bytes, int] = OrderedDict()

    def note(self, topic: bytes, milliseconds: int) -> None:
        """The topic has no retained message since that time."""
        times = self._times
        if topic in times:
            times.move_to_end(topic)
        else:
            self._bytes += len(topic)
        times[topic] = milliseconds
        while len(times) > self._topics_max or self._bytes > self._bytes_max:
            oldest, _ = times.popitem(last=False)
            self._bytes -= len(oldest)
            self.forgotten += 1

    def time_of(self, topic: bytes) -> int:
        """Milliseconds since 1970; 0 for a topic of which no deletion is known."""
        return self._times.get(topic, 0)
