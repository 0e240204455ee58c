"""What a link of this node lets in."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

TOPICS_MAX: Final = 10_000  # whose answer is remembered; a full memory is cleared
TOPIC_BYTES_MAX: Final = 1024  # longer topics are not remembered, which bounds the bytes of the memory


@mypyc_attr(allow_interpreted_subclasses=True)
class LinkGate:
    """Of a link of this node: how many links a message may have passed when it comes in, which topics come in, and which
    messages were not published here, by reason."""

    __slots__ = ("_topics", "dropped", "max_hops")

    def __init__(self, max_hops: int) -> None:
        self.max_hops = max_hops
        self.dropped: dict[str, int] = {}
        self._topics: dict[bytes, bool] = {}

    def takes(self, topic: bytes) -> bool:
        """Whether messages of a topic come in. Answers are kept."""
        if len(topic) > TOPIC_BYTES_MAX:
            return self.has_topic(topic)
        known = self._topics.get(topic)
        if known is None:
            if len(self._topics) >= TOPICS_MAX:
                self._topics.clear()
            known = self._topics[topic] = self.has_topic(topic)
        return known

    def has_topic(self, topic: bytes) -> bool:
        """Whether the link is for a topic. A subclass decides."""
        return True

    def count_refused(self, reason: str, count: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count
