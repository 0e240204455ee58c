"""Topic filters select the topics that are logged, or read."""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.routing.trie import Trie

TOPICS_MAX: Final = 65_536  # topics in the cache; a full cache is cleared
TOPIC_BYTES_MAX: Final = 1024  # longer topics are not cached


class Selection:
    """Topics that match one of `filters` and none of `exclude` [MQTT5 4.7.1, 4.7.2]. `#` does not match topics that
    begin with `$`."""

    def __init__(self, filters: Sequence[bytes], exclude: Sequence[bytes] = ()) -> None:
        self._filters = Trie()
        self._exclude = Trie()
        for topic_filter in filters:
            self._filters.set(topic_filter, True)
        for topic_filter in exclude:
            self._exclude.set(topic_filter, True)
        self._known: dict[bytes, bool] = {}
        self._last = b""  # the topic of the last call: many publishers repeat their topic
        self._has_last = False

    def has(self, topic: bytes) -> bool:
        if topic == self._last:
            return self._has_last
        known = self._known.get(topic)
        if known is None:
            known = len(self._filters.match(topic)) > 0 and len(self._exclude.match(topic)) == 0
            if len(topic) <= TOPIC_BYTES_MAX:
                if len(self._known) >= TOPICS_MAX:
                    self._known.clear()
                self._known[topic] = known
        self._last = topic
        self._has_last = known
        return known
