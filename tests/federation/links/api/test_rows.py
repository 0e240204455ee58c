"""Rows of links in the API: what is absent, which states are asked for, their order."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from federation.links.api.rows import STATES, has_state, in_order, link_row
from federation.links.pb.link_status_pb2 import Link
from federation.links.status import LinkState, LinkStatus

BARE = LinkStatus("0a1b2c3d", "topics", "east", LinkState.STARTING, since=1.0, changed_at=2.0)
FULL = LinkStatus(
    "0a1b2c3d",
    "topics",
    "east",
    LinkState.ERROR,
    since=1.0,
    changed_at=2.0,
    upstream_name="federation-link-east",
    mapping="a/# -> b/#",
    policies=("p",),
    patterns=("a/#",),
    uri="mqtt://east:1883",
    local_connection="link:east:topics",
    deadline=5.0,
    last_error="refused",
    error_at=3.0,
    answered_at=2.5,
    round_trip=0.25,
    lag=1.5,
    waiting=4,
    oldest_waiting=2.0,
    in_flight=1,
    received=10,
    sent=9,
    dropped={"surplus": 1, "quota": 0},
    reconnects=2,
    sessions_lost=1,
    subscriptions=3,
    notes=("a note",),
    node="n",
    epoch=77,
)


def row(status: LinkStatus) -> Link:
    return link_row(status, 4.0, lambda at: 1_000.0 + at)


def test_a_link_that_has_just_begun_has_no_invented_figures() -> None:
    found = row(BARE)
    assert [
        name
        for name in ("deadline", "error_at", "answered", "round_trip_seconds", "waiting", "oldest_waiting_seconds")
        if found.HasField(name)
    ] == []
    assert (found.since.seconds, found.changed.seconds) == (1_001, 1_002)


def test_a_row_has_every_field_of_a_status() -> None:
    assert len(fields(LinkStatus)) - 1 == len(Link.DESCRIPTOR.fields)  # policies and patterns are one field
    found = row(FULL)
    assert {field.name for field, _ in found.ListFields()} == {field.name for field in Link.DESCRIPTOR.fields}
    assert (found.policies[0].name, found.policies[0].pattern) == ("p", "a/#")
    assert dict(found.dropped) == {"surplus": 1}
    assert (found.answered.seconds, found.answered.nanos) == (1_002, 500_000_000)
    assert found.next_step == "connects again at the deadline (in 1.0 s)"


@pytest.mark.parametrize("state", list(LinkState))
def test_rows_are_found_by_state(state: LinkState) -> None:
    found = row(replace(BARE, state=state))
    assert [wanted for wanted in ("", *STATES) if has_state(found, wanted)] == (
        ["", "down", state.value] if state.value in ("blocked", "shutdown", "error", "invalid") else ["", state.value]
    )


def test_a_state_that_only_a_newer_node_knows_is_not_down() -> None:
    assert [wanted for wanted in ("", "down", "asleep") if has_state(Link(status="asleep"), wanted)] == ["", "asleep"]


def test_rows_are_sorted() -> None:
    rows = [Link(upstream=upstream, id=id, node=node) for upstream, id, node in ("b2x", "a2x", "b1y", "b1x")]
    assert ["".join((found.upstream, found.id, found.node)) for found in in_order(rows)] == ["a2x", "b1x", "b1y", "b2x"]
