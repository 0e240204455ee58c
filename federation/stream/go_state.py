"""The full state of a Go broker, which marks neither its begin nor its end and has no versions of retained messages.

After a clean start its filters come first, then its retained messages, each topic once. So its old interest goes when
something else comes than a filter, or nothing for CONFIRM_SECONDS. Its retained messages may be state or fresh ones; it keeps
whatever it is sent, so the value that stays is chosen here, and sent back where the two differ.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.message import NEVER

CONFIRM_SECONDS: Final = 1.0  # of quiet, after which the state is complete
STATE_TOPICS_MAX: Final = 1_000_000  # retained messages that are taken for state

Interest = tuple[bytes, bytes]


class GoState:
    """Of one session, from its clean start to the end of its state.

    told     filters that it has told; None once they are complete
    end_at   when it is complete without another event
    """

    def __init__(self) -> None:
        self.told: dict[Interest, bytes] | None = {}  # with b"" as their note
        self._topics: set[bytes] = set()
        self.end_at = NEVER

    def stream_began(self, now: float) -> None:
        self.end_at = now + CONFIRM_SECONDS

    def stream_ended(self) -> None:
        self.end_at = NEVER

    def is_filter(self, now: float) -> bool:
        """A filter comes: whether it belongs to the state."""
        if self.told is None:
            return False
        self.end_at = now + CONFIRM_SECONDS
        return True

    def is_retained(self, topic: bytes, now: float) -> bool:
        """A retained message comes: whether it may belong to the state."""
        if topic in self._topics or len(self._topics) >= STATE_TOPICS_MAX:
            return False
        self._topics.add(topic)
        self.end_at = now + CONFIRM_SECONDS
        return True
