"""The table of the states of a link."""

from __future__ import annotations

from federation.links.handshake import End
from federation.links.link_states import TRANSITIONS, WITH_CONNECTION, Event, State
from federation.links.status import LinkState


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
