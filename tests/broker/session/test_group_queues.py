"""Shared groups with a queue: what waits without a member, who gets it, what comes back, and the queue's bounds."""

from __future__ import annotations

import pytest

from broker.codec.packets import PubAck, Publish
from broker.codec.properties import RECEIVE_MAXIMUM
from broker.counters import DROP_EXPIRED, DROP_QUEUE_FULL, DROP_SESSION_ENDED
from broker.session.draining import free_credit
from broker.session.group_queues import GroupQueues, queue_id
from broker.session.session import Session
from broker_world import Client, World

JOBS = b"$share/workers/jobs/#"


class Declared:
    """A broker with the queue of one group."""

    def __init__(self, messages_max: int = 100, bytes_max: int = 10**6, seconds_max: float = 0.0) -> None:
        self.world = World()
        self.queues = GroupQueues(self.world.broker)
        self.session = self.declare(messages_max, bytes_max, seconds_max)

    def declare(self, messages_max: int = 100, bytes_max: int = 10**6, seconds_max: float = 0.0) -> Session:
        return self.queues.declare(b"workers", b"jobs/#", messages_max, bytes_max, seconds_max, self.world.now)

    def publish(self, *payloads: bytes, qos: int = 1) -> None:
        for payload in payloads:
            self.world.publish(b"jobs/a", payload, qos=qos)
        self.world.check()

    def worker(self, name: str, window: int = 10, auto: bool = True, expiry: int = 0) -> Client:
        client = self.world.connect(name, auto=auto, expiry=expiry, properties={RECEIVE_MAXIMUM: window})
        client.subscribe(JOBS)
        self.world.check()
        return client

    def waiting(self) -> list[bytes]:
        return [outgoing.message.payload for outgoing in self.session.queued() if outgoing.message is not None]


@pytest.fixture
def declared() -> Declared:
    return Declared()


def payloads(client: Client) -> list[bytes]:
    return [packet.payload for packet in client.packets if isinstance(packet, Publish)]


def test_jobs_wait_for_the_first_member(declared: Declared) -> None:
    declared.publish(b"1", b"2", b"3")
    assert declared.waiting() == [b"1", b"2", b"3"]
    assert declared.world.broker.local_interest() == [], "other nodes keep their jobs"
    worker = declared.worker("w")
    assert payloads(worker) == [b"1", b"2", b"3"]
    assert declared.waiting() == []
    declared.publish(b"4")
    assert payloads(worker)[3:] == [b"4"]
    assert declared.world.broker.local_interest() == [(b"workers", b"jobs/#")]


def test_a_member_gets_as_many_jobs_as_can_be_sent(declared: Declared) -> None:
    slow = declared.worker("slow", window=2, auto=False)
    declared.publish(*[b"%d" % number for number in range(6)])
    assert payloads(slow) == [b"0", b"1"]
    fast = declared.worker("fast")
    assert payloads(fast) == [b"2", b"3", b"4", b"5"]
    assert declared.waiting() == []


def test_an_acknowledgement_makes_room_for_the_next_job(declared: Declared) -> None:
    worker = declared.worker("w", window=2, auto=False)
    declared.publish(b"1", b"2", b"3", b"4")
    first = next(packet for packet in worker.packets if isinstance(packet, Publish))
    worker.send(PubAck(first.packet_id))
    assert payloads(worker) == [b"1", b"2", b"3"]
    assert declared.waiting() == [b"4"]
    declared.world.check()


def test_jobs_that_were_not_acknowledged_go_back(declared: Declared) -> None:
    worker = declared.worker("w", auto=False, expiry=1_000)
    declared.publish(b"1", b"2")
    worker.cut()
    declared.world.check()
    assert declared.waiting() == [b"1", b"2"]
    other = declared.worker("other")
    assert payloads(other) == [b"1", b"2"]


@pytest.mark.parametrize("expiry", [0, 100])
def test_jobs_of_a_group_that_the_member_has_left_go_back(declared: Declared, expiry: int) -> None:
    first = declared.worker("first", auto=False, expiry=expiry)
    declared.publish(b"1", b"2")
    first.unsubscribe(JOBS)
    first.send(PubAck(1))
    first.cut()
    assert declared.waiting() == [b"2"]
    assert payloads(declared.worker("second")) == [b"2"]
    declared.world.check()


