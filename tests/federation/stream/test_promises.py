"""Promises: the acknowledgements of publishers that wait until other nodes have their messages."""

from __future__ import annotations

import random

import pytest

from broker.broker import Broker
from broker.config.settings_mqtt import MqttSettings
from broker.hooks import NO_GROUPS
from broker.message import Message
from broker.store.journal import Journal
from broker.store.records import encode_changes
from federation.stream.block import restored_block
from federation.stream.counters import DropReason, StreamCounters
from federation.stream.full_state import LocalState
from federation.stream.outbox import Outbox
from federation.stream.promises import WAIT_SECONDS_MAX, WAIT_SECONDS_MIN, Promises
from federation.stream.sender import Outlets, PeerSender
from federation.stream.serials import Serials

QOS0, QOS1 = Message(b"a", b"0", 0, False), Message(b"a", b"1", 1, False)


class Station:
    """A sender of a node with a store, to a node that answers when a test says so."""

    def __init__(self, drop_oldest: bool = True, bytes_max: int = 2**20) -> None:
        self.broker = Broker(MqttSettings(), random.Random(1), 0.0)
        self.journal = Journal()
        self.broker.set_journal(self.journal)
        self.promises = Promises(self.broker.commits, True)
        self.counters = StreamCounters()
        outbox = Outbox(bytes_max, 300.0, drop_oldest, self.counters, "other", self.journal, Serials(1))
        self.sender = PeerSender(
            *("other", True, LocalState(), Outlets(), outbox, random.Random(1)),
            *("store", self.promises),
        )
        self.outbox = outbox
        self.disk: dict[int, tuple[object, ...]] = {}
        self.sent = 0

    def stream(self, now: float = 0.0) -> None:
        self.sender.connect("other:1", now)
        self.sender.hello_reply(self.sender.attempt, True, 0, now)
        self.sent = 0
        self.send(now)
        self.answer(now)

    def publish(self, message: Message, now: float) -> bool:
        """Return whether the acknowledgement waits."""
        self.broker.commits.next_packet()
        self.sender.forward(message, NO_GROUPS, now)
        return self.broker.commits.is_due()

    def send(self, now: float) -> None:
        for block in self.sender.take_blocks(now):
            self.sent = block.first_id + block.events
        self.promises.turn_ended(now)

    def answer(self, now: float) -> bool:
        """The other node acknowledges all. Return whether acknowledgements of publishers leave."""
        self.sender.ack(self.sender.attempt, self.sent - 1, now)
        return self.promises.settle()

    def commit(self) -> None:
        commit = self.journal.commit or self.broker.commits.begin()
        for number, record in encode_changes(self.journal.take(), 0.0).items():
            if record is None:
                self.disk.pop(number, None)
            else:
                self.disk[number] = record
        self.broker.commits.stored([commit])
        self.journal.is_touched = False

    def is_behind(self) -> bool:
        return self.sender.is_behind

    def is_waiting(self) -> bool:
        return self.broker.commits.is_due()


def test_an_acknowledgement_waits_for_the_other_node_and_nothing_is_written() -> None:
    station = Station()
    station.stream()
    assert not station.publish(QOS0, 1.0)
    assert station.publish(QOS1, 1.0)
    station.send(1.0)
    assert station.is_waiting()
    assert station.answer(1.001)
    assert not station.is_waiting()
    assert not station.journal.changes
    assert station.promises.is_empty()


def test_a_node_that_does_not_answer_in_time_is_behind_until_it_has_caught_up() -> None:
    station = Station()
    station.stream()
    assert station.publish(QOS1, 1.0)
    station.send(1.0)
    station.promises.handle_timeout(1.0 + WAIT_SECONDS_MIN / 2)
    assert not station.journal.changes
    station.promises.handle_timeout(1.0 + WAIT_SECONDS_MIN)
    assert station.is_behind()
    station.commit()
    assert station.promises.settle()
    assert len(station.disk) == 1
    assert station.publish(QOS1, 2.0)  # behind: for the store, and for nobody else
    station.send(2.0)
    assert station.promises.is_empty()
    station.commit()
    assert not station.is_waiting()
    assert len(station.disk) == 2
    station.answer(2.001)
    assert not station.is_behind()
    station.commit()
    assert station.disk == {}


def test_what_waits_and_what_is_stored_is_counted() -> None:
    station = Station()
    station.stream()
    station.publish(QOS1, 1.0)
    station.send(1.0)
    assert station.promises.waiting_for(station.sender) == 1
    assert station.outbox.stored() == (0, 0)
    station.promises.handle_timeout(1.0 + WAIT_SECONDS_MIN)
    assert station.counters.times_behind == 1
    station.commit()
    assert station.promises.waiting_for(station.sender) == 0
    assert station.outbox.stored() == (1, station.outbox.size)


def test_a_lost_stream_keeps_what_is_on_its_way() -> None:
    station = Station()
    station.stream()
    station.publish(QOS1, 1.0)
    station.send(1.0)
    station.sender.connection_lost(station.sender.attempt, "broken", 1.0)
    assert not station.promises.settle()
    station.commit()
    assert station.promises.settle()
    assert len(station.disk) == 1


