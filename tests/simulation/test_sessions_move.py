"""A client that goes from node to node: its session follows with all messages, once and in order."""

from __future__ import annotations

import pytest

from simulator.durable_client import DurableClient, Sent
from simulator.federation import Federation
from simulator.node_store import Disk
from simulator.world import Host


class Journey:
    """Three nodes, a subscriber that moves, and a publisher at the third node."""

    def __init__(self, seed: int, has_stores: bool) -> None:
        self.federation = Federation(seed, 3, each=[{"disk": Disk() if has_stores else None} for _ in range(3)])
        self.world = self.federation.world
        self.subscriber = DurableClient("subscriber", 5, {"m/#": 2}, 0, False)
        self.publisher = DurableClient("publisher", 5, {}, 0, False)
        self.sent: list[Sent] = []
        self.connect(0, self.subscriber)
        self.connect(2, self.publisher)
        self.world.run_until(lambda: bool(self.subscriber.granted_at) and self.publisher.is_online, 10, "SUBACK")

    def host(self, number: int) -> Host:
        return self.federation.hosts[number]

    def connect(self, number: int, client: DurableClient) -> None:
        node = self.federation.node(self.host(number))
        if client not in node.clients:
            node.clients.append(client)
        client.connect(node.broker, self.world.now)
        self.host(number).settle()

    def publish(self, count: int) -> None:
        for _ in range(count):
            sent = Sent("publisher", len(self.sent), "n3", b"m/x", 1 + len(self.sent) % 2, 0)
            self.sent.append(sent)
            self.publisher.publish(sent, self.world.now)
        self.host(2).settle()

    def until_all_came(self, in_order: bool = True, is_repeated: bool = False) -> None:
        """is_repeated: acknowledgements of QoS 1 were lost."""
        client = self.subscriber
        self.world.run_until(lambda: len(dict(client.received)) >= len(self.sent), 30, "all messages came")
        self.federation.run(1.0)
        assert client.faults == []
        for qos in (1, 2):
            of_qos = [sent.payload for sent in self.sent if sent.qos == qos]
            came = [payload for payload, _ in client.received if payload in of_qos]
            if is_repeated and qos == 1:
                came = list(dict.fromkeys(came))
            assert (came if in_order else sorted(came)) == (of_qos if in_order else sorted(of_qos))

    def until_at_rest(self) -> None:
        """The session is on one node, and no node has anything left of it."""

        def is_at_rest() -> bool:
            homes = 0
            for host in self.federation.hosts:
                node = self.federation.node(host)
                sessions = node.node.sessions
                assert sessions is not None
                homes += "subscriber" in node.broker.sessions
                if sessions.moves.departing or sessions.homes.arriving or sessions.moves.heads:
                    return False
            return homes == 1

        self.world.run_until(is_at_rest, 30, "the session is at rest")


@pytest.mark.parametrize("has_stores", [False, True])
@pytest.mark.parametrize("seed", [2, 3])
def test_a_session_follows_its_client(has_stores: bool, seed: int) -> None:
    journey = Journey(seed, has_stores)
    journey.publish(10)
    journey.until_all_came()
    journey.subscriber.disconnect(False, journey.world.now)
    journey.host(0).settle()
    journey.publish(30)
    journey.federation.run(0.5)
    journey.connect(1, journey.subscriber)
    journey.publish(30)
    journey.world.run_until(lambda: journey.subscriber.is_online, 1, "CONNACK")
    journey.publish(30)
    journey.until_all_came()
    journey.until_at_rest()


@pytest.mark.parametrize("has_stores", [False, True])
@pytest.mark.parametrize("seed", [2, 3, 9, 17, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 60)]])
def test_a_session_follows_a_client_that_moves_faster_than_it(has_stores: bool, seed: int) -> None:
    """The client connects to the next node before its session has arrived at the one before: nothing is lost or repeated."""
    journey = Journey(seed, has_stores)
    for turn in range(6):
        journey.subscriber.lose()
        journey.connect((2, 0, 1)[turn % 3], journey.subscriber)
        journey.publish(20)
        journey.federation.run(0.02 if turn < 4 else 1.0)
        journey.publish(5)
    journey.world.run_until(lambda: journey.subscriber.is_online, 20, "CONNACK")
    journey.until_all_came(in_order=False)
    journey.until_at_rest()


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1, 1.0])
@pytest.mark.parametrize("dead", [[0, 1], [0, 1, 2]])
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_a_session_is_found_just_after_the_start_of_its_nodes(seed: int, dead: list[int], delay: float) -> None:
    """Also where a node sends what it had not got through before."""
    journey = Journey(seed, True)
    journey.subscriber.is_late = True
    journey.publish(20)
    journey.federation.run(0.005)
    journey.subscriber.lose()
    journey.connect(1, journey.subscriber)
    journey.world.run_until(lambda: journey.subscriber.is_online, 1, "CONNACK")
    for number in dead:
        journey.host(number).crash()
    journey.subscriber.lose()
    for number in dead:
        journey.host(number).start()
    journey.federation.run(delay)
    journey.subscriber.is_late = False
    journey.connect(0, journey.subscriber)
    journey.world.run_until(lambda: journey.subscriber.is_online, 2, "CONNACK")
    if 2 in dead:
        journey.publisher.lose()
        journey.connect(2, journey.publisher)
    journey.until_all_came(in_order=False, is_repeated=True)
    journey.until_at_rest()


def test_nodes_that_stood_still_are_waited_for_again() -> None:
    journey = Journey(2, False)
    journey.publish(20)
    journey.until_all_came()
    for number in (0, 2):
        journey.host(number).stand_still(1.0)
    other = DurableClient("other", 5, {}, 0, False)
    journey.connect(1, other)
    journey.world.run_until(lambda: other.is_online, 0.5, "CONNACK without answers")
    for number in (0, 2):  # the answers get lost
        journey.world.break_streams(journey.host(1), journey.host(number), [journey.host(1), journey.host(number)])
    journey.federation.run(8.0)
    journey.subscriber.lose()
    journey.connect(1, journey.subscriber)
    journey.until_all_came()
    journey.until_at_rest()
