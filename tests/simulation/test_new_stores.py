"""A node that comes back with an empty disk publishes at once: what it sends is for the homes that the others have adopted."""

from __future__ import annotations

import pytest

from federation.settings import ReplicationSettings
from simulator.durable_client import DurableClient, Sent
from simulator.federation import Federation
from simulator.node_store import Disk
from simulator.world import Host

MESSAGES = 40


def connect(federation: Federation, host: Host, client: DurableClient) -> None:
    node = federation.node(host)
    node.clients.append(client)
    client.connect(node.broker, federation.world.now)
    host.settle()


@pytest.mark.parametrize(("block", "seed"), [("closed", 31), ("silent", 1), ("silent", 13)])
def test_what_a_node_with_a_new_store_publishes_reaches_sessions_of_its_former_one(block: str, seed: int) -> None:
    """block: of the direct streams, which the others open to it; without them interest and moves come one by one. Once these
    messages were taken for those of the former home, which was lost."""
    disks = [Disk() for _ in range(3)]
    replication = ReplicationSettings(adopt_after=2.0)
    federation = Federation(seed, 3, each=[{"disk": disk} for disk in disks], replication=replication)
    world = federation.world
    world.direct_block = block
    home = federation.hosts[1]
    subscriber = DurableClient("subscriber", 5, {"m/#": 2}, 0, False)
    publisher = DurableClient("publisher", 5, {}, 0, False)
    for client in (subscriber, publisher):
        connect(federation, home, client)
    world.run_until(lambda: bool(subscriber.granted_at) and publisher.is_online, 10.0, "SUBACK")
    federation.run(15.0)
    home.crash()
    disks[1].records.clear()
    subscriber.lose()
    publisher.lose()
    federation.run(15.0)
    home.start()
    sent = [Sent("publisher", number, "n2", b"m/x", 1 + number % 2, 0) for number in range(MESSAGES)]
    for one in sent:
        publisher.publish(one, world.now)
    connect(federation, home, publisher)
    world.run_until(lambda: publisher.is_online, 10.0, "CONNACK")
    federation.run(0.1)
    connect(federation, home, subscriber)
    wanted = {one.payload for one in sent}
    world.run_until(lambda: wanted <= {payload for payload, _ in subscriber.received}, 20.0, "all messages came")
