"""Which packet identifiers of its client a session goes on with, where a former session comes behind it."""

from __future__ import annotations

import pytest

from broker.session.connection import Connection
from broker.session.session import Session
from broker.store.kinds import RECEIVED
from federation.sessions.content import head_records
from federation.sessions.wire import BEGUN, HAND, HEAD_END, SessionFrame
from lost_homes import session
from session_home import Home
from stored_node import Station


@pytest.mark.parametrize("is_newer", [False, True], ids=["older", "newer"])
@pytest.mark.parametrize("has_begun", [False, True], ids=["heard there", "not heard there"])
@pytest.mark.parametrize("is_new", [False, True], ids=["heard here", "not heard here"])
@pytest.mark.parametrize("is_connected", [False, True], ids=["away", "connected"])
def test_a_client_goes_on_with_the_exchanges_of_the_session_that_it_had_last(
    is_newer: bool, has_begun: bool, is_new: bool, is_connected: bool
) -> None:
    """One that may not have heard that its last session was a new one is told so when it connects, wherever. Once it went on
    with the exchanges of the former one, and what it had sent to the new one, and had got lost, counted as repeated."""
    station = Station({})
    station.node.added("n2", 0.0)
    sessions = station.node.sessions
    assert sessions is not None
    epoch = 2_000, station.broker.identity.store_id
    head = session("c"), (HEAD_END,)
    sessions.take(SessionFrame(HAND, "c", epoch, (("n2",), head, 1_000)), 1.0)
    here, home = station.broker.sessions["c"], sessions.homes.by_client["c"]
    if is_connected:
        here.attach(Connection(station.broker, None, "", "", 1.0), 1.0)
    here.is_new = is_new
    home.taken_at = 1_500
    begun = (BEGUN,) if has_begun else ()
    for since in (1_600, 1_700) if is_newer else (1_400, 1_300):
        further = session("c"), *begun, (RECEIVED, 0, 4), (HEAD_END,)
        sessions.take(SessionFrame(HAND, "c", epoch, (("n2",), further, since)), 2.0)
        assert here.is_unreleased(4) is is_newer
        assert here.is_new is (has_begun if is_newer else is_new)
        assert (BEGUN in head_records(here, 0.0, (0, 0))) is here.is_new


@pytest.mark.parametrize("reachable", [True, False])
@pytest.mark.parametrize("is_living", [True, False])
@pytest.mark.parametrize("is_silent", [True, False])
def test_a_client_may_have_a_session_at_a_node_that_is_not_heard(
    reachable: bool, is_living: bool, is_silent: bool
) -> None:
    """Such as one that has failed, and whose stream has not ended. The session here gives other packet identifiers then: the
    client would take a message with one of the other session for a repetition."""
    home = Home()
    for sender in home.node.senders.values():
        sender.reachable = sender.is_living = True
    at = home.sessions.homes.by_client["c"] = home.sessions.homes.made("c", 1)
    session = Session(home.broker, "c", 0.0)
    sender = home.node.senders["n3"]
    sender.reachable, sender.is_living = reachable, is_living
    if is_silent:
        home.sessions.silent["n3"] = at, at.number
    home.sessions.opened(session)
    is_heard = reachable and is_living and not is_silent
    assert home.sessions.may_be_elsewhere() != is_heard
    assert (session.inflight is None) == is_heard
