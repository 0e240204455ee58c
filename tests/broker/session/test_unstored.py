"""A store that takes nothing, because the disk is full or its sync fails: nothing durable is acknowledged."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.packets import PubAck, Publish, PubRec
from broker.codec.writer import encode_publish
from broker.hooks import Forwarder, Peer, RemoteRoute
from broker.memory_limit import MEMORY_FREE, MEMORY_FULL
from broker.message import Message
from broker.session.refused import refuse_waiting
from broker.store.journal import Journal
from broker.store.replicator import Replicator

QUOTA_EXCEEDED = 0x97


def full(make_world: Any) -> Any:
    """A broker with durable sessions "member" and "sharing", whose store takes nothing any more."""
    world = make_world()
    world.keep(Journal(), {}, 0.0)
    world.connect("member", expiry=100).subscribe(b"kept")
    world.connect("sharing", expiry=100).subscribe(b"$share/g/shared")
    world.connect("plain").subscribe(b"plain")
    world.write, world.commit = world.commit, lambda: False
    return world


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(
    ("topic", "retain", "refused"),
    [(b"kept", False, True), (b"shared", False, True), (b"plain", False, False), (b"plain", True, True)],
)
def test_a_publish_that_has_to_be_stored_is_refused(
    make_world: Any, qos: int, topic: bytes, retain: bool, refused: bool
) -> None:
    world = full(make_world)
    client = world.connect("c", auto=False)
    old = world.connect("old", 4, auto=False)
    world.broker.commits.journal.is_full = True
    kind = PubAck if qos == 1 else PubRec
    client.publish(topic, qos=qos, retain=retain, packet_id=5)
    assert client.take_packets() == [kind(5, QUOTA_EXCEEDED if refused else 0)]
    old.publish(topic, qos=qos, retain=retain, packet_id=5)
    assert old.closed is refused
    assert old.take_packets() == ([] if refused else [kind(5)])
    assert world.broker.counters.publishes_not_stored == 2 * refused
    client.publish(topic, qos=0, retain=retain)
    assert not client.closed


class FullPeer(Peer):
    """A node whose messages of QoS 2 are stored before they leave, and those of QoS 1 while it is behind."""

    is_behind = False

    def forward(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
        pass

    def forward_run(self, data: bytes, count: int, version: int, qos: int, now: float) -> None:
        pass

    def needs_store(self, qos: int) -> bool:
        return qos == 2 or self.is_behind


class OneRoute(Forwarder):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def route(self, topic: bytes) -> RemoteRoute | None:
        return RemoteRoute([self.peer], [])


@pytest.mark.parametrize(("qos", "is_behind", "refused"), [(1, False, False), (1, True, True), (2, False, True)])
def test_a_publish_that_the_store_keeps_for_another_node_is_refused(
    make_world: Any, qos: int, is_behind: bool, refused: bool
) -> None:
    world = full(make_world)
    peer = FullPeer("n2", True)
    peer.is_behind = is_behind
    world.broker.forwarder = OneRoute(peer)
    world.broker.commits.journal.is_full = True
    client = world.connect("c", auto=False)
    client.publish(b"elsewhere", qos=qos, packet_id=5)
    assert client.take_packets() == [(PubAck if qos == 1 else PubRec)(5, QUOTA_EXCEEDED if refused else 0)]


@pytest.mark.parametrize("is_memory", [False, True])
def test_of_a_run_for_another_node_each_message_is_refused(make_world: Any, is_memory: bool) -> None:
    world = full(make_world)
    peer = FullPeer("n2", True)
    world.broker.forwarder = OneRoute(peer)
    client, old = world.connect("c", auto=False), world.connect("old", 4, auto=False)
    for version, publisher in ((5, client), (4, old)):
        publisher.publish(b"elsewhere", qos=1, packet_id=5)  # what follows is a run
        assert publisher.take_packets() == [PubAck(5)]
        peer.is_behind = world.broker.commits.journal.is_full = not is_memory
        world.broker.memory_level = MEMORY_FULL if is_memory else MEMORY_FREE
        packets = [encode_publish(version, b"elsewhere", b"", 1, False, False, number, b"") for number in (6, 7, 8)]
        publisher.connection.receive_data(b"".join(packets), world.now)
        world.flush()
        assert publisher.take_packets() == [PubAck(number, QUOTA_EXCEEDED) for number in (6, 7, 8) if version == 5]
        assert publisher.closed is (version == 4)
        peer.is_behind = world.broker.commits.journal.is_full = False
        world.broker.memory_level = MEMORY_FREE
    counters = world.broker.counters
    assert (counters.publishes_without_memory, counters.publishes_not_stored) == ((6, 0) if is_memory else (0, 6))


def test_publishes_that_wait_for_the_store_are_refused(make_world: Any) -> None:
    world = full(make_world)
    client = world.connect("c", auto=False)
    old = world.connect("old", 4, auto=False)
    client.publish(b"kept", qos=1, packet_id=1)
    old.publish(b"kept", qos=1, packet_id=3)
    world.broker.commits.journal.is_full = True
    refuse_waiting(world.broker, world.now)
    world.flush()
    assert client.take_packets() == [PubAck(1, QUOTA_EXCEEDED)]
    assert (old.closed, old.take_packets()) == (True, [])
    assert client.connection.acks_waiting == 0


@pytest.mark.parametrize("version", [4, 5])
def test_a_message_of_qos_2_that_waits_for_the_store_is_asked_for_again_and_is_published_once(
    make_world: Any, version: int
) -> None:
    """It is routed: its packet identifier stays, and the client sends it again where it has connected again."""
    world = full(make_world)
    options = {"expiry": 100} if version == 5 else {}
    client = world.connect("c", version, clean_start=False, auto=False, **options)
    world.write()
    world.flush()
    client.take_packets()
    client.publish(b"kept", qos=2, packet_id=2)
    world.broker.commits.journal.is_full = True
    refuse_waiting(world.broker, world.now)
    world.flush()
    assert client.closed
    assert client.take_packets() == []
    assert world.broker.sessions["c"].is_unreleased(2)
    assert world.broker.counters.publishes_not_stored == 1
    world.broker.commits.journal.is_full = False
    world.write()
    again = world.connect("c", version, clean_start=False, auto=False, **options)
    world.write()
    world.flush()
    again.publish(b"kept", qos=2, packet_id=2, dup=True)
    world.write()
    world.flush()
    assert again.take_packets()[-1] == PubRec(2)
    member = world.clients[world.broker.sessions["member"].connection]
    assert len([packet for packet in member.take_packets() if isinstance(packet, Publish)]) == 1


class SlowCopies(Replicator):
    """Copies of the store that have nothing yet."""

    def written(self, batch: dict[int, tuple[object, ...] | None], now: float) -> None:
        """Nothing arrives."""

    def stored(self, below: int, numbers: list[int]) -> None:
        """Nothing is settled."""


@pytest.mark.parametrize("is_short", [False, True])
def test_what_waits_for_copies_of_the_store_is_refused_only_where_it_must_have_them(
    make_world: Any, is_short: bool
) -> None:
    """What is on disk is acknowledged when the copies have it."""
    world = full(make_world)
    commits = world.broker.commits
    commits.replicator = SlowCopies()
    client = world.connect("c", auto=False)
    client.publish(b"kept", qos=1, packet_id=1)
    commit = commits.journal.commit
    commits.journal.take()
    commits.stored([commit])
    client.publish(b"kept", qos=1, packet_id=2)
    commits.journal.is_short = is_short
    refuse_waiting(world.broker, world.now)
    world.flush()
    refused = [1, 2] if is_short else [2]
    assert client.take_packets() == [PubAck(packet_id, QUOTA_EXCEEDED) for packet_id in refused]


def test_a_durable_publisher_of_qos_2_is_refused(make_world: Any) -> None:
    """Its packet identifier could not be kept."""
    world = full(make_world)
    world.write()
    world.connect("c", expiry=100, auto=False)
    world.write()
    world.flush()
    session = world.broker.sessions["c"]
    client = world.clients[session.connection]
    client.take_packets()
    world.broker.commits.journal.is_full = True
    client.publish(b"plain", qos=1, packet_id=1)
    client.publish(b"plain", qos=2, packet_id=2)
    assert client.take_packets() == [PubAck(1), PubRec(2, QUOTA_EXCEEDED)]
