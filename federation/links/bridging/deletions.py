"""Remembers when the retained messages of topics were deleted.

So an older message that waited for a link does not bring one back, and a domain that was not there then learns of the
deletion with its next subscription.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from typing import Final

from broker.message import NEVER, Message
from broker.origin import Origin
from broker.routing.retained import TopicMessages

LATE: Final = b"late"
"""Field of a deletion that a subscription has brought: it is nothing to a domain that has no older message of the topic."""
TOPICS_MAX: Final = 65_536
TOPIC_BYTES_MAX: Final = 16 * 2**20  # of all topics together


class Deletions(TopicMessages):
    """Bounds: topics and their bytes. Policy: past either the oldest deletion is forgotten, which `forgotten` counts."""

    def __init__(self, topics_max: int = TOPICS_MAX, bytes_max: int = TOPIC_BYTES_MAX) -> None:
        super().__init__()
        self.forgotten = 0
        self._topics_max = topics_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._messages: OrderedDict[bytes, Message] = OrderedDict()

    def __len__(self) -> int:
        return len(self._messages)

    def get(self, topic: bytes) -> Message | None:
        """The message that has deleted that of the topic, the last one."""
        return self._messages.get(topic)

    def note(self, topic: bytes, origin: Origin) -> None:
        """The topic has no retained message since the time of the origin."""
        messages = self._messages
        if topic in messages:
            messages.move_to_end(topic)
        else:
            self._bytes += len(topic)
        others = {LATE: b"1"} if origin.others is None else {**origin.others, LATE: b"1"}
        late = Origin(origin.path, origin.node, origin.sequence, origin.published_at_ms, others, origin.version)
        message = messages[topic] = Message(topic, b"", 1, True, b"", NEVER, "", late)
        self.topics.set(topic, message)
        while len(messages) > self._topics_max or self._bytes > self._bytes_max:
            oldest, _ = messages.popitem(last=False)
            self.topics.delete(oldest)
            self._bytes -= len(oldest)
            self.forgotten += 1

    def time_of(self, topic: bytes) -> int:
        """Milliseconds since 1970; 0 for a topic of which no deletion is known."""
        message = self._messages.get(topic)
        return 0 if message is None or message.origin is None else message.origin.published_at_ms
