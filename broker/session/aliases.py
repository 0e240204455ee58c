"""Topic aliases of a client [MQTT5 3.3.2.3.4]."""

from __future__ import annotations

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
