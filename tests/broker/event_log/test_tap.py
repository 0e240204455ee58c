"""What is published becomes records; acknowledgements wait for them; publishers wait for the writer; a full log refuses."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.packets import Packet, PubAck, PubRec, Will
from broker.codec.reason_codes import NO_MATCHING_SUBSCRIBERS, QUOTA_EXCEEDED
from broker.codec.writer import encode_publish
from broker.errors import MqttError
from broker.event_log.appender import Appender, State
from broker.event_log.block import NO_EXPIRY
from broker.event_log.selection import Selection
from broker.event_log.tap import WAITING_BYTES_MAX, LogTap, LogTurnEnd
from broker.hooks import Waiter
from broker.message import Message
from broker.origin import property_of
from event_log_reader import Clock, Record, decode_blocks
from link_ends import remote_end

USER_PROPERTY = b"\x26\x00\x01k\x00\x01v"


class Log:
    """A tap on a world's broker. `write` does what the writer does."""

    def __init__(self, world: Any, clock: Clock, topics: tuple[bytes, ...] = (b"#",), waits: bool = True) -> None:
        self.world = world
        self.appender = Appender(0)
        self.tap = LogTap(world.broker, self.appender, Selection(topics), clock, lambda: None, waits)
        self.records: list[Record] = []
        world.broker.add_tap(self.tap)

    def write(self) -> list[Record]:
        commit = self.appender.commit
        offset = len(self.records)
        found: list[Record] = []
        for builder in self.appender.take():
            found += decode_blocks(builder.take(offset + len(found)))
        self.records += found
        self.tap.taken()
        if commit:
            self.tap.finish(commit)
        self.world.flush()
        return found


def acks(client: Any) -> list[tuple[type[Packet], int, int]]:
    return [
        (type(packet), packet.packet_id, packet.reason_code)
        for packet in client.take_packets()
        if isinstance(packet, (PubAck, PubRec))
    ]


def test_the_fields_of_a_record(world: Any, clock: Clock) -> None:
    log = Log(world, clock)
    client = world.connect("c", username="user")
    client.publish(b"a/b", b"1", 1, retain=True, message_expiry_interval=60, properties=USER_PROPERTY)
    client.publish(b"a", b"2", 2)
    client.send_bytes(encode_publish(5, b"run", b"x", 0, False, False, 0, b"") * 3)
    client.send_bytes(encode_publish(5, b"run", b"x", 0, False, False, 0, USER_PROPERTY) * 2)
    assert log.write() == [
        Record(0, clock.now_ns, b"a/b", b"1", 1 | 4, "c", "user", "", 60, USER_PROPERTY),
        Record(1, clock.now_ns, b"a", b"2", 2, "c", "user", "", NO_EXPIRY, b""),
        *[Record(number, clock.now_ns, b"run", b"x", 0, "c", "user", "", NO_EXPIRY, b"") for number in (2, 3, 4)],
        *[
            Record(number, clock.now_ns, b"run", b"x", 0, "c", "user", "", NO_EXPIRY, USER_PROPERTY)
            for number in (5, 6)
        ],
    ]


class Called(Waiter):
    is_called = False

    def committed(self) -> None:
        self.is_called = True


def test_who_publishes_without_a_client_waits_for_the_record_too(world: Any, clock: Clock) -> None:
    """The answer of the API says that the message is kept, as a PUBACK does."""
    log = Log(world, clock)
    world.broker.publish(Message(b"a", b"1", 1, False), world.now)
    waiter = Called()
    assert world.broker.commits.wait(waiter)
    assert not waiter.is_called
    log.write()
    assert waiter.is_called


def test_the_origin_of_a_record_is_the_path_of_its_message(world: Any, clock: Clock) -> None:
    log = Log(world, clock)
    link = world.open()
    link.connection.bridge_end = remote_end(world.broker, b"paris", 1)
    link.connect("link", username="user")
    link.publish(b"a", qos=1)
    link.publish(b"b", properties=USER_PROPERTY + property_of(b"1 path=oslo,paris"))
    link.send_bytes(encode_publish(5, b"run", b"x", 0, False, False, 0, b"") * 2)
    world.connect("c").publish(b"c")
    found = [(record.topic, record.client_id, record.user_name, record.origin) for record in log.write()]
    run = (b"run", "link", "user", "paris")
    assert found == [
        (b"a", "link", "user", "paris"),
        (b"b", "link", "user", "oslo,paris"),
        *[run, run],
        (b"c", "c", "", ""),
    ]


