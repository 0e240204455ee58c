"""What keys must be to each other. Each rule gives the key to blame and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from broker.config.addresses import UNSPECIFIED_HOSTS, Address
from broker.config.settings import Settings


def check_settings(settings: Settings) -> Iterator[tuple[str, str]]:
    """Every broken rule as (key, text)."""
    mqtt = settings.mqtt
    if mqtt.max_queued_messages < mqtt.max_inflight:
        yield (
            "mqtt.max_inflight",
            f"{mqtt.max_inflight} is more than mqtt.max_queued_messages ({mqtt.max_queued_messages}), "
            "which counts the messages in flight too; lower this one or raise that one",
        )
    for index, name in enumerate(settings.plugin_order):
        if name in settings.plugin_order[:index]:
            yield f"plugin_order[{index}]", f'"{name}" is already in the list; each plugin is loaded once'
    if "federation" in settings.plugin_order and not settings.plugins.federation.node_name.strip():
        yield "plugins.federation.node_name", "the name is empty; for example node1"
    taken: dict[str, Address] = {}
    for key, address in _listening(settings):
        for other_key, other in taken.items():
            if _collide(address, other):
                yield key, f'"{address}" is already taken by {other_key} ("{other}"); choose another port'
                break
        taken[key] = address


def _listening(settings: Settings) -> Iterator[tuple[str, Address]]:
    """Every TCP address or socket file that the node opens."""
    for index, listener in enumerate(settings.listeners):
        yield f"listeners[{index}].address", listener.address
    for name, api_listeners in (("grpc", settings.api.grpc), ("http", settings.api.http)):
        for index, api_listener in enumerate(api_listeners):
            yield f"api.{name}[{index}].address", api_listener.address
    if "federation" in settings.plugin_order:
        yield "plugins.federation.fed_addr", settings.plugins.federation.fed_addr
        yield "plugins.federation.gossip_addr", settings.plugins.federation.gossip_addr


def _collide(one: Address, other: Address) -> bool:
    if one.scheme != other.scheme:
        return False
    if one.is_unix:
        return one.path == other.path
    if one.port != other.port or one.port == 0:
        return False
    if one.host and other.host and (":" in one.host) != (":" in other.host):
        return False  # IPv4 and IPv6 have ports of their own
    return one.host == other.host or one.host in UNSPECIFIED_HOSTS or other.host in UNSPECIFIED_HOSTS
