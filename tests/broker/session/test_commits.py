"""A tap sees what is published; acknowledgements wait, in order, for what it has not kept yet."""

from __future__ import annotations

from typing import Any

import pytest

from broker.broker import Broker
from broker.codec.packets import Packet, PubAck, PubRec, Will
from broker.codec.reason_codes import NO_MATCHING_SUBSCRIBERS, QUOTA_EXCEEDED
from broker.codec.runs import Run
from broker.codec.writer import encode_publish
from broker.hooks import Tap, Waiter
from broker.message import Message
from broker.publisher import Publisher
from broker.session.commits import ACKS_WAITING_MAX, Commits
from broker.session.output import Output
from broker.session.refused import refuse_waiting
from broker.store.journal import Journal


class Keeper(Tap):
    """Keeps what is published; what begins with `durable` needs a commit, one for all that come before `sync`."""

    def __init__(self, broker: Broker) -> None:
        self.kept: list[tuple[str, bytes, bytes]] = []
        self._broker = broker
        self._commits: list[int] = []
        broker.add_tap(self)

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        username = publisher.username if isinstance(publisher, Output) else "-"
        self.kept.append((username, message.topic, message.payload))
        if message.topic.startswith(b"durable"):
            self._commits.append(self._broker.commits.begin())

    def published_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        for message in run.messages():
            self.published(message, publisher, now)

    def sync(self) -> None:
        """Everything that was published is on disk."""
        for commit in self._commits:
            self._broker.commits.finish(commit)
        self._commits.clear()


def acks(packets: list[Packet]) -> list[tuple[type[Packet], int]]:
    return [(type(packet), packet.packet_id) for packet in packets if isinstance(packet, (PubAck, PubRec))]


def test_a_tap_sees_each_message_once(world: Any) -> None:
    keeper = Keeper(world.broker)
    client = world.connect("c", username="user")
    client.send_bytes(encode_publish(5, b"run", b"1", 0, False, False, 0, b"") * 3)
    for qos in (0, 1, 2):
        client.publish(b"qos", b"%d" % qos, qos=qos, retain=qos == 1)
    world.broker.publish(Message(b"api", b"x", 0, False), world.now)
    dying = world.connect("dying", will=Will(b"will", b"w"), username="late")
    dying.cut()
    world.broker.router.publish_remote(Message(b"other", b"node", 0, False), (), None, world.now)
    assert keeper.kept == [
        *[("user", b"run", b"1")] * 3,
        *[("user", b"qos", b"%d" % qos) for qos in (0, 1, 2)],
        ("-", b"api", b"x"),
        ("-", b"will", b"w"),
    ]


