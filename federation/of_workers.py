"""The settings of the federation in one worker of a node, and the other workers as members.

Without the plugin in `plugin_order` the workers of a node are a federation of their own, on the loopback address. With it each
worker is a member by itself. Worker 0 has the addresses of the file, each further one PORT_STEP more than the one before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from broker.config.addresses import LOOPBACK_HOST, UNSPECIFIED_HOSTS, Address
from broker.workers.shares import Place, beside, moved, moved_if_any

JOIN_SECONDS: Final = 0.5  # retry_interval of the workers of one node


def alone(place: Place, node_name: str) -> dict[str, Any]:
    """Return what a worker sets whose node has no other members."""
    ports = place.gossip_ports
    return {
        "node_name": place.name(node_name),
        "fed_addr": Address("tcp", LOOPBACK_HOST, 0),
        "gossip_addr": Address("tcp", LOOPBACK_HOST, ports[place.index]),
        "encrypt_keys": (place.gossip_key,),
        "gossip_profile": "local",
        "retry_join": tuple(
            Address("tcp", LOOPBACK_HOST, port) for index, port in ports.items() if index != place.index
        ),
        "retry_interval": JOIN_SECONDS,
    }


def among_others(settings: Any, place: Place) -> dict[str, Any]:
    """Return what a worker has instead of `settings`, the FederationSettings of the file."""
    index = place.index
    gossip = settings.advertise_gossip_addr or settings.gossip_addr
    if gossip.host in UNSPECIFIED_HOSTS:
        gossip = replace(gossip, host=LOOPBACK_HOST)
    return {
        "node_name": place.name(settings.node_name),
        "fed_addr": moved(settings.fed_addr, index),
        "advertise_fed_addr": moved_if_any(settings.advertise_fed_addr, index),
        "gossip_addr": moved(settings.gossip_addr, index),
        "advertise_gossip_addr": moved_if_any(settings.advertise_gossip_addr, index),
        "retry_join": (*(moved(gossip, other) for other in place.gossip_ports if other != index), *settings.retry_join),
        "retry_interval": min(settings.retry_interval, JOIN_SECONDS),
        "snapshot_path": beside(settings.snapshot_path, index),
    }
