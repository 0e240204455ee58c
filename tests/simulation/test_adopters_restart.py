"""The node that adopts the sessions of a lost home dies while others bring what they had for that home."""

from __future__ import annotations

import pytest

from federation.settings import ReplicationSettings
from simulator.durable_client import DurableClient, Sent
from simulator.federation import Federation
from simulator.node_store import Disk
from simulator.world import Host

MESSAGES = 15


def connect(federation: Federation, host: Host, client: DurableClient) -> None:
    node = federation.node(host)
    node.clients.append(client)
    client.connect(node.broker, federation.world.now)
    host.settle()


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.05])
def test_an_adopter_that_restarts_gets_what_others_had_for_the_lost_home(seconds: float) -> None:
    """seconds: from the adoption, which is not in its store by then, or is, until the adopter dies. Once the others brought
    what they had to a process that had no session for it."""
    disks = [Disk() for _ in range(3)]
    replication = ReplicationSettings(adopt_after=2.0)
    federation = Federation(1, 3, [1, 2], each=[{"disk": disk} for disk in disks], replication=replication)
    world = federation.world
    home = federation.hosts[1]
    subscriber = DurableClient("subscriber", 5, {"m/#": 1}, 0, False)
    connect(federation, home, subscriber)
    world.run_until(lambda: bool(subscriber.granted_at), 10.0, "SUBACK")
    federation.run(15.0)
    copies = federation.node(home).node.copies
    assert copies is not None
    (keeper,) = copies.replication.listed.names
    adopter, third = sorted(federation.hosts[::2], key=lambda host: federation.node(host).name != keeper)
    publisher = DurableClient("publisher", 5, {}, 0, False)
    connect(federation, third, publisher)
    world.run_until(lambda: publisher.is_online, 10.0, "CONNACK")
    home.crash()
    disks[1].records.clear()
    subscriber.lose()
    sent = [Sent("publisher", number, "n", b"m/x", 1, 0) for number in range(MESSAGES)]
    for one in sent:
        publisher.publish(one, world.now)
    third.settle()
    sessions = federation.node(adopter).broker.sessions
    while "subscriber" not in sessions and world.now < 60.0:
        world.run(0.001)
    world.run(seconds)
    adopter.crash()
    federation.run(0.2)
    adopter.start()
    federation.run(4.0)
    connect(federation, adopter, subscriber)
    wanted = {one.payload for one in sent}
    world.run_until(lambda: wanted <= {payload for payload, _ in subscriber.received}, 20.0, "all messages came")
