"""A worker that the node has no more, among simulated nodes: it ends with all that the other workers have for its sessions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from broker.codec.packets import Connect, Will
from federation.serf.events import MemberLeave
from federation.sessions.drain import DRAINED, RATE_MAX, SERVING, Drain, DrainRefused
from federation.shell.sibling_workers import know_siblings
from federation.shell.worker_leaves import LOOK_SECONDS, QUIET_SECONDS
from federation.tags import DRAINING_OVER, TAG_DRAINING
from simulator.client import Client
from simulator.federation import Federation
from simulator.node_process import NodeProcess
from simulator.node_store import Disk
from simulator.promises import as_workers
from simulator.world import Host

COUNT: Final = 3
MESSAGES: Final = [b"%d" % number for number in range(5)]
LEAVES_SECONDS: Final = 90.0


class Workers:
    """Three workers n1, n2 and n3 of one node; n3 has the session "c", subscribed to t. At the next start n3 leaves."""

    def __init__(self, seed: int) -> None:
        each = [{"disk": Disk(), **worker} for worker in as_workers([COUNT])]
        self.federation = Federation(seed, COUNT, each=each)
        self.world = self.federation.world
        self.world.run_until(lambda: all(self.is_reached(host) for host in self.hosts), 30.0, "streams")
        client = self.connect(2)
        client.subscribe("t", self.world.now)
        self.hosts[2].settle()
        client.disconnect(self.world.now)
        self.hosts[2].settle()
        self.federation.run(2.0)

    @property
    def hosts(self) -> list[Host]:
        return self.federation.hosts

    def node(self, number: int) -> NodeProcess:
        return self.federation.node(self.hosts[number])

    def is_reached(self, host: Host) -> bool:
        return all(sender.reachable for sender in self.federation.node(host).node.senders.values())

    def connect(self, number: int, client_id: str = "c") -> Client:
        client = Client(self.node(number).broker, client_id, self.world.now, expiry=3600)
        self.node(number).clients.append(client)
        self.hosts[number].settle()
        return client

    def publish(self, number: int) -> None:
        """All messages are acknowledged."""
        publisher = self.connect(number, "p")
        self.federation.run(1.0)
        sent = {publisher.publish("t", payload, self.world.now) for payload in MESSAGES}
        self.hosts[number].settle()
        self.world.run_until(lambda: publisher.acknowledged >= sent, 30.0, "they are acknowledged")

    def kill(self) -> None:
        for host in self.hosts:
            if host.process is not None:
                host.crash()

    def start(self, number: int) -> None:
        host = self.hosts[number]
        host.start()
        node = self.node(number).node
        ending = {name for name in ("n3",) if name != node.name}
        know_siblings(node, dict(node.siblings), frozenset(ending), number == 2)

    @property
    def drain(self) -> Drain:
        drain = self.node(2).node.drain
        assert drain is not None
        return drain

    def has_left(self, seconds: float) -> bool:
        """n3 goes on as WorkerLeaves does; True when it has left and its disk is gone."""
        end = self.world.now + seconds
        while self.world.now < end:
            drain = self.drain
            if drain.state == SERVING:
                with suppress(DrainRefused):
                    self.node(2).begin_drain(RATE_MAX, self.world.now)
                    self.hosts[2].settle()
            if drain.state == DRAINED and drain.since + QUIET_SECONDS <= self.world.now and not drain.keeps():
                self.stop(2)
                return True
            self.world.run(LOOK_SECONDS)
        return False

    def stop(self, number: int) -> None:
        self.node(number).leave(self.world.now)
        self.hosts[number].settle()
        self.world.run(1.0)
        self.hosts[number].crash()

    def check(self) -> None:
        """All messages come to the client, who is at n1 now."""
        assert self.has_left(LEAVES_SECONDS)
        client = self.connect(0)
        self.world.run_until(
            lambda: {payload for _, payload in client.received} == set(MESSAGES), 60.0, "the client has all messages"
        )


def test_it_waits_for_a_worker_that_starts_late() -> None:
    workers = Workers(3)
    workers.hosts[2].crash()
    workers.publish(1)
    workers.kill()
    workers.start(0)
    workers.start(2)
    assert not workers.has_left(15.0)
    workers.start(1)
    workers.check()


def test_it_waits_for_a_worker_that_dies_meanwhile() -> None:
    """That one has stood still when it got the messages, so it has not sent them."""
    workers = Workers(3)
    workers.hosts[2].crash()
    workers.publish(1)
    workers.kill()
    for number in range(COUNT):
        workers.start(number)
    workers.has_left(1.0)
    if workers.hosts[1].process is not None:
        workers.hosts[1].crash()
    assert not workers.has_left(20.0)
    workers.start(1)
    workers.check()


def test_it_waits_for_a_session_that_was_on_its_way_to_it() -> None:
    workers = Workers(3)
    client = workers.connect(1)
    workers.federation.run(2.0)
    client.disconnect(workers.world.now)
    workers.hosts[1].settle()
    workers.publish(1)
    workers.connect(2)
    while "c" in workers.node(1).broker.sessions:
        workers.world.run(0.001)
    workers.hosts[2].hold_messages(10.0)
    workers.federation.run(0.5)
    workers.kill()
    workers.start(0)
    workers.start(2)
    assert not workers.has_left(15.0)
    workers.start(1)
    workers.check()


def test_it_publishes_the_wills_of_its_clients() -> None:
    """Those that the store has, because the node was killed."""
    workers = Workers(3)
    subscriber = workers.connect(0, "s")
    subscriber.subscribe("gone", workers.world.now)
    workers.hosts[0].settle()
    workers.federation.run(1.0)
    broker, now = workers.node(2).broker, workers.world.now
    client = Client(broker, "w", now)
    client.open(broker, Connect(client_id="w", will=Will(b"gone", b"w", 1)), now)
    workers.node(2).clients.append(client)
    workers.hosts[2].settle()
    workers.federation.run(2.0)
    workers.kill()
    for number in range(COUNT):
        workers.start(number)
    subscriber = workers.connect(0, "s")
    assert workers.has_left(LEAVES_SECONDS)
    workers.world.run_until(lambda: subscriber.received == [(b"gone", b"w")], 10.0, "the will comes")


def test_a_worker_that_stops_before_it_has_all_is_expected_back() -> None:
    """Its node was stopped meanwhile. Nobody waits for one that has all."""
    workers = Workers(2)
    node = workers.node(0).node
    node.ending = frozenset({"n2", "n3"})
    workers.hosts[2].crash()
    workers.publish(0)
    now = workers.world.now
    member = None
    for name in ("n2", "n3"):
        member = workers.node(0).serf.member(name)
        assert member is not None
        node.member_events([MemberLeave(member)], now)
    assert node.sessions is not None
    assert "n2" not in node.sessions.siblings
    assert "n2" not in node.senders
    assert "n3" in node.sessions.siblings
    assert not node.senders["n3"].outbox.is_empty()
    assert member is not None
    node.member_events([MemberLeave(replace(member, tags=member.tags | {TAG_DRAINING: DRAINING_OVER}))], now)
    assert "n3" not in node.sessions.siblings
    assert "n3" not in node.senders


def test_it_leaves_when_its_process_is_started_once_more_after_it_has_left() -> None:
    workers = Workers(3)
    workers.kill()
    for number in range(COUNT):
        workers.start(number)
    workers.federation.run(1.0)
    workers.stop(2)
    workers.federation.run(1.0)
    workers.start(2)
    assert workers.has_left(LEAVES_SECONDS)
