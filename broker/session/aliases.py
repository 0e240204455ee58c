"""Topic aliases of one connection, in both directions [MQTT5 3.3.2.3.4]."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.reason_codes import TOPIC_ALIAS_INVALID
from broker.errors import MqttError


def resolve_alias(aliases: dict[int, bytes], alias: int, topic: bytes, maximum: int) -> bytes:
    """The topic name of a PUBLISH with a Topic Alias. A PUBLISH that has a topic name as well sets the alias.

    Raises MqttError for an alias above `maximum`, and for one that was never set."""
    if alias > maximum:
        raise MqttError(TOPIC_ALIAS_INVALID, f"topic alias {alias}, at most {maximum} is accepted")
    if topic:
        aliases[alias] = topic
        return topic
    known = aliases.get(alias)
    if known is None:
        raise MqttError(TOPIC_ALIAS_INVALID, f"topic alias {alias} was never given a topic name")
    return known


ALIASES_MAX: Final = 1_024  # topics of one connection with an alias, however many the client would take
# Bytes of a topic with an alias. A shorter one is as short as its alias; longer ones would fill the memory.
ALIAS_TOPIC_MIN: Final = 4
ALIAS_TOPIC_MAX: Final = 1_024


class SentAliases:
    """Topics whose alias the client knows. When all aliases are given, the next topic gets the oldest one
    (`topic_alias_manager.type: fifo`).

    maximum  Topic Alias Maximum of the client, at most ALIASES_MAX
    """

    __slots__ = ("_aliases", "_maximum", "_next", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum = min(maximum, ALIASES_MAX)
        self._aliases: dict[bytes, int] = {}  # by topic
        self._topics: list[bytes] = []  # by alias, from 1
        self._next = 1

    def find(self, topic: bytes) -> int:
        """The alias of a topic, 0 for none."""
        return self._aliases.get(topic, 0)

    def topics(self) -> list[bytes]:
        """The topics with an alias, from alias 1 on."""
        return list(self._topics)

    def next_alias(self, topic: bytes) -> int:
        """The alias that a topic without one would get; 0 when aliases do not pay for it."""
        return self._next if ALIAS_TOPIC_MIN <= len(topic) <= ALIAS_TOPIC_MAX else 0

    def give(self, topic: bytes) -> None:
        """A PUBLISH with the topic and its `next_alias` is sent."""
        alias = self._next
        topics = self._topics
        if alias > len(topics):
            topics.append(topic)
        else:
            del self._aliases[topics[alias - 1]]
            topics[alias - 1] = topic
        self._aliases[topic] = alias
        self._next = alias % self._maximum + 1
