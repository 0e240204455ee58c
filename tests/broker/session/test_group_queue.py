"""The queue of a shared group that takes no new message when it is full: who is told, and what stays."""

from __future__ import annotations

import pytest

from broker.codec.packets import PubAck, PubRec
from broker.codec.properties import RECEIVE_MAXIMUM
from broker.codec.reason_codes import NO_MATCHING_SUBSCRIBERS, QUOTA_EXCEEDED, SUCCESS
from broker.counters import DROP_EXPIRED, DROP_QUEUE_BYTES, DROP_QUEUE_FULL
from broker.message import Message
from broker.session.group_queues import GroupQueues
from broker_world import Client, World
from link_ends import remote_end

GROUP = b"$share/workers/jobs/#"


class Rejecting:
    """A broker with the queue of one group, for two messages, and a publisher."""

    def __init__(self, messages_max: int = 2, bytes_max: int = 10**6, version: int = 5) -> None:
        self.world = World()
        self.queues = GroupQueues(self.world.broker)
        self.declare(messages_max, bytes_max)
        self.publisher = self.world.connect("publisher", version)

    def declare(self, messages_max: int = 2, bytes_max: int = 10**6, rejects: bool = True) -> None:
        now = self.world.now
        self.session = self.queues.declare(b"workers", b"jobs/#", messages_max, bytes_max, 0.0, now, rejects)

    def publish(self, payload: bytes, qos: int = 1, topic: bytes = b"jobs/a", expiry: int = -1) -> int:
        """The reason code of the acknowledgement; -1 for QoS 0."""
        self.publisher.auto = False
        self.publisher.publish(topic, payload, qos, message_expiry_interval=expiry)
        self.world.check()
        answers = [packet for packet in self.publisher.take_packets() if isinstance(packet, PubAck | PubRec)]
        if not qos:
            assert answers == []
            return -1
        (answer,) = answers
        return answer.reason_code

    def worker(self, window: int = 10, auto: bool = True) -> Client:
        worker = self.world.connect("worker", auto=auto, properties={RECEIVE_MAXIMUM: window})
        worker.subscribe(GROUP)
        self.world.check()
        return worker

    def waiting(self) -> list[bytes]:
        return [outgoing.message.payload for outgoing in self.session.queued() if outgoing.message is not None]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_of_mqtt_5_is_told_that_the_queue_is_full(qos: int) -> None:
    rejecting = Rejecting()
    assert [rejecting.publish(payload, qos) for payload in (b"1", b"2", b"3", b"4")] == [
        SUCCESS,
        SUCCESS,
        QUOTA_EXCEEDED,
        QUOTA_EXCEEDED,
    ]
    assert rejecting.waiting() == [b"1", b"2"]
    assert rejecting.world.drops() == {DROP_QUEUE_FULL: 2}
    assert rejecting.session.messages_dropped == 2
    worker = rejecting.worker()
    assert worker.take_payloads() == [b"1", b"2"]
    assert rejecting.publish(b"5", qos) == SUCCESS


def test_a_rejected_packet_identifier_of_qos_2_is_free_again() -> None:
    rejecting = Rejecting(messages_max=1)
    rejecting.publish(b"1")
    publisher = rejecting.world.broker.sessions["publisher"]
    assert rejecting.publish(b"2", 2) == QUOTA_EXCEEDED
    assert publisher.unreleased_length() == 0
    rejecting.worker()
    assert rejecting.publish(b"3", 2) == SUCCESS
    assert publisher.unreleased_length() == 1


def test_all_other_subscribers_have_a_rejected_message() -> None:
    rejecting = Rejecting(messages_max=1)
    other = rejecting.world.connect("other")
    other.subscribe(b"jobs/#", b"$share/others/jobs/+")
    assert rejecting.publish(b"1") == SUCCESS
    assert rejecting.publish(b"2") == QUOTA_EXCEEDED
    assert other.take_payloads() == [b"1", b"1", b"2", b"2"]


@pytest.mark.parametrize(("version", "qos"), [(4, 1), (4, 2), (5, 0)])
def test_a_message_without_an_answer_that_could_tell_is_dropped(version: int, qos: int) -> None:
    rejecting = Rejecting(messages_max=1, version=version)
    assert [rejecting.publish(payload, qos) for payload in (b"1", b"2")] == [SUCCESS if qos else -1] * 2
    assert rejecting.waiting() == [b"1"]
    assert rejecting.world.drops() == {DROP_QUEUE_FULL: 1}


