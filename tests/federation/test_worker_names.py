"""A worker whose node has another name than at the start before."""

from __future__ import annotations

import random
from functools import partial
from typing import cast

import pytest

from broker.store.journal import StoredRecord
from broker.store.kinds import DEPARTING, HOME, INTEREST, OUTBOX, POSITION
from federation.node import Node
from federation.of_workers import JOIN_SECONDS
from federation.settings import FederationSettings
from federation.worker_names import number_of, renamed
from simulator.client import Client
from simulator.federation import LOSSY
from simulator.node_process import NodeOptions, NodeProcess
from simulator.node_store import Disk
from simulator.serf_process import GOSSIP_PORT
from simulator.world import Host, World
from stored_node import Records, Station


@pytest.mark.parametrize(
    ("name", "node", "number"),
    [
        ("a", "a", 0),
        ("a/1", "a", 1),
        ("a/12", "a", 12),
        ("a/x", "a", -1),
        ("ab", "a", -1),
        ("a/1/1", "a", -1),
        ("b/1", "a", -1),
    ],
)
def test_workers_of_a_node_are_known_by_their_names(name: str, node: str, number: int) -> None:
    assert number_of(name, node) == number


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((OUTBOX, "a/1", 5, 0, b"a/1"), (OUTBOX, "b/1", 5, 0, b"a/1")),
        ((OUTBOX, "n2", 5), (OUTBOX, "n2", 5)),
        ((POSITION, "id", 1, 0, "a"), (POSITION, "id", 1, 0, "b")),
        ((INTEREST, "a/2", ((b"", b"a/2", b""),)), (INTEREST, "b/2", ((b"", b"a/2", b""),))),
        ((HOME, "a/1", 3, False, None), (HOME, "a/1", 3, False, None)),  # a client id
        (
            (HOME, "c", 3, False, (3, "id", False, ("a/1",), ("a/1", "n2"), ("a",)), (), (), ((("a", "id"),), ())),
            (HOME, "c", 3, False, (3, "id", False, ("b/1",), ("b/1", "n2"), ("b",)), (), (), ((("b", "id"),), ())),
        ),
        (
            (DEPARTING, 1, 3, "id", 2, "a/1", ("a", "n2"), True, None),
            (DEPARTING, 1, 3, "id", 2, "b/1", ("b", "n2"), True, None),
        ),
    ],
)
def test_records_are_those_of_the_workers_with_the_new_name(
    before: tuple[object, ...], after: tuple[object, ...]
) -> None:
    assert renamed(before, "a", "b") == after


def workers(world: World, disks: list[Disk], node: str) -> list[NodeProcess]:
    """Start two workers of the node."""
    names = [node, f"{node}/1"]
    hosts = list(world.hosts.values()) or [world.add_host(f"h{at}", f"10.0.0.{at + 1}", never) for at in (0, 1)]
    for at, host in enumerate(hosts):
        siblings = {name: other.ip for name, other in zip(names, hosts, strict=True) if other is not host}
        seeds = [(ip, GOSSIP_PORT) for ip in siblings.values()]
        options = NodeOptions(
            names[at], seeds, JOIN_SECONDS, disk=disks[at], siblings=siblings, worker_of=node if at else ""
        )
        host.make_process = partial(NodeProcess, options=options)
        host.start()
    return [cast(NodeProcess, host.process) for host in hosts]


def never(host: Host) -> NodeProcess:
    raise AssertionError("it has no options")


@pytest.mark.parametrize("seed", [2, 3])
def test_what_a_worker_had_for_another_one_comes_after_a_start_with_another_name(seed: int) -> None:
    world = World(seed, LOSSY)
    disks = [Disk(), Disk()]
    payloads = {b"%d" % number for number in range(5)}

    def connect(at: int, client_id: str) -> Client:
        host = list(world.hosts.values())[at]
        process = cast(NodeProcess, host.process)
        client = Client(process.broker, client_id, world.now, expiry=3600)
        process.clients.append(client)
        host.settle()
        return client

    nodes = workers(world, disks, "a")
    first, second = world.hosts.values()
    world.run_until(lambda: all(one.node.senders for one in nodes), 20.0, "they know each other")
    client = connect(1, "c")
    world.run(1.0)
    client.subscribe("t", world.now)
    second.settle()
    world.run(2.0)
    second.crash()
    publisher = connect(0, "p")
    world.run(15.0)
    sent = {publisher.publish("t", payload, world.now) for payload in payloads}
    first.settle()
    world.run_until(lambda: publisher.acknowledged >= sent, 30.0, "they are acknowledged")
    first.crash()
    for name in ("b", "a", "b"):
        nodes = workers(world, disks, name)
        second.crash()
        world.run(2.0)
        assert {sender.name for sender in nodes[0].node.senders.values()} == {f"{name}/1"}
        first.crash()
    nodes = workers(world, disks, "b")
    client = connect(1, "c")
    world.run_until(lambda: {payload for _, payload in client.received} >= payloads, 30.0, "all come")
    world.run(5.0)
    assert len(client.received) == len(payloads)
    assert set(nodes[0].node.senders) == {"b/1"}
    assert set(nodes[1].node.senders) == {"b"}


def test_a_worker_that_has_ended_is_no_member_that_is_away() -> None:
    records: Records = {
        1: (INTEREST, "n1/1", ((b"", b"t", b""),)),
        2: (INTEREST, "n1/2", ((b"", b"t", b""),)),
        3: (INTEREST, "n2", ((b"", b"t", b""),)),
    }
    for knows_ending, known in ((False, {"n1/1", "n1/2", "n2"}), (True, {"n1/1", "n2"})):
        station = Station({})
        node = Node("n1", station.broker, FederationSettings(node_name="n1"), random.Random(1))
        for number, record in records.items():
            station.journal.begin_behind(number)
            station.journal.kept[number] = StoredRecord(record)
        node.worker_of, node.siblings, node.knows_ending = "n1", {"n1/1": "unix:///nowhere"}, knows_ending
        node.begin(0.0, True)
        assert set(node.senders) == known
