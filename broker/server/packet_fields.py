"""The fields of a packet as logs and traces show them."""

from __future__ import annotations

from typing import Any, Final

from broker.codec import packets
from broker.codec.packets import Packet
from broker.codec.properties import AUTHENTICATION_DATA, property_name, publish_properties_to_dict

ABSENT: Final[dict[str, object]] = {"packet_id": 0, "message_expiry_interval": -1, "topic_alias": 0, "is_bridge": False}
HIDDEN: Final = "***"


def packet_fields(packet: Packet) -> dict[str, Any]:
    """The fields of a packet by the specification's names, without absent ones and without secrets."""
    found: dict[str, Any] = {}
    for name in packet.__dataclass_fields__:
        value = getattr(packet, name)
        if value is None or value in (b"", "", (), [], {}) or value == ABSENT.get(name, ABSENT):
            continue
        if name == "password":
            found[name] = HIDDEN
        elif name == "properties":
            assert isinstance(value, bytes | dict)
            found[name] = _property_fields(publish_properties_to_dict(value) if isinstance(value, bytes) else value)
        elif isinstance(value, Packet):
            found[name] = packet_fields(value)
        elif isinstance(value, list) and isinstance(value[0], Packet):
            found[name] = [packet_fields(item) for item in value]
        else:
            found[name] = value
    return found


def _property_fields(properties: packets.Properties) -> dict[str, Any]:
    """Properties by name; a user property as NAME=VALUE."""
    found: dict[str, Any] = {}
    for number, value in properties.items():
        shown: Any = value
        if number == AUTHENTICATION_DATA:
            shown = HIDDEN
        elif isinstance(value, list):
            shown = [f"{name}={text}" for name, text in value]
        found[property_name(number)] = shown
    return found
