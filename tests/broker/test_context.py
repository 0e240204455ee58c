"""Reasons to hold a publisher: it reads again when the last one is gone."""

from __future__ import annotations

import random
from dataclasses import replace

from broker.config.settings import MqttSettings
from broker.context import Context
from broker.hooks import Peer
from broker.publisher import Publisher
from broker.slices import SLICE_STEPS


def context() -> Context:
    return Context(replace(MqttSettings(), publisher_hold_max=2.0), random.Random(1), 0.0)


def test_reading_changes_with_the_first_and_the_last_reason() -> None:
    made = context()
    publisher = Publisher(None)
    for _ in range(3):
        made.hold(publisher)
    assert (publisher.held, made.reading_changes) == (3, [publisher])
    for _ in range(3):
        made.release(publisher)
    assert (publisher.held, made.reading_changes) == (0, [publisher] * 2)
    assert made.counters.publishers_held == 1


def test_a_rest_lasts_until_a_later_turn_and_is_no_hold() -> None:
    made = context()
    first, second = Publisher(None), Publisher(None)
    made.rest(first)
    made.rest(second)
    assert (first.held, second.held, made.counters.publishers_held) == (1, 1, 0)
    made.slices.go_on(1.0)
    assert (first.held, second.held) == (0, 1), "each has a slice of its own"
    assert made.slices.steps == SLICE_STEPS
    made.slices.go_on(1.0)
    assert second.held == 0
    assert not made.slices.has_work()


def test_publishers_are_held_once_for_a_backlog() -> None:
    made = context()
    peer = Peer("n2", True)
    first, second, late = Publisher(None), Publisher(None), Publisher(None)
    for publisher in (first, first, second):
        made.hold_for_peer(peer, publisher, 10.0)
    assert (first.held, second.held) == (1, 1)
    made.hold_for_peer(peer, late, 12.0)
    assert late.held == 0, "publisher_hold_max has passed"
