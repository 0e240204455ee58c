"""No client gets more of a turn than a slice, whatever it sends; its input is handled in order, others in between."""

from __future__ import annotations

import itertools
from typing import Any, Final

import pytest

from broker.auth.acl_authorizer import AclAuthorizer
from broker.auth.acl_filters import DENIED, READ, Rule
from broker.auth.acl_rules import AclRules
from broker.codec import properties as props
from broker.codec.packets import PingReq, PingResp, PubAck, Publish, Subscribe, SubscribeFilter, Unsubscribe
from broker.codec.runs import RUN_MAX
from broker.codec.writer import encode_packet, encode_publish
from broker.session.group_queues import GroupQueues
from broker.slices import SLICE_STEPS, Slices, Work
from broker_world import World

STEPS_OF_ONE_CALL: Final = 8_000  # a packet, a match or a subscription is not interrupted


class Steps(Work):
    """Work of so many steps, `a_slice` of them in one call at most."""

    def __init__(self, slices: Slices, steps: int) -> None:
        self.left = steps
        self._slices = slices

    def go_on(self, now: float) -> bool:
        while self.left:
            self.left -= 1
            self._slices.steps += 1
            if self._slices.is_over():
                return self.left == 0
        return True


def turn(world: Any) -> None:
    """One turn of the shell: a slice of the work that waits, output, reading."""
    broker = world.broker
    broker.slices.begin()
    if broker.slices.has_work():
        broker.go_on(world.now)
    for publisher in broker.take_reading_changes():
        world.clients[publisher].set_reading()
    for connection in broker.take_dirty():
        world.clients[connection].take(connection.take_output())


def turns_until_idle(world: Any, others: Any = None) -> int:
    """Turns until no work waits. In each, another client gets the answer to its PINGREQ at once."""
    turns = 0
    while world.broker.slices.has_work() or world.broker.reading_changes:
        turn(world)
        turns += 1
        assert world.broker.slices.steps <= SLICE_STEPS + STEPS_OF_ONE_CALL
        if others is not None:
            others.connection.receive_data(encode_packet(PingReq(), 5), world.now)
            assert others.connection.take_output() == encode_packet(PingResp(), 5)
        assert turns < 10_000
    turn(world)
    return turns


def test_work_takes_turns() -> None:
    slices = Slices()
    works = [Steps(slices, 3 * SLICE_STEPS), Steps(slices, 10), Steps(slices, SLICE_STEPS)]
    for work in works:
        slices.later(work)
    left = []
    while slices.has_work():
        slices.go_on(0.0)
        assert slices.steps <= SLICE_STEPS
        left.append([work.left for work in works])
    whole = SLICE_STEPS
    assert left == [
        [2 * whole, 10, whole],
        [2 * whole, 0, 10],
        [whole, 0, 10],
        [10, 0, 0],
        [0, 0, 0],
    ]


def test_messages_that_match_thousands_of_filters(world: Any) -> None:
    subscriber = world.connect("many")
    filters = [b"/".join(levels) for levels in itertools.product((b"+", b"a"), repeat=11)]
    for at in range(0, len(filters), 256):
        subscriber.subscribe(*filters[at : at + 256])
    other = world.connect("other")
    publisher = world.connect("p")
    other.subscribe(b"a/#")
    topics = [b"a/" * 10 + b"%d" % number for number in range(50)]
    data = b"".join(encode_publish(5, topic, b"", 0, False, False, 0, b"") for topic in topics)
    publisher.connection.receive_data(data, world.now)
    assert publisher.connection.waiting_input()
    assert turns_until_idle(world) > 20
    assert not publisher.connection.waiting_input()
    assert [packet.topic for packet in other.take_publishes()] == topics


def test_a_chunk_of_small_packets(world: Any) -> None:
    """In order, and what comes meanwhile waits behind it."""
    client = world.connect("c")
    other = world.connect("other")
    client.subscribe(b"t")
    packets = [Publish(b"t", b"%d" % number, 0, retain=True) for number in range(3 * SLICE_STEPS)]
    client.connection.receive_data(b"".join(encode_packet(packet, 5) for packet in packets), world.now)
    client.connection.receive_data(encode_packet(Publish(b"t", b"last", 0), 5), world.now)
    assert turns_until_idle(world, other) >= 3
    assert client.take_payloads() == [packet.payload for packet in packets] + [b"last"]


