"""The queue of one session: order, bounds, and which messages a full queue drops."""

from __future__ import annotations

import random

import pytest

from broker.message import ENTRY_BYTES, NEVER, Message
from broker.session.outgoing import Outgoing
from broker.session.queue import EXPIRED_LOOK_MAX, MessageQueue
from work import executed_lines

PLENTY = 2**40


def outgoing(payload: bytes, qos: int = 1, expires_at: float = NEVER) -> Outgoing:
    return Outgoing(Message(b"t", payload, qos, False), qos, False, (), expires_at)


def payloads(queue: MessageQueue) -> list[bytes]:
    return [entry.message.payload for entry in queue.messages() if entry.message is not None]


def filled(words: str) -> MessageQueue:
    """Of QoS and payload; `!` expires at 1.0."""
    queue = MessageQueue()
    for word in words.split():
        queue.append(outgoing(word[1:2].encode(), int(word[0]), 1.0 if word.endswith("!") else NEVER))
    return queue


def test_messages_of_each_qos_leave_in_the_order_of_arrival() -> None:
    queue = filled("1a 0b 2c 0d 0e 1f")
    assert payloads(queue) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    sent = []
    while (first := queue.first()) is not None and first.message is not None:
        sent.append(first.message.payload)
        queue.remove_first()
    assert sent == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert (queue.count, queue.bytes) == (0, 0)
    queue.remove_first()
    assert queue.first() is None


@pytest.mark.parametrize(
    ("words", "left", "reasons"),
    [
        ("1a 1b", "b n", [("queue_full", 1)]),
        ("1a 0b", "a n", [("queue_full", 0)]),
        ("0a 0b", "b n", [("queue_full", 0)]),
        ("0a 1b!", "a n", [("expired", 1)]),
        ("0a! 1b!", "b n", [("expired", 0)]),
        ("1a 0b!", "a n", [("expired", 0)]),
        ("1a 2b! 0c", "a n", [("expired", 2), ("queue_full", 0)]),
        ("1a 1b 0c 0d! 1e!", "b n", [("expired", 0), ("expired", 1), ("queue_full", 0), ("queue_full", 1)]),
    ],
)
def test_a_full_queue_drops_expired_messages_then_qos_0_then_the_oldest(
    words: str, left: str, reasons: list[tuple[str, int]]
) -> None:
    queue = filled(words)
    assert queue.put(outgoing(b"n"), 2, PLENTY, 2.0) == reasons
    assert b" ".join(payloads(queue)) == left.encode()


def test_bytes_are_bounded_by_the_same_rule() -> None:
    one = ENTRY_BYTES + 2
    queue = filled("1a 0b 1c 1d")
    assert queue.bytes == 4 * one
    assert queue.put(outgoing(b"n"), 100, 4 * one, 0.0) == [("queue_bytes", 0)]
    assert payloads(queue) == [b"a", b"c", b"d", b"n"]
    assert queue.put(outgoing(bytes(one + 1)), 100, 4 * one, 0.0) == [("queue_bytes", 1)] * 2
    assert payloads(queue)[:2] == [b"d", b"n"]


def test_a_message_above_the_bound_costs_no_other() -> None:
    queue = filled("1a")
    assert queue.put(outgoing(bytes(1000)), 100, 1000, 0.0) == [("queue_bytes", 1)]
    assert payloads(queue) == [b"a"]


@pytest.mark.parametrize("room", [0, -3])
def test_a_bound_that_in_flight_messages_take_leaves_no_room(room: int) -> None:
    """In-flight messages take the whole bound, which new settings can lower below their number."""
    assert filled("").put(outgoing(b"n"), room, PLENTY, 0.0) == [("queue_full", 1)]
    queue = filled("1a 0b")
    assert queue.put(outgoing(b"n"), room, PLENTY, 0.0) == [("queue_full", qos) for qos in (0, 1, 1)]
    assert queue.count == 0


def test_half_and_a_quarter() -> None:
    queue = MessageQueue()
    assert not queue.is_past_half(0, 0), "an empty queue is behind nothing"
    assert queue.is_drained(0, 0)
    found = []
    for _ in range(8):
        queue.append(outgoing(b"x"))
        found.append((queue.is_drained(8, PLENTY), queue.is_past_half(8, PLENTY)))
    assert found == [(True, False)] * 2 + [(False, False)] + [(False, True)] * 5
    assert queue.is_past_half(1000, queue.bytes * 2)
    assert not queue.is_past_half(1000, queue.bytes * 2 + 1)
    assert queue.is_drained(1000, queue.bytes * 4)
    assert not queue.is_drained(1000, queue.bytes * 4 - 1)


def test_messages_are_taken_out_by_number() -> None:
    queue = filled("1a 0b 2c 0d")
    queue.remove({entry.number for entry in queue.messages() if entry.qos})
    assert payloads(queue) == [b"b", b"d"]
    queue.append(outgoing(b"e"))
    assert payloads(queue) == [b"b", b"d", b"e"]
    assert queue.bytes == 3 * (ENTRY_BYTES + 2)
    queue.clear()
    assert (queue.count, queue.bytes, queue.first()) == (0, 0, None)


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_calls(seed: int) -> None:
    """Against a plain list that is searched."""
    rng = random.Random(seed)
    queue = MessageQueue()
    expected: list[Outgoing] = []
    now = 0.0
    for _ in range(400):
        now += rng.random()
        if rng.random() < 0.3:
            queue.remove_first()
            del expected[:1]
        else:
            new = outgoing(bytes(rng.randrange(50)), rng.randrange(3), rng.choice([NEVER, now + rng.random() * 20]))
            count_max = rng.choice([8, 8, 8, 5])
            reasons = queue.put(new, count_max, PLENTY, now) or []
            wanted = []
            while len(expected) >= count_max:
                by_qos = sorted(expected, key=lambda entry: entry.qos > 0)
                expired = next((entry for entry in by_qos if entry.expires_at <= now), None)
                victim = expired or (by_qos[0] if by_qos[0].qos == 0 else expected[0])
                wanted.append(("queue_full" if expired is None else "expired", victim.qos))
                expected.remove(victim)
            expected.append(new)
            assert reasons == wanted
        assert queue.messages() == expected
        assert queue.count == len(expected)
        assert queue.first() is (expected[0] if expected else None)


def lines_of_a_put(length: int) -> int:
    """In a queue that is full, and whose only QoS 0 message is the newest one."""
    queue = MessageQueue()
    for _ in range(length):
        queue.append(outgoing(b"x"))
    queue.append(outgoing(b"x", 0))
    new = outgoing(b"n")
    lines = executed_lines(lambda: queue.put(new, length + 1, PLENTY, 0.0))
    assert all(entry.qos for entry in queue.messages())
    return lines


def test_the_search_for_an_expired_message_is_bounded() -> None:
    for ahead, reason in ((EXPIRED_LOOK_MAX - 1, "expired"), (EXPIRED_LOOK_MAX, "queue_full")):
        queue = filled("1a " * ahead + "1b! 1c")
        assert queue.put(outgoing(b"n"), queue.count, PLENTY, 2.0) == [(reason, 1)]


@pytest.mark.interpreted
def test_a_full_queue_is_not_searched() -> None:
    assert lines_of_a_put(100) == lines_of_a_put(10_000) > 10