def test_a_link_of_another_broker_sends_no_message_again_for_a_full_group() -> None:
    """It takes 0x97 for room that it has to wait for, and all others have the message."""
    rejecting = Rejecting(messages_max=1)
    link = rejecting.world.open()
    link.connection.bridge_end = remote_end(rejecting.world.broker, b"paris", 1)
    link.connect("link")
    for payload in (b"1", b"2"):
        link.publish(b"jobs/a", payload, 1)
    codes = [packet.reason_code for packet in link.take_packets() if isinstance(packet, PubAck)]
    assert codes == [SUCCESS, SUCCESS]
    assert rejecting.world.drops() == {DROP_QUEUE_FULL: 1}


def test_jobs_that_come_back_stay_and_keep_new_ones_away() -> None:
    rejecting = Rejecting()
    worker = rejecting.worker(window=3, auto=False)
    for number in range(5):
        assert rejecting.publish(b"%d" % number) == SUCCESS
    assert rejecting.publish(b"5") == QUOTA_EXCEEDED
    worker.cut()
    rejecting.world.check()
    assert sorted(rejecting.waiting()) == [b"0", b"1", b"2", b"3", b"4"]
    assert rejecting.publish(b"6") == QUOTA_EXCEEDED
    assert rejecting.world.drops() == {DROP_QUEUE_FULL: 2}


def test_expired_jobs_make_room() -> None:
    rejecting = Rejecting()
    rejecting.publish(b"1", expiry=5)
    rejecting.publish(b"2")
    rejecting.world.advance(6)
    assert rejecting.publish(b"3") == SUCCESS
    assert rejecting.publish(b"4") == QUOTA_EXCEEDED
    assert rejecting.waiting() == [b"2", b"3"]
    assert rejecting.world.drops() == {DROP_EXPIRED: 1, DROP_QUEUE_FULL: 1}


def test_bytes_are_a_bound_too() -> None:
    rejecting = Rejecting(messages_max=100, bytes_max=1_000)
    assert rejecting.publish(b"x" * 2_000) == QUOTA_EXCEEDED
    assert rejecting.publish(b"x" * 500) == SUCCESS
    assert rejecting.publish(b"x" * 500) == QUOTA_EXCEEDED
    assert rejecting.world.drops() == {DROP_QUEUE_BYTES: 2}


def test_a_publisher_is_not_told_of_messages_of_others() -> None:
    """A job of another node: its publisher has its acknowledgement from there."""
    rejecting = Rejecting(messages_max=1)
    rejecting.publish(b"1")
    rejecting.world.broker.router.publish_remote(
        Message(b"jobs/a", b"2", 1, False), ((b"workers", b"jobs/#"),), None, rejecting.world.now
    )
    assert rejecting.waiting() == [b"1"]
    assert rejecting.publish(b"3", topic=b"other") == NO_MATCHING_SUBSCRIBERS
    rejecting.publish(b"4", qos=0)
    assert rejecting.publish(b"5", 2, topic=b"other") == NO_MATCHING_SUBSCRIBERS
    assert rejecting.world.drops() == {DROP_QUEUE_FULL: 2}


def test_a_queue_that_is_declared_anew_drops_its_oldest_message() -> None:
    rejecting = Rejecting()
    for payload in (b"1", b"2", b"3"):
        rejecting.publish(payload)
    rejecting.declare(rejects=False)
    assert rejecting.publish(b"4") == SUCCESS
    assert rejecting.waiting() == [b"2", b"4"]


def test_a_message_of_the_server_is_dropped_and_the_next_publisher_is_not_blamed() -> None:
    rejecting = Rejecting(messages_max=1)
    rejecting.publish(b"1")
    world = rejecting.world
    assert world.broker.publish(Message(b"other", b"x", 1, False), world.now) == NO_MATCHING_SUBSCRIBERS
    assert world.broker.publish(Message(b"jobs/a", b"2", 1, False), world.now) == QUOTA_EXCEEDED
    assert rejecting.publish(b"3", topic=b"other") == NO_MATCHING_SUBSCRIBERS
    assert rejecting.waiting() == [b"1"]
