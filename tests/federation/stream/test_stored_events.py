"""Acknowledgements to other nodes wait for the store."""

from __future__ import annotations

import random

import pytest

from broker.broker import Broker
from broker.config.settings import MqttSettings
from broker.store.journal import Journal
from federation.stream.stored_events import StoredEvents


def durable_broker() -> tuple[Broker, Journal]:
    broker = Broker(MqttSettings(), random.Random(1), 0.0)
    journal = Journal()
    broker.set_journal(journal)
    return broker, journal


def written(broker: Broker, journal: Journal) -> None:
    commit = journal.commit
    journal.take()
    broker.commits.finish(commit)


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_event_without_a_store_is_stored_at_once(is_whole: bool) -> None:
    events = StoredEvents(Broker(MqttSettings(), random.Random(1), 0.0))
    assert events.newest() == -1
    events.done(4, is_whole)
    assert events.newest() == 4


def test_an_event_is_stored_with_the_commit_that_holds_its_changes() -> None:
    broker, journal = durable_broker()
    events = StoredEvents(broker)
    events.done(1, True)
    assert events.newest() == 1, "nothing durable has changed"
    journal.add("x")
    events.done(2, True)
    events.done(3, True)
    assert events.newest() == 1
    written(broker, journal)
    assert events.newest() == 3


def test_acknowledgements_go_on_while_more_and_more_events_come() -> None:
    broker, journal = durable_broker()
    events = StoredEvents(broker)
    seen = []
    for event_id in range(10):
        journal.add("x")
        events.done(event_id, True)
        if event_id % 3 == 2:
            written(broker, journal)
        journal.add("y")
        assert events.newest() <= event_id
        seen.append(events.newest())
    assert seen == [-1, -1, 2, 2, 2, 5, 5, 5, 8, 8]


def test_an_event_of_which_a_part_waits_is_not_stored() -> None:
    broker, journal = durable_broker()
    events = StoredEvents(broker)
    events.done(1, False)
    assert events.newest() == -1
    journal.add("x")
    events.done(1, True)
    written(broker, journal)
    assert events.newest() == 1
    events.clear()
    assert events.newest() == -1
