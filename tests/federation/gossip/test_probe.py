"""Probes and relays."""

from __future__ import annotations

import pytest

from federation.gossip.members import NodeFacts
from federation.gossip.messages import OUR_VERSIONS
from federation.gossip.probe import RELAYS_MAX, Probe, Relay, Relays


def relay(number: int, deadline: float) -> Relay:
    return Relay(("10.0.0.9", 8902), number, True, deadline)


def test_relays_expire_in_the_order_of_their_deadlines() -> None:
    relays = Relays()
    assert relays.next_timeout() is None
    for number in range(4):
        relays.add(number, relay(100 + number, float(number)))
    taken = relays.take(0)
    assert taken is not None
    assert taken.sequence == 100
    assert relays.take(0) is None
    assert relays.next_timeout() == 1.0
    assert relays.take_expired(0.9) == []
    assert [expired.sequence for expired in relays.take_expired(2.0)] == [101, 102]
    assert relays.next_timeout() == 3.0


def test_relays_are_bounded() -> None:
    relays = Relays()
    for number in range(RELAYS_MAX):
        assert not relays.is_full()
        relays.add(number, relay(number, 1.0))
    assert relays.is_full()
    assert len(relays.take_expired(1.0)) == RELAYS_MAX
    assert not relays.is_full()


@pytest.mark.parametrize(("expected", "received", "penalty"), [(0, 0, 1), (3, 3, 0), (3, 1, 2), (1, 2, 0)])
def test_relays_that_sent_no_nack_count_against_this_node(expected: int, received: int, penalty: int) -> None:
    probe = Probe(1, NodeFacts("n", bytes(4), 1, b"", OUR_VERSIONS), 1, 0.0, 0.5, 1.0)
    probe.nacks_expected, probe.nacks = expected, received
    assert probe.awareness_penalty() == penalty


def test_a_probe_waits_for_the_direct_ack_and_then_for_its_end() -> None:
    probe = Probe(1, NodeFacts("n", bytes(4), 1, b"", OUR_VERSIONS), 1, 0.0, 0.5, 1.0)
    assert probe.next_timeout() == 0.5
    probe.indirect = True
    assert probe.next_timeout() == 1.0