class Promiser(Tap):
    """What ends with `other` is promised to another node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.promised: list[int] = []
        broker.set_journal(Journal())
        broker.add_tap(self)

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        if message.topic.endswith(b"other"):
            self.promised.append(self._broker.commits.promise())

    def published_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        """Runs have QoS 0."""


def test_a_promise_holds_the_acknowledgements_of_its_client_and_of_nobody_else(world: Any) -> None:
    promiser = Promiser(world.broker)
    first, second = world.connect("first", auto=False), world.connect("second", auto=False)
    first.publish(b"here", qos=1, packet_id=1)
    first.publish(b"other", qos=1, packet_id=2)
    first.publish(b"here", qos=1, packet_id=3)
    second.publish(b"here", qos=1, packet_id=4)
    assert acks(first.take_packets()) == [(PubAck, 1)]
    assert acks(second.take_packets()) == [(PubAck, 4)]
    second.publish(b"other", qos=2, packet_id=5)
    world.broker.commits.kept(promiser.promised[0])
    world.flush()
    assert acks(first.take_packets()) == [(PubAck, 2), (PubAck, 3)]
    assert acks(second.take_packets()) == []
    world.broker.commits.kept(promiser.promised[1])
    world.flush()
    assert acks(second.take_packets()) == [(PubRec, 5)]


def test_a_store_that_fails_refuses_nothing_that_it_has(world: Any) -> None:
    """A PUBREC that waits for another node alone: its packet identifier is on disk, and would come back after a restart."""
    promiser = Promiser(world.broker)
    keeper = Keeper(world.broker)
    client = world.connect("c", auto=False)
    client.publish(b"durable/other", qos=2, packet_id=1)
    keeper.sync()
    client.publish(b"durable/other", qos=1, packet_id=2)
    refuse_waiting(world.broker, world.now)
    world.broker.commits.kept(promiser.promised[-1])
    world.flush()
    packets = client.take_packets()
    answers = {packet.packet_id: packet.reason_code for packet in packets if isinstance(packet, PubAck | PubRec)}
    assert answers == {1: NO_MATCHING_SUBSCRIBERS, 2: QUOTA_EXCEEDED}


@pytest.mark.parametrize("version", [4, 5])
def test_acknowledgements_wait_for_the_commit_and_keep_their_order(world: Any, version: int) -> None:
    keeper = Keeper(world.broker)
    client = world.connect("c", version, auto=False)
    client.publish(b"other", qos=1, packet_id=1)
    assert acks(client.take_packets()) == [(PubAck, 1)], "nothing has to be kept"
    client.publish(b"durable", qos=1, packet_id=2)
    client.publish(b"durable", qos=2, packet_id=3)
    client.publish(b"other", qos=1, packet_id=4)
    assert acks(client.take_packets()) == []
    keeper.sync()
    world.flush()
    assert acks(client.take_packets()) == [(PubAck, 2), (PubRec, 3), (PubAck, 4)]
    client.publish(b"other", qos=1, packet_id=5)
    assert acks(client.take_packets()) == [(PubAck, 5)]


def test_the_acknowledgements_of_a_run_keep_their_order(world: Any) -> None:
    keeper = Keeper(world.broker)
    client = world.connect("c", 4, auto=False)
    commits = world.broker.commits
    run = b"\x40\x02\0\x02\x40\x02\0\x03"
    client.publish(b"durable", qos=1, packet_id=1)
    commits.next_packet()
    commits.acknowledge_run(client.connection, run)
    world.flush()
    assert acks(client.take_packets()) == []
    assert client.connection.acks_waiting == 3
    sent = world.broker.counters.short_pubacks_sent
    keeper.sync()
    commits.acknowledge_run(client.connection, run)
    world.flush()
    assert acks(client.take_packets()) == [(PubAck, 1), (PubAck, 2), (PubAck, 3), (PubAck, 2), (PubAck, 3)]
    assert world.broker.counters.packets_sent >= world.broker.counters.short_pubacks_sent == sent + 5


def test_a_later_commit_is_not_finished_by_an_earlier_one(world: Any) -> None:
    commits = world.broker.commits
    Keeper(world.broker)
    client = world.connect("c", auto=False)
    client.publish(b"durable/1", qos=1, packet_id=1)
    client.publish(b"durable/2", qos=1, packet_id=2)
    commits.finish(1)
    world.flush()
    assert acks(client.take_packets()) == [(PubAck, 1)]
    commits.finish(2)
    world.flush()
    assert acks(client.take_packets()) == [(PubAck, 2)]


def test_a_connection_that_ends_meanwhile(world: Any) -> None:
    keeper = Keeper(world.broker)
    client = world.connect("c", auto=False)
    other = world.connect("other", auto=False)
    client.publish(b"durable", qos=1, packet_id=1)
    other.publish(b"durable", qos=1, packet_id=9)
    client.cut()
    keeper.sync()
    world.flush()
    assert acks(other.take_packets()) == [(PubAck, 9)]
    assert client.connection.acks_waiting == 0


def test_a_client_with_too_many_acknowledgements_waiting_is_not_read(world: Any) -> None:
    keeper = Keeper(world.broker)
    client = world.connect("c", auto=False)
    for number in range(ACKS_WAITING_MAX + 10):
        client.publish(b"durable", b"%d" % number, qos=1, packet_id=number + 1)
    assert not client.reading
    assert client.connection.acks_waiting == ACKS_WAITING_MAX
    keeper.sync()
    world.flush()
    assert client.reading
    keeper.sync()
    world.flush()
    assert [packet_id for _, packet_id in acks(client.take_packets())] == list(range(1, ACKS_WAITING_MAX + 11))


class Called(Waiter):
    def __init__(self) -> None:
        self.count = 0

    def committed(self) -> None:
        self.count += 1


@pytest.mark.parametrize("is_kept_first", [True, False])
def test_who_waits_for_promises_waits_for_all_of_both_kinds(is_kept_first: bool) -> None:
    commits = Commits()
    waiter, for_disk, later = Called(), Called(), Called()
    assert not commits.wait_promises(waiter)
    commit, promise = commits.begin(), commits.promise()
    assert commits.wait_promises(waiter)
    assert commits.wait(for_disk)
    commits.promise()
    assert commits.wait_promises(later)
    if is_kept_first:
        commits.kept(promise)
    else:
        commits.finish(commit)
    assert (waiter.count, for_disk.count) == (0, 0 if is_kept_first else 1)
    if is_kept_first:
        commits.finish(commit)
    else:
        commits.kept(promise)
    assert (waiter.count, for_disk.count, later.count) == (1, 1, 0)
    commits.kept(promise + 1)
    assert (waiter.count, later.count) == (1, 1)
    assert not commits.wait_promises(waiter)
