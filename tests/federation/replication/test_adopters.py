"""Who adopts a lost home, and what that and its adopter leave to each other."""

from __future__ import annotations

import pytest

from broker.message import NEVER
from broker.store.kinds import COPY, DEPARTING, HOME, MESSAGE, OUTGOING, REPLICA
from federation.replication.copies import ADOPTED_SECONDS_MAX
from federation.serf.events import Member, MemberJoin, MemberStatus
from federation.sessions.content import checked_hand
from federation.sessions.wire import ADOPTED, BLOCK_OF, decode_session_frame, encode_session_frame
from federation.settings import FederationSettings
from federation.stream.frames import HEADER_SIZE
from federation.tags import own_tags
from lost_homes import LOST, kept_in_runs, session
from stored_node import STORE_ID, Station


@pytest.mark.parametrize("has_left", [False, True])
def test_what_a_lost_home_was_handing_over_goes_back_to_it_where_it_leaves_that_to_its_adopter(has_left: bool) -> None:
    """Its head had left here: the home has nothing of it any more. Once both left it to the other one
    (nodes_stand_still_with_their_clients 80001: 102 messages)."""
    message = (MESSAGE, b"t", b"x", 1, False, b"", 0.0, "")
    outgoing = (OUTGOING, 1, 3, 1, False, (), 0.0, 0, 0)
    leaving = (DEPARTING, 1, 900, STORE_ID, 800, "n1", (), has_left, None)
    station = kept_in_runs(session("c"), leaving, message, outgoing)
    station.node.handle_timeout(2.0 + FederationSettings().replication.adopt_after)
    while station.node.turn_ended(40.0):
        station.commit()
    sessions = station.node.sessions
    assert sessions is not None
    sessions.give_on(sessions.homes.by_client["c"], "n2", (3_000, LOST), 41.0)
    (departing,) = sessions.moves.departing["c"]
    (frame,) = departing.take_messages(0.0)
    _, records, _, told = checked_hand(decode_session_frame(frame[HEADER_SIZE:]).more)
    assert [record[0] for record in records] == [OUTGOING] if has_left else [BLOCK_OF, OUTGOING]
    assert told[0] == LOST  # the home is told that its records are adopted


def starting() -> Station:
    """Its start is over at 12 s. It keeps the copy of n2 with another keeper, n3."""
    station = Station(
        {
            1: (REPLICA, "n2", LOST, 1, 1, 7, True, ("n1", "n3")),
            2: (COPY, 1, 1, session("c")),
            3: (COPY, 1, 2, (HOME, "c", 1_000, False, None)),
        }
    )
    assert station.node.sessions is not None
    station.node.sessions.homes.starting_until = 12.0
    return station


@pytest.mark.parametrize(("heard_at", "has_adopted"), [(3.0, True), (3.0, False), (NEVER, False)])
def test_a_keeper_that_has_started_hears_the_other_keepers_before_it_adopts(heard_at: float, has_adopted: bool) -> None:
    """One of these may have adopted the home just before, and tells of that before its interest: once both handed over what is
    in their copies (homes_are_lost_that_hold_with_three_copies 516)."""
    station = starting()
    node = station.node
    assert node.sessions is not None
    for name, store_id in (("n2", "0d" * 16), ("n3", "0a" * 16)):
        tags = {**own_tags("127.0.0.1:8901", True), "store": store_id}
        node.member_events([MemberJoin(Member(name, "127.0.0.1", 8901, tags, MemberStatus.ALIVE))], 1.0)
    adopted_at = NEVER
    for at in range(1, 12):
        if at == heard_at:
            if has_adopted:
                frame = encode_session_frame(ADOPTED, "", (0, LOST), ("n2", (), 4))
                node.sessions.receive("n3", frame[HEADER_SIZE:], heard_at)
            node.receivers.by_name["n3"].has_interest = True
        node.handle_timeout(float(at))
        while node.turn_ended(float(at)):
            station.commit()
        if station.broker.sessions:
            adopted_at = min(adopted_at, at)
    assert adopted_at == NEVER if has_adopted else adopted_at >= min(heard_at, 1 + ADOPTED_SECONDS_MAX / 2)
    assert has_adopted or adopted_at < NEVER


def test_a_client_that_comes_while_another_keeper_is_away_is_remembered_until_the_start_is_over() -> None:
    """Nothing else asks again: the client is let in with a new session meanwhile."""
    station = starting()
    node = station.node
    assert node.sessions is not None
    assert node.sessions.lost is not None
    node.handle_timeout(1.0)
    node.sessions.lost.wanted("c", "n1", 3.0)
    for at in range(4, 14):
        node.handle_timeout(float(at))
        while node.turn_ended(float(at)):
            station.commit()
        assert bool(station.broker.sessions) == (at >= 12)
