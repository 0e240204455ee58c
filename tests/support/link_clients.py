"""Links of other domains as clients of a broker on virtual time, and the headers of what they send and get."""

from __future__ import annotations

from typing import Any

from broker.codec import properties as props
from broker.codec.packets import Publish
from broker.codec.properties import encode_publish_properties, publish_properties_to_dict
from broker_world import Client, World
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.headers import encode_connect

NAME = "gmqttd-link"


def link_options(
    domain: str = "paris", max_hops: int = 1, relays: bool = False, ttl: float = -1.0, epoch: int = 0
) -> dict[str, Any]:
    value = encode_connect(domain.encode(), max_hops, relays, ttl, epoch).decode()
    return {"properties": {props.USER_PROPERTY: [(NAME, value)]}}


def linked(world: World, domain: str = "paris", max_hops: int = 1, relays: bool = False, **options: Any) -> Client:
    return world.connect(f"link-{domain}", **link_options(domain, max_hops, relays), **options)


def named_world(**limits: Any) -> World:
    world = World(**limits)
    bridging_of(world.broker).home.name = b"berlin"
    return world


def with_header(value: str) -> bytes:
    return encode_publish_properties(user_properties=[(NAME, value)])


def headers(publish: Publish) -> list[str]:
    return [
        text for key, text in props.get_user_properties(publish_properties_to_dict(publish.properties)) if key == NAME
    ]