@pytest.mark.parametrize("version", [4, 5])
def test_runs_are_cut_at_other_topics_and_lengths(world: Any, clock: Clock, version: int) -> None:
    log = Log(world, clock)
    client = world.connect("c", version)
    sent = [(b"a", b"1"), (b"a", b"2"), (b"a", b"33"), (b"b", b"44"), (b"a", b"5"), (b"a", b"")]
    client.send_bytes(b"".join(encode_publish(version, *message, 0, False, False, 0, b"") for message in sent))
    assert [(record.topic, record.payload) for record in log.write()] == sent


def test_the_api_and_wills_are_logged_messages_of_other_nodes_are_not(world: Any, clock: Clock) -> None:
    log = Log(world, clock)
    world.broker.publish(Message(b"api", b"x", 1, False), world.now)
    dying = world.connect("dying", will=Will(b"will", b"w"), username="late")
    dying.cut()
    world.broker.router.publish_remote(Message(b"other", b"node", 0, False), (), None, world.now)
    assert [(record.topic, record.client_id) for record in log.write()] == [(b"api", ""), (b"will", "dying")]


def test_topics_that_are_not_logged_need_no_record(world: Any, clock: Clock) -> None:
    log = Log(world, clock, (b"logged/#",))
    client = world.connect("c", auto=False)
    client.publish(b"other", qos=1, packet_id=1)
    assert acks(client) == [(PubAck, 1, NO_MATCHING_SUBSCRIBERS)]
    client.send_bytes(encode_publish(5, b"other", b"x", 0, False, False, 0, b"") * 3)
    assert log.appender.records == 0
    log.tap.is_forced = True
    world.broker.publish(Message(b"other", b"from a pipeline", 0, False), world.now)
    assert [record.payload for record in log.write()] == [b"from a pipeline"]


@pytest.mark.parametrize("version", [4, 5])
def test_acknowledgements_wait_for_the_record(world: Any, clock: Clock, version: int) -> None:
    log = Log(world, clock)
    client = world.connect("c", version, auto=False)
    client.publish(b"t", qos=1, packet_id=1)
    client.publish(b"t", qos=2, packet_id=2)
    assert log.appender.is_urgent
    assert acks(client) == []
    log.write()
    assert [ack[:2] for ack in acks(client)] == [(PubAck, 1), (PubRec, 2)]
    client.publish(b"t", qos=1, packet_id=3)
    log.write()
    assert [ack[:2] for ack in acks(client)] == [(PubAck, 3)]


def test_acknowledgements_leave_at_once_with_sync_none(world: Any, clock: Clock) -> None:
    log = Log(world, clock, waits=False)
    client = world.connect("c", 4, auto=False)
    client.publish(b"t", qos=1, packet_id=1)
    assert acks(client) == [(PubAck, 1, 0)]
    assert log.appender.records == 1


def test_qos_0_begins_no_commit(world: Any, clock: Clock) -> None:
    log = Log(world, clock)
    world.connect("c").publish(b"t")
    assert (log.appender.records, log.appender.commit, log.appender.is_urgent) == (1, 0, False)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_publisher_that_is_faster_than_the_writer_is_held(world: Any, clock: Clock, qos: int) -> None:
    log = Log(world, clock)
    client = world.connect("c", auto=False)
    other = world.connect("other", auto=False)
    size = WAITING_BYTES_MAX // 4
    for number in range(10):
        client.publish(b"t", bytes(size), qos, packet_id=number + 1 if qos else 0)
        other.publish(b"t", b"small", qos, packet_id=number + 1 if qos else 0)
    assert log.appender.records < 10
    assert not client.reading
    while log.appender.records:
        log.write()
    assert client.reading
    assert len(log.records) == 20
    assert world.broker.counters.publishers_held >= 2


