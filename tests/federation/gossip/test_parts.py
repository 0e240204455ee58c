"""The small parts of gossip: suspicion, awareness, broadcast queue, versions, the member table."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.awareness import Awareness
from federation.gossip.broadcasts import QUEUE_LENGTH_MAX, BroadcastQueue, retransmit_limit
from federation.gossip.members import STATE_ALIVE, STATE_DEAD, STATE_LEFT, FactsPool, MemberTable, Node
from federation.gossip.messages import OUR_VERSIONS
from federation.gossip.push_pull import VersionRange, push_pull_scale
from federation.gossip.suspicion import Suspicion, confirmations_wanted, suspicion_timeout


@pytest.mark.parametrize(("count", "timeout"), [(1, 4.0), (3, 4.0), (10, 4.0), (100, 8.0), (50, 6.792), (1000, 12.0)])
def test_suspicion_timeout_grows_with_the_logarithm(count: int, timeout: float) -> None:
    assert suspicion_timeout(4, count, 1.0) == pytest.approx(timeout)  # LAN; wire-gossip 6.3


@pytest.mark.parametrize(("count", "wanted"), [(2, 0), (3, 0), (4, 2), (5, 2), (100, 2)])
def test_confirmations_wanted(count: int, wanted: int) -> None:
    assert confirmations_wanted(4, count) == wanted


def test_confirmations_shorten_a_suspicion() -> None:
    suspicion = Suspicion(1, "a", 2, 4.0, 24.0, 100.0)
    assert suspicion.deadline == 124.0
    assert not suspicion.confirm("a")
    assert suspicion.confirm("b")
    assert suspicion.deadline == pytest.approx(100 + 11.381)
    assert suspicion.confirm("c")
    assert suspicion.deadline == 104.0
    assert not suspicion.confirm("d")


def test_suspicion_without_wanted_confirmations_is_short() -> None:
    suspicion = Suspicion(1, "a", 0, 4.0, 24.0, 0.0)
    assert suspicion.deadline == 4.0
    assert not suspicion.confirm("b")


@given(st.lists(st.integers(-3, 3)))
def test_awareness_stays_in_its_range(deltas: list[int]) -> None:
    awareness = Awareness(8)
    for delta in deltas:
        awareness.adjust(delta)
        assert 0 <= awareness.score <= 7
        assert awareness.scale(2.0) == 2.0 * (awareness.score + 1)


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


@pytest.mark.parametrize(("count", "factor"), [(1, 1), (32, 1), (33, 2), (64, 2), (65, 3), (100, 3), (1000, 6)])
def test_push_pull_scale(count: int, factor: int) -> None:
    assert push_pull_scale(count) == factor


AGENT = bytes((1, 5, 2, 2, 5, 5))


@pytest.mark.parametrize(
    ("offered", "accepted"),
    [  # wire-gossip 2.1, as real agents answered: a cluster of DCur 4 and DCur 5
        ((1, 5, 2, 2, 5, 5), True),
        ((1, 5, 2, 2, 5, 4), True),
        ((2, 5, 2, 2, 5, 4), True),
        ((1, 2, 2, 2, 5, 4), True),
        ((1, 5, 2, 2, 4, 4), False),
        ((1, 5, 2, 0, 0, 0), False),
        ((3, 5, 3, 2, 5, 4), False),
        ((1, 5, 2, 5, 5, 5), False),
        ((), False),
    ],
)
def test_versions(offered: tuple[int, ...], accepted: bool) -> None:
    versions = VersionRange()
    versions.add("offered", bytes(offered), True)
    versions.add("a", OUR_VERSIONS, True)
    versions.add("b", AGENT, True)
    assert (versions.refused() == "") == accepted


def table_of(states: list[int], rng: Random) -> MemberTable:
    table = MemberTable("own", rng)
    pool = FactsPool()
    own = Node(pool.get("own", bytes(4), 1, b"", OUR_VERSIONS), 0.0)
    own.state = STATE_ALIVE
    table.add(own)
    for number, state in enumerate(states):
        node = Node(pool.get(f"n{number}", bytes(4), 1, b"", OUR_VERSIONS), 0.0)
        node.state = state
        table.add(node)
    return table


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 1000))
def test_a_round_of_probes_visits_each_living_member_once(states: list[int], seed: int) -> None:
    table = table_of(states, Random(seed))
    living = sorted(f"n{number}" for number, state in enumerate(states) if state <= 1)
    table.next_to_probe(0.0, 30.0)  # the first one starts somewhere in the unshuffled round
    if not living:
        assert table.next_to_probe(0.0, 30.0) is None
        return
    seen = []
    for _ in range(3 * len(living)):
        node = table.next_to_probe(0.0, 30.0)
        assert node is not None
        seen.append(node.facts.name)
    for name in living:
        assert 2 <= seen.count(name) <= 4


def test_the_dead_and_left_are_removed_after_their_time() -> None:
    table = table_of([STATE_ALIVE, STATE_DEAD, STATE_LEFT], Random(1))
    for _ in range(3):
        table.next_to_probe(10.0, 30.0)
    assert len(table) == 4
    for _ in range(3):
        table.next_to_probe(31.0, 30.0)
    assert sorted(table.nodes) == ["n0", "own"]


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 5), st.integers(0, 1000))
def test_random_choices_are_different_and_fit(states: list[int], count: int, seed: int) -> None:
    table = table_of(states, Random(seed))
    chosen = [node.facts.name for node in table.random_alive(count, "n0")]
    assert len(set(chosen)) == len(chosen) <= count
    assert all(name not in ("own", "n0") and table.nodes[name].state == STATE_ALIVE for name in chosen)
    to_gossip = table.random_to_gossip(count, 31.0, 30.0)
    assert all(node.state <= 1 and node.facts.name != "own" for node in to_gossip)
    if len(states) + 1 <= 3 * count:
        assert len(chosen) == min(count, sum(1 for state in states[1:] if state == STATE_ALIVE))