def test_an_absent_node_gets_blocks_of_one_commit_each() -> None:
    station = Station()
    for number in range(3):
        for _ in range(5):
            assert station.publish(QOS1, float(number))
        station.send(float(number))
        station.commit()
        assert not station.is_waiting()
    assert len(station.disk) == 3
    serials = [str(record[2]) for record in station.disk.values()]
    assert serials == sorted(serials)


@pytest.mark.parametrize("message", [QOS1, Message(b"r", b"x", 1, True), Message(b"e", b"x", 1, False, b"", 99.0)])
def test_a_block_of_the_store_is_sent_as_it_was(message: Message) -> None:
    station = Station()
    station.publish(message, 1.0)
    station.publish(message, 1.0)
    station.send(1.0)
    station.commit()
    again = Station()
    for record in station.disk.values():
        _, block = restored_block(record, -5.0, 2.0)
        again.outbox.restore(block, 7)
    before, after = Station(), again
    before.publish(message, 1.0)
    before.publish(message, 1.0)
    for one in (before, after):
        one.sender.connect("other:1", 3.0)
        one.sender.hello_reply(one.sender.attempt, True, 0, 3.0)
    blocks = [
        [(b"".join(block.encode(3.0 - shift)), block.events, block.serial) for block in one.sender.take_blocks(3.0)]
        for one, shift in ((before, 0.0), (after, -5.0))
    ]
    assert blocks[0] == blocks[1]


def test_dropped_messages_are_counted_and_leave_the_store() -> None:
    station = Station(bytes_max=65_536)
    large = Message(b"a", bytes(20_000), 1, False)
    for number in range(10):
        station.publish(large, float(number))
        station.send(float(number))
        station.commit()
    assert station.counters.dropped[DropReason.OUTBOX_FULL] == 10 - len(station.disk)
    assert 0 < len(station.disk) < 4
    station.sender.forget()
    station.commit()
    assert station.disk == {}


def test_what_is_promised_before_a_block_of_qos_2_is_stored_with_it() -> None:
    """A publisher sends again after a crash what was not acknowledged: that would come behind the block that is stored."""
    station = Station()
    station.stream()
    for number in (1.0, 1.01):
        station.publish(QOS0, number)
        station.publish(QOS1, number)
        station.send(number)
    assert not station.journal.changes
    station.publish(Message(b"a", b"2", 2, False), 1.02)
    station.commit()
    assert len(station.disk) == 3
    serials = [str(record[2]) for record in station.disk.values()]
    assert serials == sorted(serials)
    station.send(1.02)
    assert station.promises.is_empty()
    assert station.answer(1.03) is False
    station.commit()
    assert station.disk == {}


def test_each_block_of_qos_2_leaves_when_it_is_stored() -> None:
    """The second one is added while the first one, which is stored by then, waits for the end of the turn."""
    station = Station()
    station.stream()
    exact = Message(b"a", b"2", 2, False)
    station.publish(exact, 1.0)
    station.send(1.0)
    station.commit()
    station.publish(exact, 1.01)
    station.promises.turn_ended(1.01)
    for at in (1.01, 1.02):
        assert station.sender.outlets.take_ready() == [station.sender]
        station.send(at)
        assert len(station.outbox.on_way) == 1
        station.answer(at)
        station.commit()
        station.promises.turn_ended(at)
    assert station.disk == {}


def test_a_dropped_message_is_not_promised() -> None:
    station = Station(bytes_max=65_536)
    station.publish(Message(b"a", bytes(70_000), 1, False), 0.0)
    assert not station.is_waiting()
    assert station.counters.dropped[DropReason.TOO_LARGE] == 1
    assert not station.journal.kept
    station.publish(QOS1, 0.0)
    assert station.is_waiting()


def test_a_node_that_stood_still_holds_publishers_no_longer_than_others() -> None:
    station = Station()
    station.stream()
    station.publish(QOS1, 1.0)
    station.send(1.0)
    station.answer(61.0)
    station.publish(QOS1, 61.0)
    station.send(61.0)
    station.promises.handle_timeout(61.0 + WAIT_SECONDS_MAX)
    assert station.is_behind()


def test_serial_numbers_rise_over_starts() -> None:
    first, second = Serials(1), Serials(2)
    assert first.next() < first.next() < second.next()


def test_interest_is_told_before_its_answer() -> None:
    station = Station()
    station.stream()
    station.broker.commits.next_packet()
    station.sender.interest_changed(b"", b"a/#", True)
    station.send(1.0)
    station.broker.commits.require_promises()
    assert station.is_waiting()
    assert station.answer(1.001)
    assert not station.is_waiting()


def test_interest_that_was_taken_back_before_it_was_told_is_not_waited_for() -> None:
    station = Station()
    station.stream()
    station.sender.interest_changed(b"", b"a/#", True)
    station.sender.interest_changed(b"", b"a/#", False)
    station.send(1.0)
    assert station.promises.settle() or station.promises.is_empty()
    assert not station.sender.is_behind
