"""Metrics of links, and the messages below $SYS that tell of another status."""

from __future__ import annotations

import json
from dataclasses import replace

from broker.message import Message
from broker.metrics.metric import Kind
from federation.links.reports import LinkEvents, link_metrics
from federation.links.status import LinkState, LinkStatus

EAST = LinkStatus("0000000e", "topics", "east", LinkState.STARTING, 1.0, 1.0, node="a", epoch=7)
WEST = replace(EAST, link_id="0000000f", upstream="west", state=LinkState.RUNNING, received=3, dropped={"surplus": 2})


def told(messages: list[Message]) -> list[tuple[str, str, str, str, str]]:
    rows = []
    for message in messages:
        fields = json.loads(message.payload)
        assert (message.qos, message.retain) == (0, False)
        rows.append((message.topic.decode(), fields["event"], fields["before"], fields["status"], fields["error"]))
    return rows


def test_each_change_of_a_status_is_told_once() -> None:
    events = LinkEvents()
    topic = "$SYS/broker/federation-links/0000000e"
    assert told(events.changes([EAST])) == [(topic, "federation_link_status", "", "starting", "")]
    assert events.changes([replace(EAST, received=5, changed_at=9.0)]) == []
    failed = replace(EAST, state=LinkState.ERROR, last_error="refused")
    assert told(events.changes([failed])) == [(topic, "federation_link_status", "starting", "error", "refused")]
    assert told(events.changes([])) == [(topic, "federation_link_removed", "error", "error", "refused")]
    assert events.changes([]) == []


def test_another_epoch_is_told() -> None:
    events = LinkEvents()
    events.changes([EAST])
    (message,) = events.changes([replace(EAST, epoch=8)])
    assert json.loads(message.payload)["epoch"] == 8


def test_metrics_have_each_link_and_each_state() -> None:
    found = {metric.name: metric for metric in link_metrics([EAST, WEST], 11.0)}
    assert set(found["gmqtt_links"].samples) == {(state.value,) for state in LinkState}
    assert found["gmqtt_links"].samples[("starting",)] == 1
    assert found["gmqtt_links"].samples[("error",)] == 0
    west = ("0000000f", "west", "topics")
    assert found["gmqtt_link_running"].samples == {("0000000e", "east", "topics"): 0.0, west: 1.0}
    assert found["gmqtt_link_received_total"].samples[west] == 3
    assert found["gmqtt_link_dropped_total"].samples == {(*west, "surplus"): 2}
    assert found["gmqtt_link_status_seconds"].samples[west] == 10
    assert found["gmqtt_link_round_trip_seconds"].samples == {}
    assert found["gmqtt_link_lag_seconds"].samples == {}
    assert found["gmqtt_link_oldest_waiting_seconds"].samples == {}
    pushing = replace(WEST, lag=0.5, waiting=2, oldest_waiting=1.5)
    found = {metric.name: metric for metric in link_metrics([EAST, pushing], 11.0)}
    assert found["gmqtt_link_lag_seconds"].samples == {west: 0.5}
    assert found["gmqtt_link_waiting"].samples == {west: 2}
    assert found["gmqtt_link_oldest_waiting_seconds"].samples == {west: 1.5}


def test_counters_end_as_prometheus_wants() -> None:
    for metric in link_metrics([WEST], 1.0):
        assert metric.name.endswith("_total") is (metric.kind is Kind.COUNTER)
        assert all(len(labels) == len(metric.labels) for labels in metric.samples)
