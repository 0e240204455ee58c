"""The clients of one node with a store: durable sessions, publishers that resend, and a member of a group."""

from __future__ import annotations

from random import Random
from typing import Final

from broker.codec.packets import MQTT_5, MQTT_311
from simulator.durable_client import DurableClient
from simulator.node_store import Disk

GROUP_NUMBER: Final = 2  # the topics NODE/2 are for the members of a group, too
GROUP_FILTER: Final = f"$share/g/m/+/{GROUP_NUMBER}"
GROUP_NODES: Final = 3  # on so many nodes are members of the group
PUBLISHERS: Final = 2  # of each node
SUBSCRIBERS: Final = 3  # of each node, the member of the group aside


class DurableStation:
    """The clients of one node.

    disk         None for a node without a store
    is_promised  false without a store, and with an older version
    away         clients that stay offline: until when
    """

    def __init__(self, number: int, disk: Disk | None, is_older: bool, rng: Random) -> None:
        self.name = f"n{number}"
        self.disk = disk
        self.is_promised = disk is not None and not is_older
        self.away: dict[DurableClient, float] = {}
        self.publishers = [
            DurableClient(f"publisher {at} of {self.name}", MQTT_5 if at % 2 else MQTT_311, {}, 0, rng.random() < 0.3)
            for at in range(PUBLISHERS)
        ]
        self.subscribers = [self.new_subscriber(f"{at}", a_filter(rng), rng) for at in range(SUBSCRIBERS)]
        if number <= GROUP_NODES:
            self.subscribers.append(self.new_subscriber("of the group", GROUP_FILTER, rng))

    def new_subscriber(self, name: str, topic_filter: str, rng: Random) -> DurableClient:
        version = rng.choice((MQTT_5, MQTT_311))
        qos = rng.choice((1, 2))
        receive_maximum = rng.choice((0, 1, 5))
        is_late = rng.random() < 0.3
        if is_late:  # its queue would be full with a small window
            receive_maximum = 0
        return DurableClient(
            f"subscriber {name} of {self.name}", version, {topic_filter: qos}, receive_maximum, is_late
        )

    @property
    def clients(self) -> list[DurableClient]:
        return self.publishers + self.subscribers


def a_filter(rng: Random) -> str:
    """Of topics m/NODE/NUMBER."""
    node = rng.choice(("+", "+", "n1", "n2", "n3"))
    number = rng.choice(("0", "1", "+", "#"))
    return f"m/{node}/{number}"


def matches(topic_filter: str, topic: bytes) -> bool:
    """Of the filters and topics here, which have three levels."""
    levels = topic_filter.removeprefix("$share/g/").split("/")
    return all(level in ("+", "#", own) for level, own in zip(levels, topic.decode().split("/"), strict=True))
