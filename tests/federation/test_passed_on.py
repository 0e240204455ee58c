"""Where what comes of a session goes that has gone on before it came."""

from __future__ import annotations

import pytest

from federation.sessions.arriving import Epoch
from federation.sessions.wire import CLAIM, HAND, HANDED, HEAD_END, MOVE, Record
from session_home import STORES, SUBSCRIPTION, Home, session_records
from stored_node import STORE_ID

HERE = (20, STORE_ID)
NEXT = (25, STORES["n2"])
LAST = (30, STORES["n3"])


def handed_on(home: Home) -> list[tuple[str, Epoch, list[object]]]:
    """(node, epoch, kinds of the records) of all that goes on."""
    home.commit()
    found: list[tuple[str, Epoch, list[object]]] = []
    for name in ("n2", "n3"):
        for frame in home.said(name):
            if frame.operation == HAND:
                records = frame.more[1]
                assert isinstance(records, tuple)
                found.append((name, frame.epoch, [record[0] for record in records]))
    return found


def hand(home: Home, since: int, *records: Record) -> None:
    home.hear("n4", HAND, HERE, ("n4",), records, since)


@pytest.mark.parametrize("is_home_again", [False, True])
def test_the_end_of_a_hand_over_goes_where_its_head_went(is_home_again: bool) -> None:
    """Seeds 1 and 11 of nodes_start_again_while_clients_move: it went to where the client was by then; the home that has the
    head, and the next ones, waited for it for 15 s, and then took newer messages first."""
    home = Home()
    session, _ = session_records()
    hand(home, 15, session)
    home.hear("n2", CLAIM, NEXT, True, False, False)
    hand(home, 15, SUBSCRIPTION, (HEAD_END,))
    assert handed_on(home) == [("n2", NEXT, [session[0], SUBSCRIPTION[0], HEAD_END])]
    home.hear("n3", MOVE, LAST, "n2")
    if is_home_again:
        home.hear("n3", HAND, (35, STORE_ID), ("n3",), (session, SUBSCRIPTION, (HEAD_END,)), 30)
    hand(home, 15, (HANDED,))
    assert handed_on(home) == [("n2", NEXT, [HANDED])]


def test_the_rest_of_a_head_whose_first_part_came_before_the_session_left_goes_with_that() -> None:
    """n4 has also something else to bring to what leaves: the rest of its head was taken for that, so that the first part
    waited for its end for ever, and what the client may have got with a packet identifier was sent anew."""
    home = Home()
    session, (kind, _, message, *rest) = session_records()
    in_flight = (kind, 0, message, *rest[:-2], 7, 1)
    home.hear("n3", HAND, HERE, ("n3",), (session, SUBSCRIPTION, (HEAD_END,)), 10)
    arriving = home.sessions.homes.by_client["c"].arriving
    assert arriving is not None
    arriving.handing["n4"] = 0
    hand(home, 15, session, in_flight)
    home.hear("n2", CLAIM, NEXT, True, False, False)
    hand(home, 15, in_flight, (HEAD_END,))
    kinds = [session[0], kind, kind, HEAD_END]
    assert handed_on(home) == [("n2", NEXT, kinds)]
    (departing,) = home.sessions.moves.departing["c"]
    assert departing.session.load() == 0
    assert not home.sessions.moves.heads


def test_another_hand_over_and_one_whose_next_home_is_lost_go_to_the_newest_home() -> None:
    home = Home()
    session, _ = session_records()
    hand(home, 15, session)
    home.hear("n2", CLAIM, NEXT, True, False, False)
    hand(home, 15, (HEAD_END,))
    home.hear("n3", MOVE, LAST, "n2")
    assert [each[0] for each in handed_on(home)] == ["n2"]
    hand(home, 12, (HANDED,))
    assert handed_on(home) == [("n3", LAST, [HANDED])]
    home.node.senders["n2"].peer_store_id = "5" * 32
    hand(home, 15, (HANDED,))
    assert handed_on(home) == [("n3", LAST, [HANDED])]


def test_a_head_that_comes_again_goes_to_the_newest_home_and_what_is_behind_it_follows() -> None:
    """Seed 2 of test_sessions_move: what a client left behind that moved faster than it went in a circle, and never came."""
    home = Home()
    session, _ = session_records()
    hand(home, 15, session)
    home.hear("n2", CLAIM, NEXT, True, False, False)
    hand(home, 15, (HEAD_END,))
    assert [each[0] for each in handed_on(home)] == ["n2"]
    home.hear("n3", MOVE, LAST, "n2")
    for records in ((session, SUBSCRIPTION, (HEAD_END,)), ((HANDED,),)):
        home.hear("n4", HAND, NEXT, ("n4",), records, 15)
        assert handed_on(home) == [("n3", LAST, [record[0] for record in records])]
