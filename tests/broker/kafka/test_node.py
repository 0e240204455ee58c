"""What a node knows of the others, and of committed offsets: retained messages, as all nodes have them."""

from __future__ import annotations

from typing import cast

import pytest

from broker.config.settings import Settings
from broker.event_log.contents import LogContents
from broker.event_log.log import EventLog
from broker.hooks import Members, OtherNode
from broker.kafka import node as kafka_node
from broker.kafka.node import NODES, Committed, KafkaNode
from broker.message import Message
from broker.server.host import Host


class OfTest(Members):
    def others(self) -> list[OtherNode]:
        return [OtherNode("a", "ALIVE", {}), OtherNode("c", "FAILED", {})]


@pytest.fixture
async def host() -> Host:
    return Host(Settings())


def member(host: Host, name: str) -> KafkaNode:
    """A node; all of them have the same retained messages here."""
    host.members = OfTest(name)
    return KafkaNode(host, cast(EventLog, LogContents(name)), {"all": b"#"})


async def test_partitions_are_those_that_were_announced(host: Host) -> None:
    for name, since in (("a", 100), ("c", 300), ("b", 200)):
        member(host, name).announce(since, f"{name}:9092")
    node = member(host, "b")
    assert node.partitions() == member(host, "b").partitions()
    node.announce(200, "b:9093")
    found = [(each.number, each.node, each.port, each.is_alive) for each in node.partitions()]
    assert found == [(0, "a", 9092, True), (1, "b", 9093, True), (2, "c", 9092, False)]
    assert node.own_partition() == 1
    # Somebody wrote over the entry: it is written again.
    host.broker.publish(Message(f"{NODES}b".encode(), b"nonsense", 1, True), host.now())
    node.announce(200, "b:9093")
    assert [each.node for each in member(host, "a").partitions()] == ["a", "b", "c"]


async def test_the_number_of_a_first_start(host: Host) -> None:
    """Behind all others, also with a clock that is behind; an emptied node gets its former one."""
    assert member(host, "a").first_start(1_000) == 1_000
    member(host, "a").announce(1_000, "a:1")
    assert member(host, "b").first_start(2_000) == 2_000
    assert member(host, "b").first_start(500) == 1_001
    assert member(host, "a").first_start(9_000) == 1_000


async def test_offsets_are_kept_by_group_topic_and_partition(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    node = member(host, "a")
    node.announce(1, "a:1")
    assert await node.commit("g", {("all", 0): Committed(5, 1, "m"), ("all", 3): Committed(6, -1, "")})
    assert member(host, "b").committed("g", "all", 0) == Committed(5, 1, "m")
    assert (node.committed("g", "all", 1), node.committed("h", "all", 0)) == (None, None)
    monkeypatch.setattr(kafka_node, "OFFSETS_MAX", 2)
    assert await node.commit("g", {("all", 0): Committed(7, 1, "m")})
    assert not await node.commit("g", {("all", 1): Committed(7, 1, "m")})
    assert node.offsets_refused == 1
    host.broker.publish(Message(b"$kafka/offsets/g/all/0", b"nonsense", 1, True), host.now())
    assert node.committed("g", "all", 0) is None
