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


def with_a_subscriber(replication: ReplicationSettings) -> tuple[Federation, list[Disk], DurableClient, Host, Host]:
    """Three nodes; the second one has the session of the subscriber. Also return its keeper, and the third node."""
    disks = [Disk() for _ in range(3)]
    federation = Federation(1, 3, [1, 2], each=[{"disk": disk} for disk in disks], replication=replication)
    home = federation.hosts[1]
    subscriber = DurableClient("subscriber", 5, {"m/#": 1}, 0, False)
    connect(federation, home, subscriber)
    federation.world.run_until(lambda: bool(subscriber.granted_at), 10.0, "SUBACK")
    federation.run(15.0)
    copies = federation.node(home).node.copies
    assert copies is not None
    (keeper,) = copies.replication.listed.names
    adopter, third = sorted(federation.hosts[::2], key=lambda host: federation.node(host).name != keeper)
    return federation, disks, subscriber, adopter, third


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.05])
def test_an_adopter_that_restarts_gets_what_others_had_for_the_lost_home(seconds: float) -> None:
    """seconds: from the adoption, which is not in its store by then, or is, until the adopter dies. Once the others brought
    what they had to a process that had no session for it."""
    federation, disks, subscriber, adopter, third = with_a_subscriber(ReplicationSettings(adopt_after=2.0))
    world = federation.world
    home = federation.hosts[1]
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


def test_what_waits_for_a_home_whose_stream_has_not_ended_goes_to_its_adopter() -> None:
    """The home is cut off, and its keeper has just started: it adopts before the streams of others have ended."""
    federation, _, subscriber, adopter, third = with_a_subscriber(ReplicationSettings(adopt_after=5.0))
    world = federation.world
    publisher = DurableClient("publisher", 5, {}, 0, False)
    connect(federation, third, publisher)
    world.run_until(lambda: publisher.is_online, 10.0, "CONNACK")
    world.partition([federation.hosts[1]], keeps_streams=True)
    subscriber.lose()
    sent = [Sent("publisher", number, "n", b"m/x", 1, 0) for number in range(MESSAGES)]
    for one in sent:
        publisher.publish(one, world.now)
    third.settle()
    adopter.crash()
    federation.run(0.2)
    adopter.start()
    sender = federation.node(third).node.senders["n2"]
    states: set[tuple[bool, bool]] = set()
    sessions = federation.node(adopter).broker.sessions
    while "subscriber" not in sessions and world.now < 60.0:
        states.add((sender.reachable, sender.is_living))
        world.run(0.01)
    assert (True, False) in states, "the stream outlives the failure"
    federation.run(1.0)
    connect(federation, adopter, subscriber)
    wanted = {one.payload for one in sent}
    world.run_until(lambda: wanted <= {payload for payload, _ in subscriber.received}, 20.0, "all messages came")
