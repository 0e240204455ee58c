"""A session that leaves just after a start: a keeper of the copy may have adopted it, and says so before anything leaves."""

from __future__ import annotations

import pytest

from broker.message import Message
from broker.session.durable import attach_records
from broker.session.session import Session
from broker.store.identity import StoreIdentity
from broker.store.kinds import OUTGOING
from broker.store.restoring import StoredDeparture
from federation.sessions.asked_keepers import HOME_SECONDS_MAX
from federation.sessions.lost_homes import LostHomes
from federation.sessions.stored import restore
from federation.sessions.wire import (
    ANSWER,
    CLAIM,
    HAND,
    HANDED,
    HANDING,
    MOVE,
    NOTHING,
    REFUSED,
    SWITCH,
    SessionFrame,
    decode_session_frame,
)
from federation.stream.frames import HEADER_SIZE
from session_home import STORES, Home, subscribed
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

    def moved(self, homes: list[str], now: float) -> None:
        pass


def started() -> Home:
    """This node has started with a session and a message of it on its disk."""
    home = Home()
    home.sessions.lost = Keepers()
    session = Session(home.broker, "c", 0.0)
    session.expiry_interval = 60
    attach_records(session, home.journal)
    home.broker.sessions["c"] = session
    subscribed(home.broker, session)
    home.sessions.homes.by_client["c"] = home.sessions.homes.made("c", OWN[0])
    session.deliver(Message(b"t", b"x", 2, False), 2, False, (), None, 0.0)
    return home


def claimed_elsewhere() -> Home:
    """n3 claims the client."""
    home = started()
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
    subscribed(home.broker, session)
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


@pytest.mark.parametrize("is_adopted", [False, True])
def test_what_has_left_is_on_its_way_unless_another_node_has_adopted_it(is_adopted: bool) -> None:
    """No session includes the claim of a home whose session was adopted: a client would wait for it in vain."""
    home = claimed_elsewhere()
    home.hear(
        "n2",
        ANSWER,
        OWN,
        *((REFUSED, 11, STORES["n2"], STORE_ID, home.journal.next_number) if is_adopted else (0, *OWN)),
    )
    home.node.senders["n4"].is_living = False  # it may have something for the session here when it is back
    home.hear("n3", MOVE, NEXT, "n1")
    assert home.sessions.moves.on_way("c")
    for name in ("n2", "n3"):
        home.hear(name, SWITCH, NEXT)
    assert HANDED in handed(home)
    home.hear("n4", CLAIM, (60, STORES["n4"]), True, False, False)
    (answer,) = asked(home, "n4")
    assert answer.more[0] == (NOTHING if is_adopted else HANDING)


@pytest.mark.parametrize("is_claim", [False, True])
def test_a_home_that_others_name_says_what_it_has_adopted(is_claim: bool) -> None:
    """A node sends to it before its claim comes here. is_claim: it comes before the answer. That of a third node, which has got
    nothing of the session, does not stand for it."""
    home = started()
    home.hear("n4", SWITCH, NEXT)
    assert OWN in [frame.epoch for frame in asked(home, "n3")]
    home.hear("n2", ANSWER, OWN, NOTHING, *OWN)
    home.hear("n4", CLAIM, (60, STORES["n4"]), True, False, False)
    assert not handed(home)
    adopted = STORE_ID, home.journal.next_number
    if is_claim:
        home.hear("n3", CLAIM, NEXT, False, False, False, *adopted, True)
    else:
        home.hear("n3", ANSWER, OWN, REFUSED, *NEXT, *adopted)
    found = handed(home)
    assert found
    assert OUTGOING not in found


@pytest.mark.parametrize("has_head_left", [False, True])
@pytest.mark.parametrize("copied", [0, 1, None])
@pytest.mark.parametrize("is_adopted", [False, True])
def test_a_session_that_was_leaving_before_a_start_asks_again(
    is_adopted: bool, copied: int | None, has_head_left: bool
) -> None:
    """copied: whether the copy has the departure, too; None: nobody answers. Where it has not, and the head has left, the next
    home has heard that what is in such a copy comes from here, and leaves it out."""
    before = claimed_elsewhere()
    (departing,) = before.sessions.moves.departing["c"]
    if has_head_left:
        departing.marks = None
    home = Home()
    home.sessions.lost = Keepers()
    session = Session(home.broker, "c", 0.0)
    session.expiry_interval = 60
    attach_records(session, home.journal)
    session.deliver(Message(b"t", b"x", 2, False), 2, False, (), None, 0.0)
    number = home.journal.keep(StoredDeparture(departing.values(0.0), session))
    restore(home.broker, home.sessions.homes, home.sessions.moves)
    home.sessions.moves.asked_keepers.begin(home.sessions.lost, 0.0)
    home.node.turn_ended(0.0)
    assert not handed(home)
    assert [len(asked(home, name)) for name in ("n2", "n3", "n4")] == [1, 1, 0]
    if copied is None:
        home.sessions.handle_timeout(HOME_SECONDS_MAX)
        home.node.turn_ended(HOME_SECONDS_MAX)
    else:
        home.hear("n3", CLAIM, NEXT, False, False, False)
        refusal = REFUSED, 11, STORES["n2"], STORE_ID, number + copied
        home.hear("n2", ANSWER, OWN, *(refusal if is_adopted else (NOTHING, *OWN)))
    is_left_out = is_adopted and copied is not None and (bool(copied) or not has_head_left)
    assert (OUTGOING in handed(home)) is not is_left_out


def test_an_adopter_of_the_store_before_a_recovery_is_known() -> None:
    """The store is read when the sessions are made: its record says what it was formerly."""
    home = started()
    home.broker.identity = StoreIdentity("recovered", 2, True)
    home.broker.identity.formerly = ("former",)
    home.hear("n3", CLAIM, NEXT, True, False, False, "former", 1_000)
    assert [departing.is_adopted for departing in home.sessions.moves.departing["c"]] == [True]