def test_runs_for_a_receiver_that_takes_nothing(world: Any) -> None:
    """Its queue takes the messages of a run one by one. The publisher is held no more: that backlog had its time."""
    stuck = world.connect("stuck")
    other = world.connect("other")
    publisher = world.connect("p")
    stuck.subscribe(b"t")
    stuck.stop_reading()
    packet = encode_publish(5, b"t", bytes(20), 0, False, False, 0, b"")
    publisher.connection.receive_data(packet * 2_000, world.now)
    world.advance(1.0)
    session = world.broker.sessions["stuck"]
    before = session.messages_dropped
    assert before > 0
    count = 5 * SLICE_STEPS
    publisher.connection.receive_data(packet * count, world.now)
    assert 0 < session.messages_dropped - before <= SLICE_STEPS + RUN_MAX
    assert turns_until_idle(world, other) >= 4
    assert session.messages_dropped - before == count


def test_subscribe_is_answered_when_all_of_it_is_done(world: Any) -> None:
    client = world.connect("c")
    other = world.connect("other")
    filters = [SubscribeFilter(b"f/%d" % number, 1) for number in range(2_000)]
    chunk = encode_packet(Subscribe(7, filters), 5) + encode_packet(PingReq(), 5)
    client.connection.receive_data(chunk, world.now)
    assert client.connection.phase.name == "ANSWERING"
    assert client.connection.take_output() == b""
    assert turns_until_idle(world, other) > 3
    suback, pong = client.take_packets()
    assert suback.reason_codes == [1] * 2_000
    assert isinstance(pong, PingResp)
    assert client.connection.phase.name == "CONNECTED"
    world.check()
    client.connection.receive_data(encode_packet(Unsubscribe(8, [f.topic_filter for f in filters]), 5), world.now)
    assert client.connection.phase.name == "ANSWERING"
    turns_until_idle(world, other)
    (unsuback,) = client.take_packets()
    assert unsuback.reason_codes == [0] * 2_000
    assert world.broker.local_interest() == []


def test_input_that_is_read_while_a_subscribe_is_answered(world: Any) -> None:
    """A loop may read a socket several times before it is paused."""
    client = world.connect("c")
    filters = [SubscribeFilter(b"f/%d" % number, 1) for number in range(2_000)]
    client.connection.receive_data(encode_packet(Subscribe(7, filters), 5), world.now)
    client.connection.receive_data(encode_packet(PingReq(), 5), world.now)
    client.connection.receive_data(encode_packet(Subscribe(8, filters), 5), world.now)
    client.connection.receive_data(encode_packet(PingReq(), 5), world.now)
    turns_until_idle(world)
    assert [type(packet).__name__ for packet in client.packets] == ["SubAck", "PingResp", "SubAck", "PingResp"]


def test_a_client_that_goes_while_it_is_answered(world: Any) -> None:
    client = world.connect("c")
    filters = [SubscribeFilter(b"f/%d" % number, 1) for number in range(2_000)]
    client.connection.receive_data(encode_packet(Subscribe(7, filters), 5), world.now)
    world.broker.connection_lost(client.connection, world.now)
    turns_until_idle(world)
    assert world.broker.local_interest() == []
    world.check()


def test_sessions_that_end_in_one_turn_share_a_slice(world: Any) -> None:
    clients = [world.connect(f"c{number}") for number in range(20)]
    for client in clients:
        client.subscribe(*(b"%s/%d" % (client.connection.client_id.encode(), number) for number in range(200)))
    world.broker.slices.begin()
    for client in clients:
        world.broker.connection_lost(client.connection, world.now)
    assert world.broker.sessions == {}
    assert len(world.broker.local_interest()) > 3_000, "most of the 4,000 filters are left to later turns"
    turns_until_idle(world)
    assert world.broker.local_interest() == []
    world.check()


def test_the_end_of_a_large_session(world: Any) -> None:
    """Its client identifier is free at once; the filters go in slices, and nothing more is queued for it."""
    client = world.connect("c", expiry=100)
    other = world.connect("other")
    for first in range(0, 5_000, 500):
        client.subscribe(*(b"f/%d" % number for number in range(first, first + 500)))
    client.cut()
    again = world.broker
    again.close_client("c", True, world.now)
    assert again.sessions.keys() == {"other"}
    assert len(again.local_interest()) > 4_000
    new = world.open(5)
    new.connection.receive_data(b"", world.now)
    other.publish(b"f/4999", qos=1)
    assert world.broker.counters.messages_dropped["session_ended"] <= 1
    turns_until_idle(world, other)
    assert again.local_interest() == []


