"""Metrics of links, and the messages below $SYS that tell of another status."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from broker.alarm import ERROR, WARN
from broker.codec import properties as props
from broker.message import Message
from broker.metrics.metric import Kind
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.links.handshake import Note
from federation.links.ownership_table import Owner
from federation.links.pb.link_status_pb2 import Link, ListLinksResponse
from federation.links.reports import LinkEvents, LinkLog, LogLine, in_order, link_alarms, link_metrics, link_row
from federation.links.status import STATES, LinkState, LinkStatus, has_state
from link_world import World
from links_node import a_plan
from wording import check_named

BARE = LinkStatus(a_plan("0a1b2c3d", "east"), LinkState.STARTING, since=1.0, changed_at=2.0)
FULL = LinkStatus(
    a_plan("0a1b2c3d", "east", exchange="a/# -> b/{#}"),
    LinkState.ERROR,
    since=1.0,
    changed_at=2.0,
    upstream_name="federation-link-east",
    uri="mqtt://east:1883",
    local_connection="link:east:topics",
    deadline=5.0,
    last_error="refused",
    error_at=3.0,
    answered_at=2.5,
    round_trip_seconds=0.25,
    lag_seconds=1.5,
    waiting=4,
    oldest_waiting_seconds=2.0,
    in_flight=1,
    received=10,
    sent=9,
    dropped={"surplus": 1, "quota": 0},
    reconnects=2,
    sessions_lost=1,
    subscriptions=3,
    notes=(Note("a note"),),
    node="n",
    epoch=77,
)


def row(status: LinkStatus) -> Link:
    return link_row(status, 4.0, lambda at: 1_000.0 + at)


@pytest.mark.parametrize("state", LinkState)
def test_links_that_are_down_are_alarms(state: LinkState) -> None:
    level = {LinkState.ERROR: ERROR, LinkState.INVALID: ERROR, LinkState.BLOCKED: WARN, LinkState.SHUTDOWN: WARN}.get(
        state
    )
    link = Link(id="0a", upstream="north", status=state.value, error="TLS")
    found = link_alarms(ListLinksResponse(links=[link], unanswered=["n3"]))
    assert [alarm.level for alarm in found] == [WARN, *([level] if level else [])]
    check_named(found[0].text, ["n3"])
    for alarm in found[1:]:
        check_named(alarm.text, ["0a", "north", state.value, "TLS"])


def test_a_link_that_has_just_begun_has_no_invented_figures() -> None:
    found = row(BARE)
    assert [
        name
        for name in ("deadline", "error_at", "answered", "round_trip_seconds", "waiting", "oldest_waiting_seconds")
        if found.HasField(name)
    ] == []
    assert (found.since.seconds, found.changed.seconds) == (1_001, 1_002)


def test_a_row_has_every_field_of_a_status() -> None:
    found = row(FULL)
    assert {field.name for field, _ in found.ListFields()} == {field.name for field in Link.DESCRIPTOR.fields}
    assert (found.policies[0].name, found.policies[0].pattern) == ("p", "a/#")
    assert dict(found.dropped) == {"surplus": 1}
    assert (found.answered.seconds, found.answered.nanos) == (1_002, 500_000_000)
    assert found.next_step == "connects again at the deadline (in 1.0 s)"


@pytest.mark.parametrize("state", list(LinkState))
def test_rows_are_found_by_state(state: LinkState) -> None:
    found = row(replace(BARE, state=state))
    assert [wanted for wanted in ("", *STATES) if has_state(found.status, wanted)] == (
        ["", "down", state.value] if state.value in ("blocked", "shutdown", "error", "invalid") else ["", state.value]
    )


def test_a_state_that_only_a_newer_node_knows_is_not_down() -> None:
    assert [wanted for wanted in ("", "down", "asleep") if has_state("asleep", wanted)] == ["", "asleep"]


def test_rows_are_sorted() -> None:
    rows = [Link(upstream=upstream, id=id, node=node) for upstream, id, node in ("b2x", "a2x", "b1y", "b1x")]
    assert ["".join((found.upstream, found.id, found.node)) for found in in_order(rows)] == ["a2x", "b1x", "b1y", "b2x"]


class Story:
    """One link, and what the log says of it. `other` runs it, or is about to."""

    def __init__(self, **upstream: Any) -> None:
        self.world = World(upstream)
        self.other = "b"
        self._log = LinkLog()

    def lines(self) -> list[LogLine]:
        world = self.world
        ownership: Any = SimpleNamespace(node="a", owner=lambda link_id: Owner(self.other, 0))
        rows = world.links.statuses(world.now)
        lines = self._log.changes(rows, world.links.plans(), ownership, world.now)
        assert {line.details["upstream"] for line in lines} <= {"north"}
        assert self._log.changes(rows, world.links.plans(), ownership, world.now) == []
        return lines

    def told(self) -> list[tuple[str, str]]:
        return [(line.level, line.event) for line in self.lines()]


def test_each_change_is_told_once_and_a_smaller_grant_when_it_is_another_one() -> None:
    story = Story()
    world = story.world
    assert story.told() == [("info", "link idle")]
    world.want()
    assert story.told() == [("info", "link starting")]
    week: Any = {props.SESSION_EXPIRY_INTERVAL: 604_800}
    world.run(properties=week)
    assert story.told() == [("info", "link running"), ("info", "the upstream grants less than asked")]
    world.lose()
    assert story.told() == [("warning", "link error")]
    world.until_next_try()
    assert story.told() == []
    world.lose()
    assert story.told() == []  # the same error again
    world.until_next_try()
    world.lose("refused")
    assert story.told() == [("warning", "link error")]
    world.until_next_try()
    world.run(session_present=True, properties=week)
    assert story.told() == [("info", "link running")]
    world.lose()
    story.told()
    world.until_next_try()
    story.told()
    world.run(session_present=True, properties=week | {props.MAXIMUM_QOS: 0})
    assert story.told() == [("info", "link running"), ("warning", "the upstream grants less than asked")]


def test_a_lost_session_is_told() -> None:
    story = Story()
    world = story.world
    world.want()
    world.run()
    world.lose()
    story.told()
    world.until_next_try()
    world.run(session_present=False)
    assert story.told() == [("warning", "link session lost, with what waited in it"), ("info", "link running")]


def test_a_link_that_moves_says_where_it_runs() -> None:
    story = Story()
    world = story.world
    world.want()
    world.run()
    story.told()
    link_id = world.link.plan.link_id
    world.links.drain(link_id, world.now + 5.0, world.now)
    ((level, event, details),) = story.lines()
    assert (level, event, details["to"]) == ("info", "link moves to another node", "b")
    world.lose()
    assert story.told() == []
    world.links.end(link_id, world.now)
    ((level, event, details),) = story.lines()
    assert (level, event, details["to"]) == ("info", "link has moved to another node", "b")


def test_a_link_of_a_node_that_stops_moves_nowhere() -> None:
    story = Story()
    story.other = ""
    world = story.world
    world.want()
    world.run()
    story.told()
    link_id = world.link.plan.link_id
    world.links.drain(link_id, world.now + 5.0, world.now)
    assert story.told() == []
    world.links.end(link_id, world.now)
    assert story.told() == [("info", "link has stopped")]


def test_a_link_without_a_definition_is_removed() -> None:
    story = Story()
    story.told()
    story.world.links.resolve(Resolution([], [], []), story.world.now)
    assert story.told() == [("info", "link removed: nothing needs it any more")]


def test_links_for_queues_are_told_too() -> None:
    story = Story()
    world = story.world
    policy = parse_policy("jobs", {"pattern": "$share/g/t", "definition": {"federation-upstream": "north"}})
    world.links.resolve(Resolution([world.link.plan.upstream], [], [policy]), world.now)
    assert story.told() == [("info", "link starting")]
    (link,) = world.links.by_id.values()
    link.connection_lost(link.attempt, "refused", world.now)
    assert story.told() == [("warning", "link error")]
    world.links.resolve(Resolution([], [], []), world.now)
    assert story.told() == [("info", "link removed: nothing needs it any more")]


EAST = LinkStatus(a_plan("0000000e", "east"), LinkState.STARTING, 1.0, 1.0, node="a", epoch=7)
WEST = replace(EAST, plan=a_plan("0000000f", "west"), state=LinkState.RUNNING, received=3, dropped={"surplus": 2})


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
    pushing = replace(WEST, lag_seconds=0.5, waiting=2, oldest_waiting_seconds=1.5)
    found = {metric.name: metric for metric in link_metrics([EAST, pushing], 11.0)}
    assert found["gmqtt_link_lag_seconds"].samples == {west: 0.5}
    assert found["gmqtt_link_waiting"].samples == {west: 2}
    assert found["gmqtt_link_oldest_waiting_seconds"].samples == {west: 1.5}


def test_counters_end_as_prometheus_wants() -> None:
    for metric in link_metrics([WEST], 1.0):
        assert metric.name.endswith("_total") is (metric.kind is Kind.COUNTER)
        assert all(len(labels) == len(metric.labels) for labels in metric.samples)
