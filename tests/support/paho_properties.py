"""Properties of MQTT 5 as JSON has them in drivers, and as paho-mqtt has them."""

from __future__ import annotations

from typing import Any, Final

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

NAMES: Final = {
    "content_type": "ContentType",
    "response_topic": "ResponseTopic",
    "correlation_data": "CorrelationData",
    "user_properties": "UserProperty",
    "message_expiry": "MessageExpiryInterval",
    "subscription_identifiers": "SubscriptionIdentifier",
    "topic_alias": "TopicAlias",
    "session_expiry": "SessionExpiryInterval",
    "topic_alias_maximum": "TopicAliasMaximum",
    "will_delay": "WillDelayInterval",
}


def to_paho(kind: int, values: dict[str, Any]) -> Any:
    """The properties of a packet of that type, None for none."""
    if not values:
        return None
    properties = Properties(kind)
    for name, value in values.items():
        given = value
        if name == "correlation_data":
            given = value.encode()
        elif name == "user_properties":
            given = [tuple(pair) for pair in value]
        setattr(properties, NAMES[name], given)
    return properties


def from_paho(properties: Any) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, attribute in NAMES.items():
        value = getattr(properties, attribute, None)
        if value is not None:
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def subscribe_arguments(version: int, qos: int, identifier: int) -> dict[str, Any]:
    """The keyword arguments of `subscribe` beside the filters."""
    if version < 5:
        return {"qos": qos}
    properties = {"subscription_identifiers": identifier} if identifier else {}
    return {"options": SubscribeOptions(qos=qos), "properties": to_paho(PacketTypes.SUBSCRIBE, properties)}