@pytest.mark.parametrize("version", [4, 5])
def test_a_block_of_another_node(world: Any, version: int) -> None:
    """It stops at the end of a slice with its publisher held, and goes on where it stood."""
    from broker.publisher import Publisher

    client = world.connect("c", version)
    client.subscribe(b"t/#")
    topics = [b"t/%d" % number for number in range(5_000)]
    data = b"".join(encode_publish(version, topic, b"", 0, False, False, 0, b"") for topic in topics)
    publisher = Publisher(None)
    broker = world.broker
    pos = 0
    turns = 0
    while pos < len(data):
        broker.slices.begin()
        pos = broker.router.publish_block(data, version, publisher, world.now, pos, len(data))
        assert broker.slices.steps <= SLICE_STEPS + STEPS_OF_ONE_CALL
        assert (pos < len(data)) == (publisher.held > 0)
        turns += 1
        broker.go_on(world.now)
        assert publisher.held == 0
        broker.take_reading_changes()
        for connection in broker.take_dirty():
            world.clients[connection].take(connection.take_output())
    assert turns > 3
    assert [packet.topic for packet in client.take_publishes()] == topics


@pytest.mark.parametrize("is_shared", [False, True], ids=["receivers", "group"])
def test_a_run_whose_messages_go_out_one_by_one(is_shared: bool) -> None:
    """A slice is over within the run: receivers with identifiers, and a group whose members cannot take more are looked at for
    each of its messages. What follows the run waits behind it."""
    world = World(max_queued_messages=2, publisher_hold_max=0)
    count = 50
    for number in range(count):
        member = world.connect(f"m{number}", 5, auto=False, properties={props.RECEIVE_MAXIMUM: 1})
        if is_shared:
            member.subscribe(b"$share/g/t", qos=1)
        else:
            member.subscribe(b"t", identifier=number + 1)
    watch = world.connect("watch")
    watch.subscribe(b"t", b"last")
    if is_shared:
        for _ in range(2 * count):
            world.publish(b"t", b"", qos=1)
    watch.take_packets()
    other = world.connect("other")
    publisher = world.connect("p")
    sent = [b"%03d" % number for number in range(200)]
    packets = [*(Publish(b"t", payload) for payload in sent), Publish(b"last", b"last")]
    publisher.connection.receive_data(b"".join(encode_packet(packet, 5) for packet in packets), world.now)
    assert publisher.connection.held
    assert world.broker.slices.steps <= SLICE_STEPS + STEPS_OF_ONE_CALL
    assert turns_until_idle(world, other) >= 4
    assert not publisher.connection.held
    assert [packet.payload for packet in watch.take_publishes()] == [*sent, b"last"]


def test_rules_are_a_part_of_the_slice(world: Any) -> None:
    """A SUBSCRIBE whose filters concern 2,000 rules each ends a turn with each of them."""
    rules = [Rule(f"r/{number}", gives) for number in range(1_000) for gives in (READ, DENIED)]
    world.broker.add_authorizer(AclAuthorizer(AclRules({"u": rules}, [])))
    client = world.connect("c", username="u")
    other = world.connect("other", username="u")
    packet = Subscribe(1, [SubscribeFilter(b"+/+", 0) for _ in range(10)])
    client.connection.receive_data(encode_packet(packet, 5), world.now)
    assert turns_until_idle(world, other) >= 9
    assert client.packets[-1].reason_codes == [0x87] * 10


def test_groups_with_a_queue_are_a_part_of_the_slice(world: Any) -> None:
    """Each acknowledgement of a member looks at all its groups with a queue, which may have waited for it."""
    queues = GroupQueues(world.broker)
    names = [b"%d" % number for number in range(SLICE_STEPS // 2)]
    for name in names:
        queues.declare(name, b"jobs/" + name, 100, 10**6, 0.0, world.now)
    client = world.connect("c", auto=False)
    for first in range(0, len(names), 100):
        client.subscribe(*[b"$share/" + name + b"/jobs/" + name for name in names[first : first + 100]])
    other = world.connect("other")
    for _ in range(20):
        other.publish(b"jobs/1", qos=1)
    packet_ids = [packet.packet_id for packet in client.take_publishes()]
    assert len(packet_ids) == 20
    client.connection.receive_data(b"".join(encode_packet(PubAck(number), 5) for number in packet_ids), world.now)
    assert turns_until_idle(world, other) >= 9
