"""States of a link that count as down, the evidence for running, the next step, and secrets that a status never shows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.links.handshake import End
from federation.links.status import (
    ERROR_CHARS_MAX,
    TRANSITIONS,
    WITH_CONNECTION,
    Event,
    LinkState,
    LinkStatus,
    State,
    next_step,
    without_secrets,
)
from links_node import a_plan

ROW = LinkStatus(a_plan("0a1b2c3d", "east"), LinkState.STARTING, since=1.0, changed_at=1.0)


def test_the_next_step_has_the_seconds_until_the_deadline() -> None:
    row = replace(ROW, state=LinkState.ERROR, deadline=12.5)
    assert next_step(row, 10.0) == "connects again at the deadline (in 2.5 s)"
    assert next_step(row, 13.0) == "connects again at the deadline (in 0.0 s)"


def test_the_next_step_of_a_link_that_waits_for_an_event_has_no_time() -> None:
    assert next_step(replace(ROW, state=LinkState.IDLE), 10.0) == LinkState.IDLE.next_step
    assert next_step(replace(ROW, next_step="waits for node b"), 10.0) == "waits for node b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mqtt://user:pw@host:1883 refused", "mqtt://host:1883 refused"),
        ("mqtts://u:p@ss@host/x?password=abc&a=1", "mqtts://host/x?password=***&a=1"),
        ("connect to ws://host/mqtt failed", "connect to ws://host/mqtt failed"),
        ("wss://tok%40en@h and mqtt://a:b@c", "wss://h and mqtt://c"),
        ("PASSPHRASE=x;token=y", "PASSPHRASE=***;token=***"),
        ("Not authorized [0x87]", "Not authorized [0x87]"),
        ("a@b is no secret", "a@b is no secret"),
        ("mqtt://user:p/w?#@host", "mqtt://host"),
        (f"mqtt://user:{'x' * 5000}@host", "mqtt://host"),
        ("away (\x1b[2Jéé\n)", r"away (\x1b[2Jéé\n)"),
    ],
)
def test_secrets_are_cut_from_texts(text: str, expected: str) -> None:
    assert without_secrets(text) == expected


@given(
    st.text(alphabet="abc.:%-_@", max_size=20),
    st.text(alphabet="PQRSTUVWXYZ:@%!/?#", min_size=1, max_size=20),
    st.text(max_size=600),
)
def test_no_password_of_a_uri_stays(user: str, password: str, rest: str) -> None:
    shown = without_secrets(f"cannot reach mqtt://{user}:{password}@host:1883/: {rest}")
    assert shown.startswith("cannot reach mqtt://host:1883/")
    assert len(shown) <= ERROR_CHARS_MAX


@given(st.text(max_size=5000))
def test_texts_of_a_status_are_bounded(text: str) -> None:
    assert len(without_secrets(text)) <= ERROR_CHARS_MAX


def test_every_state_is_reached_and_ends() -> None:
    reached = {State.IDLE}
    while more := {state for found in reached for state in TRANSITIONS[found].values()} - reached:
        reached |= more
    assert reached == set(State) == set(TRANSITIONS)
    assert {state.shown for state in State} == set(LinkState) - {LinkState.PAUSED}


def test_a_link_may_be_stopped_in_every_state_and_every_connection_may_end() -> None:
    for state, events in TRANSITIONS.items():
        assert events[Event.STOP] is State.SHUTDOWN
        for end in End:
            assert (end in events) == (state in WITH_CONNECTION)


def test_a_link_that_drains_does_not_connect_again() -> None:
    assert set(TRANSITIONS[State.DRAINING].values()) == {State.DRAINING, State.SHUTDOWN}