def test_a_publisher_that_leaves_while_it_is_held(world: Any, clock: Clock) -> None:
    log = Log(world, clock)
    client = world.connect("c", auto=False)
    client.publish(b"t", bytes(WAITING_BYTES_MAX))
    assert not client.reading
    client.cut()
    log.write()
    assert len(log.records) == 1


# --- a log that refuses ---


def test_a_full_log_refuses_mqtt_5(world: Any, clock: Clock) -> None:
    log = Log(world, clock, (b"logged/#",))
    log.appender.state = State.REFUSING
    subscriber = world.connect("s")
    subscriber.subscribe(b"#")
    client = world.connect("c", auto=False)
    client.publish(b"logged/1", b"", 1, packet_id=1)
    client.publish(b"logged/2", b"", 2, packet_id=2)
    client.publish(b"logged/2", b"", 2, packet_id=2)
    client.publish(b"logged/0", b"")
    client.publish(b"logged/0", b"", retain=True)
    client.send_bytes(encode_publish(5, b"logged/run", b"x", 0, False, False, 0, b"") * 3)
    assert acks(client) == [
        (PubAck, 1, QUOTA_EXCEEDED),
        (PubRec, 2, QUOTA_EXCEEDED),
        (PubRec, 2, QUOTA_EXCEEDED),
    ]
    assert subscriber.take_payloads() == []
    assert world.drops() == {"log_full": 5}
    with pytest.raises(MqttError, match="the event log has no room"):
        world.broker.publish(Message(b"logged/api", b"", 0, False), world.now)
    client.publish(b"other", b"passes", 1, packet_id=3)
    assert acks(client) == [(PubAck, 3, 0)]
    assert subscriber.take_payloads() == [b"passes"]
    assert log.appender.records == 0


@pytest.mark.parametrize(("version", "waits"), [(4, True), (4, False), (3, True)])
def test_a_full_log_lets_mqtt_3_1_1_wait(world: Any, clock: Clock, version: int, waits: bool) -> None:
    log = Log(world, clock, waits=waits)
    log.appender.state = State.REFUSING
    client = world.connect("c", version, auto=False)
    client.publish(b"t", b"1", 1, packet_id=1)
    client.publish(b"t", b"2", 1, packet_id=2)
    assert not client.reading
    assert acks(client) == []
    assert log.appender.records == 1, "the publisher is not read"
    log.appender.state = State.IDLE
    log.write()
    log.write()
    assert client.reading
    assert [ack[1] for ack in acks(client)] == [1, 2]
    assert [record.payload for record in log.records] == [b"1", b"2"]


def test_refusals_keep_the_order_of_acknowledgements(world: Any, clock: Clock) -> None:
    log = Log(world, clock)
    client = world.connect("c", auto=False)
    client.publish(b"t", b"1", 1, packet_id=1)
    log.appender.state = State.REFUSING
    client.publish(b"t", b"2", 1, packet_id=2)
    other = world.connect("other", auto=False)
    other.publish(b"t", b"3", 1, packet_id=9)
    assert acks(client) == []
    assert acks(other) == [(PubAck, 9, QUOTA_EXCEEDED)], "it waits for nobody else"
    log.write()
    assert acks(client) == [(PubAck, 1, NO_MATCHING_SUBSCRIBERS), (PubAck, 2, QUOTA_EXCEEDED)]


def test_an_invalid_topic_is_an_error_for_a_full_log_too(world: Any, clock: Clock) -> None:
    Log(world, clock).appender.state = State.REFUSING
    client = world.connect("c")
    client.publish(b"a/#", b"", 1)
    assert client.closed


def test_the_end_of_a_turn_asks_for_a_write_once(world: Any, clock: Clock) -> None:
    log = Log(world, clock)
    calls: list[int] = []
    end = LogTurnEnd(log.appender, lambda: calls.append(log.appender.records))
    end.turn_ended(0.0)
    assert calls == []
    world.connect("c").publish(b"t")
    end.turn_ended(0.0)
    log.appender.move(State.LINGERING)
    end.turn_ended(0.0)
    assert calls == [1]
    world.connect("c").publish(b"t", qos=1)
    end.turn_ended(0.0)
    log.appender.move(State.WRITING)
    end.turn_ended(0.0)
    assert calls == [1, 2]
