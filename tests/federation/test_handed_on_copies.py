"""A session goes from who has adopted it to a third node, and from there to its lost home: what is in the copy comes once."""

from __future__ import annotations

import pytest

from broker.store.kinds import OUTGOING, SUBSCRIPTION
from federation.sessions.arriving import Epoch
from federation.sessions.home import adopted_of
from federation.sessions.promised import INCLUDES_MAX
from federation.sessions.wire import (
    AWAITED,
    BLOCK_OF,
    CLAIM,
    COPIED,
    HAND,
    HANDED,
    HEAD_END,
    INCLUDES,
    SWITCH,
    Record,
)
from session_home import STORES, Home, session_records
from stored_node import STORE_ID

OWN: Epoch = (20, STORE_ID)
LOST = STORES["n2"]
SINCE = 10
COPY: Record = (COPIED, LOST, SINCE)
NEWEST: Record = (BLOCK_OF, "n1", LOST, 30)
END_SECONDS = 30.0


class Third(Home):
    """n1 is the third node, n2 the lost home, n3 has adopted its session, n4 is a further one."""

    def head(self, name: str, since: int, included: Record, messages: tuple[Record, ...], *adopted: object) -> None:
        """included: of INCLUDES."""
        session, _ = session_records()
        subscription = (SUBSCRIPTION, 0, b"t", 2, False, False, 0, 0)
        records = session, subscription, (INCLUDES, *included), (AWAITED, ()), (HEAD_END,), *messages, (HANDED,)
        self.hear(name, HAND, OWN, (name,), records, since, *adopted)

    def home_hands_over(self) -> None:
        """Its keepers have told it that the session was adopted."""
        self.head("n2", SINCE, ((),), ())

    def adopter_hands_over(self, *marks: Record) -> None:
        _, (*queued, state) = session_records()
        self.head("n3", 15, (((STORES["n3"], 15),),), (*marks, (*queued, state)), LOST, 31)

    def goes_to(self, name: str) -> list[object]:
        """The client goes there. Return marks and payloads as they leave."""
        for other in STORES:
            self.hear(other, SWITCH, OWN)
            self.said(other)
        self.hear(name, CLAIM, (50, STORES[name]), True, False, False)
        self.sessions.handle_timeout(END_SECONDS)
        self.node.turn_ended(END_SECONDS)
        found: list[object] = []
        for frame in self.said(name):
            for record in frame.more[1] if frame.operation == HAND else ():  # type: ignore[attr-defined]
                if record[0] in (COPIED, BLOCK_OF):
                    found.append(record)
                elif record[0] == OUTGOING:
                    found.append(record[2][2])
        return found


@pytest.mark.parametrize("name", ["n2", "n4"])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_home_that_has_given_its_session_away_gets_what_is_in_its_copy(is_first: bool, name: str) -> None:
    """is_first: its head, which leaves that out, comes before that of who has adopted it."""
    third = Third()
    if is_first:
        third.home_hands_over()
    third.adopter_hands_over(COPY)
    if not is_first:
        third.home_hands_over()
    assert third.goes_to(name) == [b"x"]


def test_a_further_node_knows_that_the_home_has_given_its_session_away() -> None:
    """What the adopter hands over comes there after the session."""
    third = Third()
    third.head("n4", 12, (((STORES["n4"], 12),),), (), LOST, 0)
    third.adopter_hands_over(COPY)
    assert third.goes_to("n2") == [b"x"]


def test_a_store_keeps_that_the_home_has_given_its_session_away() -> None:
    third = Third()
    third.home_hands_over()
    home = third.sessions.homes.by_client["c"]
    _, _, _, _, _, adopted, *_ = home.values(0.0)
    home.adopted = adopted_of(adopted)
    third.adopter_hands_over(COPY)
    assert third.goes_to("n2") == [b"x"]


@pytest.mark.parametrize(
    ("says_newest", "marks", "expected"),
    [
        (True, (COPY,), []),  # it is on the disk of that home, which has not heard of anything yet
        (True, (NEWEST, COPY), [NEWEST, b"x"]),
        (False, (COPY,), [b"x"]),  # a build before the marks of the newest
    ],
)
def test_only_who_says_which_are_the_newest_keeps_others_from_their_home(
    says_newest: bool, marks: tuple[Record, ...], expected: list[object]
) -> None:
    third = Third()
    third.node.senders["n3"].marks_newest = says_newest
    third.adopter_hands_over(*marks)
    assert third.goes_to("n2") == expected


@pytest.mark.parametrize(
    ("marks", "unstored", "expected"),
    [
        ((COPY,), ((25, 35),), []),
        ((NEWEST, COPY), (), []),
        ((NEWEST, COPY), ((25, 30), (31, 35)), []),
        ((NEWEST, COPY), ((25, 30), (30, 31)), [NEWEST, COPY, b"x"]),
        ((NEWEST, COPY), None, [NEWEST, COPY, b"x"]),  # a build before, or this node has started since
        (((*NEWEST[:3], 0), COPY), (), [b"x"]),
    ],
)
def test_what_a_home_has_lost_with_its_process_comes_from_its_copy(
    marks: tuple[Record, ...], unstored: Record | None, expected: list[object]
) -> None:
    """It has handed over all that is on its disk before it heard that its session was adopted. unstored: numbers of records
    that it does not have there, as it says."""
    third = Third()
    included = ((LOST, SINCE),)
    third.head("n2", SINCE, (included,) if unstored is None else (included, ((LOST, unstored),)), ())
    third.adopter_hands_over(*marks)
    assert third.goes_to("n4") == expected


def test_that_a_home_has_handed_over_all_is_known_by_the_end() -> None:
    third = Third()
    session, _ = session_records()
    third.hear("n2", HAND, OWN, ("n2",), (session, (INCLUDES, ((LOST, SINCE),), ()), (HEAD_END,)), SINCE)
    home = third.sessions.homes.by_client["c"]
    assert home.handed == {}
    third.hear("n2", HAND, OWN, ("n2",), ((HANDED,),), SINCE)
    assert home.handed == {LOST: SINCE}


def test_what_homes_may_lack_is_known_of_as_many_as_are_included() -> None:
    home = Third().sessions.homes.made("c", 1)
    for number in range(3 * INCLUDES_MAX):
        home.include(((f"{number}", 1),), ((f"{number}", ((1, 2),)), ("another", ())))
    assert home.includes is not None
    assert set(home.unstored) == set(home.includes)
    assert len(home.unstored) == INCLUDES_MAX


def test_what_a_home_may_lack_goes_with_its_claim() -> None:
    home = Third().sessions.homes.made("c", 1)
    home.include(((LOST, 5),), ((LOST, ((10, 20),)),))
    home.include(((LOST, 3),), ((LOST, ()),))
    assert home.unstored == {LOST: ((10, 20),)}, "what is said of an older claim is not taken"
    home.include(((LOST, 6),))
    assert home.unstored == {}, "of a newer claim nothing is known"
