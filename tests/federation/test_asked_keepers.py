"""A session that leaves just after a start: a keeper of the copy may have adopted it, and says so before anything leaves."""

from __future__ import annotations

import pytest

from broker.message import Message
from broker.session.durable import attach_records
from broker.session.session import Session
from broker.store.kinds import OUTGOING
from federation.sessions.lost_homes import LostHomes
from federation.sessions.wire import ANSWER, CLAIM, HAND, HANDING, NOTHING, REFUSED, SessionFrame, decode_session_frame
from federation.stream.frames import HEADER_SIZE
from session_home import STORES, Home
from stored_node import STORE_ID

OWN = (10, STORE_ID)
NEXT = (50, STORES["n3"])
ASKED_SECONDS = 4.0


class Keepers(LostHomes):
    """n2 is asked. Nothing is adopted here."""

    def asked_until(self, node: str) -> float:
        return ASKED_SECONDS if node == "n2" else 0.0

    def wanted(self, client_id: str, node: str, now: float) -> None:
        pass


def claimed_elsewhere() -> Home:
    """This node has started with a session and a message of it on its disk. n3 claims the client."""
    home = Home()
    home.sessions.lost = Keepers()
    session = Session(home.broker, "c", 0.0)
    session.expiry_interval = 60
    attach_records(session, home.journal)
    home.broker.sessions["c"] = session
    home.sessions.homes.by_client["c"] = home.sessions.homes.made("c", OWN[0])
    session.deliver(Message(b"t", b"x", 2, False), 2, False, (), None, 0.0)
    home.hear("n3", CLAIM, NEXT, True, False, False)
    return home


def handed(home: Home) -> list[int]:
    """The kinds of the records that have left."""
    frames = [frame for frame in home.said("n3") if frame.operation == HAND]
    return [record[0] for frame in frames for record in frame.more[1]]  # type: ignore[attr-defined]


def asked(home: Home, name: str) -> list[SessionFrame]:
    return [decode_session_frame(frame[HEADER_SIZE:]) for frame in home.node.senders[name].news.answers]


def test_a_session_that_a_keeper_has_adopted_leaves_without_what_is_in_the_copy() -> None:
    home = claimed_elsewhere()
    assert not handed(home)
    assert [(frame.operation, frame.epoch, frame.more[0]) for frame in asked(home, "n2")] == [(CLAIM, OWN, True)]
    home.hear("n2", ANSWER, OWN, REFUSED, 11, STORES["n2"], STORE_ID, home.journal.next_number)
    found = handed(home)
    assert found
    assert OUTGOING not in found


@pytest.mark.parametrize("verdict", [NOTHING, HANDING, None])
def test_a_session_that_no_keeper_has_adopted_leaves_as_a_whole(verdict: int | None) -> None:
    """At the latest when a client at home here would wait for the keeper no more."""
    home = claimed_elsewhere()
    if verdict is not None:
        home.hear("n2", ANSWER, OWN, verdict, *OWN)
    else:
        assert home.sessions.next_timeout() == ASKED_SECONDS
        home.sessions.handle_timeout(ASKED_SECONDS)
        home.node.turn_ended(ASKED_SECONDS)
    assert OUTGOING in handed(home)


def test_a_keeper_that_has_given_the_session_on_knows_that_it_had_adopted_it() -> None:
    home = Home()
    session = Session(home.broker, "c", 0.0)
    home.broker.sessions["c"] = session
    at = home.sessions.homes.by_client["c"] = home.sessions.homes.made("c", 11)
    lost = "5" * 32
    at.adopts((lost, 300, 1, 2, 10, ()))
    home.hear("n3", CLAIM, NEXT, True, False, False)
    for counter, more in ((10, (lost, 300)), (12, ())):  # the second is of a later home than the adoption
        home.node.senders["n4"].news.answers.clear()
        home.hear("n4", CLAIM, (counter, STORES["n4"]), True, False, False)
        (answer,) = asked(home, "n4")
        assert answer.operation == ANSWER
        assert answer.more[0] == (REFUSED if more else HANDING)
        assert not more or answer.more[3:] == more
