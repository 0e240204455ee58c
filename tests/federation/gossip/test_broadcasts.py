"""The broadcast queue."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.broadcasts import QUEUE_LENGTH_MAX, BroadcastQueue, retransmit_limit
from work import executed_lines


@pytest.mark.parametrize(("count", "limit"), [(1, 4), (3, 4), (9, 4), (10, 8), (99, 8), (100, 12)])
def test_retransmit_limit(count: int, limit: int) -> None:
    assert retransmit_limit(4, count) == limit


def test_broadcasts_leave_least_sent_first_then_longest_then_newest() -> None:
    queue = BroadcastQueue()
    queue.queue(b"old")
    queue.queue(b"longer")
    queue.queue(b"new")
    assert queue.take(2, 1400, 127, 4) == [b"longer", b"new", b"old"]
    queue.queue(b"x")
    assert queue.take(2, 3, 127, 4) == [b"x"]
    assert queue.take(2, 5, 127, 4) == [b"new"]
    assert queue.take(2, 2, 127, 4) == []
    assert queue.take(2, 1400, 1, 4) == [b"longer"]


def test_a_named_broadcast_replaces_the_older_one() -> None:
    queue = BroadcastQueue()
    first = queue.queue(b"alive", "node")
    queue.take(2, 1400, 127, 4)
    second = queue.queue(b"dead", "node")
    assert first.finished
    assert not second.finished
    assert queue.take(2, 1400, 127, 4) == [b"dead"]
    assert len(queue) == 1


@given(st.lists(st.binary(max_size=30), max_size=40), st.integers(1, 5), st.integers(10, 100))
def test_each_broadcast_leaves_as_often_as_the_limit(messages: list[bytes], limit: int, budget: int) -> None:
    queue = BroadcastQueue()
    broadcasts = [queue.queue(message) for message in messages]
    sent: Counter[bytes] = Counter()
    for _ in range(len(messages) * limit + 1):
        taken = queue.take(2, budget, 127, limit)
        assert sum(len(message) + 2 for message in taken) <= budget
        sent.update(taken)
    expected: Counter[bytes] = Counter()
    for message in messages:
        if len(message) + 2 <= budget:
            expected[message] += limit
    assert sent == expected
    for broadcast in broadcasts:
        assert broadcast.finished == (len(broadcast.message) + 2 <= budget)


def test_a_full_queue_drops_the_most_sent() -> None:
    queue = BroadcastQueue()
    sent = queue.queue(b"sent")
    queue.take(2, 1400, 1, 4)
    for number in range(QUEUE_LENGTH_MAX - 1):
        queue.queue(number.to_bytes(3, "big"))
    assert [sent.finished] == [False]
    queue.queue(b"one more")
    assert sent.finished
    assert queue.dropped == 1
    assert len(queue) == QUEUE_LENGTH_MAX


def test_a_message_for_a_full_queue_costs_the_same_however_long_the_queue_is() -> None:
    queue = BroadcastQueue()
    for number in range(QUEUE_LENGTH_MAX):
        queue.queue(number.to_bytes(3, "big"))
    assert executed_lines(lambda: queue.queue(b"one more")) < 100
    assert queue.dropped == 1
