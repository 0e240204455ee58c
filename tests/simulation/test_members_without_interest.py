"""Nodes that want nothing of others, such as workers that have no session: others know them again after a start."""

from __future__ import annotations

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
    federation.world.run_until(lambda: client.is_done, 20.0, f"{client.client_id} is served")


def want_nothing(federation: Federation, host: Host) -> None:
    for share in ("", "$share/g/"):
        for level in "abcd+#":
            name = f"{share}t/{level}"
            federation.do(host, lambda node, now, name=name: node.unsubscribe(name, now))  # type: ignore[misc]
    assert not federation.node(host).broker.local_interest()


def keeper_of(federation: Federation, host: Host) -> Host:
    copies = federation.node(host).node.copies
    assert copies is not None
    (keeper,) = copies.replication.listed.names
    return next(host for host in federation.hosts if federation.node(host).name == keeper)


def test_what_such_a_node_has_for_a_lost_home_goes_to_its_adopter() -> None:
    """All die; the adopter starts first, and goes on with the sessions before the other one is there."""
    disks = [Disk() for _ in range(5)]
    replication = ReplicationSettings(adopt_after=2.0)
    federation = Federation(1, 5, [1, 2], each=[{"disk": disk} for disk in disks], replication=replication)
    world, home = federation.world, federation.hosts[0]
    federation.run(15.0)
    adopter = keeper_of(federation, home)
    other = federation.hosts[2]
    assert adopter not in (other, keeper_of(federation, other))  # nor is it known by its copy
    want_nothing(federation, other)
    subscriber = DurableClient("subscriber", 5, {"m/#": 1}, 0, False)
    publisher = DurableClient("publisher", 5, {}, 0, False)
    connect(federation, home, subscriber)
    connect(federation, other, publisher)
    federation.run(2.0)
    home.crash()
    disks[0].records.clear()
    subscriber.lose()
    sent = [Sent("publisher", number, "n", b"m/x", 1, 0) for number in range(MESSAGES)]
    for one in sent:
        publisher.publish(one, world.now)
    other.settle()
    world.run_until(lambda: publisher.is_done, 10.0, "PUBACK")
    for host in federation.running:
        host.crash()
    adopter.start()
    federation.run(8.0)
    connect(federation, adopter, subscriber)
    assert not subscriber.faults, "its session is there"
    other.start()
    wanted = {one.payload for one in sent}
    world.run_until(lambda: wanted <= {payload for payload, _ in subscriber.received}, 30.0, "all messages came")
