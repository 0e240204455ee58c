"""The queues of a node: which groups have one by the policies, and for how long."""

from __future__ import annotations

from typing import Any

from broker.session.group_queues import queue_id
from broker_world import World
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.links.queues import QueueDefaults, Queues

JOBS = "$share/workers/jobs/#"


class Node:
    """A broker with the queues that policies say."""

    def __init__(self, **defaults: int) -> None:
        self.world = World()
        self.queues = Queues(self.world.broker, QueueDefaults(**defaults))
        self.world.broker.interest_observer = None

    def resolve(self, *policies: tuple[str, dict[str, Any]]) -> None:
        """The policies are these (pattern, keys of the definition), each with a lower priority than the one before."""
        parsed = [
            parse_policy(f"p{index}", {"pattern": pattern, "priority": -index, "definition": definition})
            for index, (pattern, definition) in enumerate(policies)
        ]
        self.queues.resolve(Resolution([], [], parsed), self.world.now)
        self.turn()

    def subscribe(self, *filters: bytes) -> None:
        """A client subscribes, and the observer of interest is told."""
        client = self.world.connect(f"c{self.world.broker.counters.connections_opened}")
        for full in filters:
            client.subscribe(full)
            _, name, topic_filter = full.split(b"/", 2)
            self.queues.appeared[(name, topic_filter)] = None
        self.turn()

    def turn(self) -> None:
        while self.queues.turn_ended(self.world.now):
            self.world.flush()
        self.world.check()

    def groups(self) -> list[str]:
        return [row.group for row in self.queues.rows(self.world.now)]


def test_a_policy_that_names_its_group_gives_it_a_queue_at_once() -> None:
    node = Node()
    node.resolve((JOBS, {"max-length": 2, "message-ttl": 5_000}), ("$share/+/other", {}))
    (row,) = node.queues.rows(node.world.now)
    assert (row.group, row.policy, row.max_length, row.max_length_bytes) == (JOBS, "p0", 2, 67_108_864)
    for payload in (b"1", b"2", b"3"):
        node.world.publish(b"jobs/a", payload, qos=1)
    node.world.advance(3)
    (row,) = node.queues.rows(node.world.now)
    assert (row.messages, row.oldest_seconds, row.dropped, row.members) == (2, 3.0, 1, 0)
    assert node.world.broker.sessions[queue_id(b"workers", b"jobs/#")].queue_seconds_max == 5.0


def test_groups_of_a_pattern_get_queues_when_clients_subscribe() -> None:
    node = Node()
    node.resolve(("$share/+/jobs/#", {}))
    assert node.groups() == []
    node.subscribe(b"$share/a/jobs/x", b"$share/b/other", b"$share/a/jobs/#")
    assert node.groups() == ["$share/a/jobs/#", "$share/a/jobs/x"]


def test_groups_that_were_there_before_the_policy() -> None:
    node = Node()
    node.resolve()
    node.subscribe(b"$share/a/jobs/x")
    node.resolve(("$share/a/jobs/#", {}))
    assert node.groups() == ["$share/a/jobs/#", "$share/a/jobs/x"]


def test_the_highest_policy_says_the_limits() -> None:
    node = Node()
    node.resolve((JOBS, {"max-length": 7}), ("$share/+/#", {"max-length": 9}))
    node.subscribe(b"$share/x/jobs/#")
    assert [row.max_length for row in node.queues.rows(0.0)] == [7, 9]
    node.resolve(("$share/+/#", {"max-length": 8}))
    assert [row.max_length for row in node.queues.rows(0.0)] == [8, 8]


def test_a_queue_without_its_policy_goes_when_it_is_empty() -> None:
    node = Node()
    node.resolve((JOBS, {}))
    node.world.publish(b"jobs/a", b"1", qos=1)
    node.resolve()
    (row,) = node.queues.rows(node.world.now)
    assert (row.policy, row.messages) == ("", 1)
    node.subscribe(JOBS.encode())
    assert node.groups() == []
    node.resolve((JOBS, {}))
    node.resolve()
    assert node.groups() == []


def test_the_number_of_queues_is_bounded() -> None:
    node = Node(queues_max=2)
    node.resolve((JOBS, {}), ("$share/+/#", {}))
    node.subscribe(b"$share/a/x")
    node.subscribe(b"$share/b/x")
    assert node.groups() == ["$share/a/x", JOBS]
    assert node.queues.refused == 1
    node.world.broker.close_client("c0", True, node.world.now)
    node.subscribe(b"$share/c/x")
    assert node.groups() == ["$share/c/x", JOBS], "an empty one without members gives way"
    node.subscribe(b"$share/d/" + b"x" * 1_100)
    assert node.queues.refused == 2
