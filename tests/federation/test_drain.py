"""A node that is drained, among simulated nodes: who is refused, at which rate and in which order clients and sessions go."""

from __future__ import annotations

from typing import Any, Final

import pytest

from broker.codec.packets import MQTT_311, ConnAck, Disconnect, Packet
from broker.codec.properties import SERVER_REFERENCE
from broker.codec.reason_codes import SERVER_UNAVAILABLE, USE_ANOTHER_SERVER
from broker.session.group_queues import GroupQueues
from federation.sessions.answers import SIBLING_SECONDS
from federation.sessions.drain import DRAINED, DRAINING, ON_WAY_MAX, RETURN_SECONDS, SERVING, Drain, DrainRefused
from federation.tags import EXTENSION_FIELDS, REFERENCE_CHARS_MAX, TAG_CLIENTS, TAG_DRAINING
from simulator.client import Client
from simulator.federation import Federation
from simulator.node_process import NodeProcess
from simulator.node_store import Disk

AWAY: Final = 3600  # seconds that a session outlives its connection


class Witness(Client):
    """Keeps what ends its connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.answers: list[ConnAck | Disconnect] = []
        super().__init__(*arguments, **options)

    def handle_packet(self, packet: Packet, now: float) -> None:
        if isinstance(packet, ConnAck | Disconnect):
            self.answers.append(packet)
        super().handle_packet(packet, now)


class Old(Witness):
    """A client of MQTT 3.1.1."""

    def connect(self, broker: Any, now: float) -> None:
        self.version = MQTT_311
        super().connect(broker, now)


class Cluster:
    """Nodes with stores; the first one is drained."""

    def __init__(self, count: int = 3, **others: Any) -> None:
        """others: options of all nodes but the first."""
        each: list[dict[str, Any]] = [{"disk": Disk(), **(others if number else {})} for number in range(count)]
        self.federation = Federation(1, count, each=each)
        self.world = self.federation.world
        self.federation.until_agreement(30.0, "the start")

    def node(self, number: int) -> NodeProcess:
        return self.federation.node(self.federation.hosts[number])

    @property
    def drain(self) -> Drain:
        return self.drain_of(0)

    def drain_of(self, number: int) -> Drain:
        drain = self.node(number).node.drain
        assert drain is not None
        return drain

    def begin(self, rate: int, number: int = 0) -> None:
        self.node(number).begin_drain(rate, self.world.now)
        self.federation.hosts[number].settle()

    def connect(self, client_id: str, kind: type[Witness] = Witness, number: int = 0, expiry: int = 0) -> Witness:
        client = kind(self.node(number).broker, client_id, self.world.now, expiry=expiry)
        self.node(number).clients.append(client)
        self.federation.hosts[number].settle()
        self.world.run_until(lambda: bool(client.answers), 10.0, "CONNACK")
        return client

    def leave_sessions(self, count: int) -> list[str]:
        """Clients that are away."""
        names = [f"away {number}" for number in range(count)]
        for name in names:
            client = self.connect(name, expiry=AWAY)
            client.subscribe("t", self.world.now)
            client.disconnect(self.world.now)
        self.federation.hosts[0].settle()
        self.federation.run(RETURN_SECONDS + 1.0)
        return names

    def until_drained(self) -> None:
        self.world.run_until(lambda: self.drain.state == DRAINED, 60.0, "the node is drained")


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({"disk": None}, "n2 has no store; n3 has no store"),
        ({"extensions": EXTENSION_FIELDS}, "n2 is a Go broker, or an earlier version"),
        ({"session_scope": "node"}, "n2 is a Go broker, or an earlier version, or has the session_scope node"),
    ],
)
def test_a_node_is_not_drained_where_no_other_takes_sessions(others: dict[str, Any], text: str) -> None:
    cluster = Cluster(**others)
    with pytest.raises(DrainRefused, match=text):
        cluster.drain.begin(500, cluster.world.now)
    assert cluster.drain.state == SERVING
    assert cluster.node(0).broker.elsewhere is None


def test_a_node_alone_and_the_last_one_that_serves_are_not_drained() -> None:
    alone = Cluster(1)
    with pytest.raises(DrainRefused, match="there is no other member"):
        alone.drain.begin(500, 0.0)
    cluster = Cluster(3)
    cluster.federation.hosts[2].crash()
    cluster.federation.until_failed("n3")
    cluster.begin(500, 1)
    cluster.world.run_until(lambda: cluster.drain_of(1).state == DRAINED, 30.0, "the second node is drained")
    cluster.federation.run(2.0)  # gossip tells the first one
    with pytest.raises(DrainRefused, match=r"(n2 is drained, too|n3 is away); (n2 is drained, too|n3 is away)"):
        cluster.drain.begin(500, cluster.world.now)


def test_clients_are_closed_at_the_rate_the_longest_connected_first() -> None:
    cluster = Cluster()
    clients = []
    for number in range(30):
        clients.append(cluster.connect(f"c{number}"))
        cluster.federation.run(0.1)
    cluster.begin(10)
    cluster.federation.run(1.0)
    is_closed = [client.is_closed for client in clients]
    assert 7 <= sum(is_closed) <= 11  # the node's own client is one of them
    assert is_closed == sorted(is_closed, reverse=True)
    assert cluster.drain.clients_left() == 30 + 1 - cluster.drain.clients_closed
    cluster.until_drained()
    assert cluster.drain.clients_closed == 31
    assert [client.answers[-1].reason_code for client in clients] == [USE_ANOTHER_SERVER] * 30


def test_sessions_without_clients_go_to_the_nodes_that_a_hash_names() -> None:
    cluster = Cluster(4)
    names = cluster.leave_sessions(40)
    cluster.begin(100)
    cluster.until_drained()
    assert not cluster.node(0).broker.sessions
    assert cluster.drain.sessions_left() == cluster.drain.clients_left() == 0
    there = [[name for name in names if name in cluster.node(number).broker.sessions] for number in (1, 2, 3)]
    assert sorted(name for found in there for name in found) == sorted(names)
    assert min(len(found) for found in there) > 3


def test_sessions_of_a_worker_that_leaves_go_to_other_workers_and_not_to_other_machines() -> None:
    cluster = Cluster(3)
    names = cluster.leave_sessions(6)
    for number, other in ((0, "n2"), (1, "n1")):
        sessions = cluster.node(number).node.sessions
        assert sessions is not None
        sessions.siblings = {other: ""}
    cluster.drain.is_leaving = True
    cluster.begin(100)
    cluster.until_drained()
    assert cluster.node(1).broker.sessions.keys() >= set(names)


def test_the_session_of_a_client_that_comes_back_goes_where_the_client_is() -> None:
    cluster = Cluster()
    client = cluster.connect("mover", expiry=AWAY)
    cluster.begin(500)
    cluster.federation.run(0.5)
    assert client.is_closed
    assert cluster.node(0).broker.sessions.keys() == {"mover"}
    moved = cluster.connect("mover", number=2, expiry=AWAY)
    answer = moved.answers[0]
    assert isinstance(answer, ConnAck)
    assert answer.session_present
    assert cluster.drain.sessions_given == 0
    cluster.until_drained()


def test_so_many_sessions_are_on_their_way_at_once() -> None:
    cluster = Cluster(2)
    cluster.leave_sessions(ON_WAY_MAX + 50)
    cluster.federation.hosts[1].stand_still(2.0)
    cluster.begin(100_000)
    cluster.federation.run(1.5)
    assert cluster.drain.count_leaving(True) == ON_WAY_MAX
    assert cluster.drain.waits > 0
    assert cluster.drain.state == DRAINING
    cluster.until_drained()
    assert cluster.drain.sessions_given == ON_WAY_MAX + 50


def test_a_session_that_was_moved_is_not_on_its_way_any_more() -> None:
    """The node is not drained."""
    cluster = Cluster(2)
    cluster.leave_sessions(1)
    cluster.drain.move("away 0", "n2", cluster.world.now)
    assert cluster.drain.count_leaving(True) == 1
    cluster.federation.hosts[0].settle()
    cluster.world.run_until(lambda: "away 0" in cluster.node(1).broker.sessions, 10.0, "it is at n2")
    cluster.federation.run(5.0)
    assert cluster.drain.state == SERVING
    assert cluster.drain.count_leaving(True) == 0


def test_it_waits_for_the_node_that_has_not_all_of_a_session_yet() -> None:
    cluster = Cluster(2)
    cluster.leave_sessions(3)
    cluster.federation.hosts[1].stand_still(60.0)
    cluster.begin(500)
    cluster.federation.run(0.5)
    cluster.federation.hosts[1].crash()
    cluster.world.run_until(lambda: cluster.drain.waits_for() == "n2", 60.0, "it waits for n2")
    assert cluster.drain.state == DRAINING
    assert cluster.drain.sessions_left() == 3
    cluster.federation.hosts[1].start()
    cluster.until_drained()
    assert cluster.drain.waits_for() == ""


@pytest.mark.parametrize(("kind", "code"), [(Witness, USE_ANOTHER_SERVER), (Old, SERVER_UNAVAILABLE)])
def test_new_clients_are_sent_to_another_node_until_undrain(kind: type[Witness], code: int) -> None:
    cluster = Cluster()
    drain = cluster.drain
    drain.member_told("n2", {TAG_CLIENTS: "n2.example:1883", TAG_DRAINING: "1"})
    drain.member_told("n3", {TAG_CLIENTS: "n3.example:1883"})
    cluster.begin(500)
    refused = cluster.connect("new", kind)
    assert refused.answers[0].reason_code == code
    assert refused.answers[0].properties.get(SERVER_REFERENCE) == ("n3.example:1883" if kind is Witness else None)
    drain.member_told("n3", {TAG_CLIENTS: "x" * (REFERENCE_CHARS_MAX + 1)})
    assert drain.reference("new") == ""
    cluster.node(0).end_drain(cluster.world.now)
    assert cluster.connect("new", kind).answers[0].reason_code == 0
    assert drain.state == SERVING


def test_other_members_hear_that_a_node_is_drained() -> None:
    cluster = Cluster()

    def told() -> bool:
        member = cluster.node(1).serf.member("n1")
        return member is not None and TAG_DRAINING in member.tags

    cluster.begin(500)
    cluster.world.run_until(told, 10.0, "the tag comes")
    cluster.node(0).end_drain(cluster.world.now)
    cluster.federation.hosts[0].settle()
    cluster.world.run_until(lambda: not told(), 10.0, "the tag goes")


def test_it_tells_what_stays_at_a_node_that_is_drained() -> None:
    cluster = Cluster(2)
    node = cluster.node(0)
    GroupQueues(node.broker).declare(b"workers", b"jobs/#", 100, 10**6, 0.0, cluster.world.now)
    client = cluster.connect("c")
    cluster.federation.run(1.0)
    assert cluster.drain.keeps() == ""
    client.publish("jobs/1", b"1", cluster.world.now)
    cluster.federation.hosts[0].settle()
    cluster.begin(500)
    cluster.until_drained()
    assert cluster.drain.keeps().startswith("1 messages in")


def test_messages_for_a_node_that_is_away_stay() -> None:
    cluster = Cluster(3)
    subscriber = cluster.connect("s", number=2)
    subscriber.subscribe("t", cluster.world.now)
    cluster.federation.hosts[2].settle()
    cluster.federation.run(1.0)
    publisher = cluster.connect("p")
    cluster.federation.hosts[2].crash()
    publisher.publish("t", b"1", cluster.world.now)
    cluster.federation.hosts[0].settle()
    cluster.federation.until_failed("n3")
    cluster.begin(500)
    cluster.until_drained()
    assert cluster.drain.keeps() == "messages for n3"


@pytest.mark.parametrize("is_sibling", [False, True])
def test_a_client_waits_longer_for_another_worker_of_its_node(is_sibling: bool) -> None:
    """It may have died with the session, and be back soon."""
    federation = Federation(3, 2, each=[{"disk": Disk()}, {"disk": Disk()}])
    federation.until_agreement(30.0, "the start")
    host, other = federation.hosts
    sessions = federation.node(host).node.sessions
    assert sessions is not None
    sessions.siblings = {"n2": ""} if is_sibling else {}
    client = Client(federation.node(other).broker, "c", federation.world.now, expiry=3600)
    federation.node(other).clients.append(client)
    other.settle()
    federation.run(1.0)
    other.crash()
    client = Client(federation.node(host).broker, "c", federation.world.now, expiry=3600)
    federation.node(host).clients.append(client)
    host.settle()
    federation.run(sessions.claim_wait + 0.1)
    assert ("c" in federation.node(host).broker.sessions) is not is_sibling
    federation.run(SIBLING_SECONDS - 1.0)
    other.start()
    federation.run(1.0)
    assert not client.is_closed, "it waits for longer than connect_timeout"
    assert "c" in federation.node(host).broker.sessions
    assert sessions.counters.unanswered == (0 if is_sibling else 1)