def test_a_member_that_leaves_without_jobs_leaves_nothing(declared: Declared) -> None:
    first = declared.worker("first", auto=False)
    declared.publish(b"1")
    first.unsubscribe(JOBS)
    assert declared.world.broker.sessions["first"].left_groups == {JOBS: None}
    first.send(PubAck(1))
    first.subscribe(b"a")
    first.unsubscribe(b"a")
    assert declared.world.broker.sessions["first"].left_groups is None


def test_all_jobs_of_a_member_with_a_large_window_go_back() -> None:
    declared = Declared(messages_max=1_000)
    worker = declared.worker("w", window=400, auto=False)
    declared.publish(*[b"%d" % number for number in range(100)])
    worker.publish(b"jobs/own", b"x", qos=1)
    for number in range(200):
        worker.publish(b"jobs/b", b"%d" % number, qos=1)
    worker.cut()
    declared.world.check()
    assert len(declared.waiting()) == 301


def test_the_room_of_a_group_is_that_of_its_members(declared: Declared) -> None:
    group = next(iter(declared.session.queued_groups or {}))
    assert free_credit(group) == 0
    slow = declared.worker("slow", window=3, auto=False)
    declared.worker("other", window=2)
    assert free_credit(group) == 5
    declared.publish(b"1", b"2", b"3")
    assert free_credit(group) == 5 - len(payloads(slow))
    slow.cut()
    assert free_credit(group) == 2


def test_a_member_that_comes_back_gets_the_waiting_jobs(declared: Declared) -> None:
    worker = declared.worker("w", expiry=1_000)
    worker.cut()
    declared.publish(b"1")
    assert declared.waiting() == [b"1"]
    again = declared.world.connect("w", clean_start=False, expiry=1_000)
    assert payloads(again) == [b"1"]
    declared.world.check()


def test_a_full_queue_drops_the_oldest() -> None:
    declared = Declared(messages_max=2)
    declared.publish(b"1", b"2", b"3")
    assert declared.waiting() == [b"2", b"3"]
    assert declared.world.drops() == {DROP_QUEUE_FULL: 1}


def test_jobs_wait_as_long_as_the_queue_says() -> None:
    declared = Declared(seconds_max=10.0)
    declared.publish(b"1")
    declared.world.advance(6)
    declared.publish(b"2")
    declared.world.advance(6)
    worker = declared.worker("w")
    assert payloads(worker) == [b"2"]
    assert declared.world.drops() == {DROP_EXPIRED: 1}
    declared.world.check()


def test_limits_stay_when_settings_change_and_are_declared_anew() -> None:
    declared = Declared(messages_max=2)
    declared.world.broker.apply_settings(declared.world.broker.settings)
    assert declared.session.queue_max == 2
    assert declared.declare(messages_max=3) is declared.session
    assert declared.session.queue_max == 3
    assert declared.queues.declared() == [(b"workers", b"jobs/#")]


def test_a_group_without_its_queue_is_an_ordinary_one(declared: Declared) -> None:
    declared.publish(b"1")
    worker = declared.world.connect("w", auto=False, properties={RECEIVE_MAXIMUM: 1})
    worker.subscribe(b"$share/workers/other")
    declared.queues.remove(b"workers", b"jobs/#", declared.world.now)
    assert declared.queues.declared() == []
    assert declared.world.drops() == {DROP_SESSION_ENDED: 1}
    worker.subscribe(JOBS)
    declared.publish(b"2", b"3")
    assert declared.world.broker.sessions["w"].queue_length() == 1
    declared.queues.remove(b"workers", b"jobs/#", declared.world.now)


def test_members_that_were_there_before_the_queue_use_it() -> None:
    declared = Declared()
    declared.queues.remove(b"workers", b"jobs/#", declared.world.now)
    worker = declared.worker("w", window=1, auto=False)
    declared.session = declared.declare()
    declared.publish(b"1", b"2")
    assert (payloads(worker), declared.waiting()) == ([b"1"], [b"2"])
    worker.unsubscribe(JOBS)
    declared.world.check()
    assert declared.world.broker.local_interest() == []


def test_no_client_takes_the_identifier_of_a_queue(declared: Declared) -> None:
    client = declared.world.open()
    connack = client.connect(queue_id(b"workers", b"jobs/#"))
    assert connack is not None
    assert connack.reason_code == 0x85
    assert client.closed
