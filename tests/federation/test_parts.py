"""A home that is back and the adopter of its session both hand over to a third node: in the order of those who sent it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest

from broker.counters import DROP_SESSION_ENDED
from broker.ownership import Claimant
from broker.session.outgoing import Outgoing
from broker.store.kinds import OUTGOING
from federation.sessions.arriving import HANDING_SECONDS_MAX, LIVING_SECONDS_MAX, Epoch
from federation.sessions.wire import (
    ANSWER,
    AWAITED,
    BLOCK_OF,
    CLAIM,
    COPIED,
    HAND,
    HANDED,
    HANDING,
    HEAD_END,
    INCLUDES,
    SWITCH,
    Record,
)
from session_home import STORES, SUBSCRIPTION, Home, session_records

HOME, ADOPTER, NEXT = "n2", "n3", "n4"
LOST = STORES[HOME]
SINCE, ADOPTED_SINCE, BELOW = 10, 15, 31
COPY: Record = (COPIED, LOST, SINCE)


def message(payload: bytes) -> Record:
    _, (kind, number, of_topic, *state) = session_records()
    assert isinstance(of_topic, tuple)
    return (kind, number, (*of_topic[:2], payload, *of_topic[3:]), *state)


def block(serial: int) -> Record:
    return BLOCK_OF, NEXT, STORES[NEXT], serial


def head(*included: Record) -> tuple[Record, ...]:
    session, _ = session_records()
    return session, SUBSCRIPTION, (INCLUDES, included), (AWAITED, ()), (HEAD_END,)


OF_ADOPTER: tuple[tuple[Record, ...], ...] = (
    head((STORES[ADOPTER], ADOPTED_SINCE)),
    (COPY, message(b"copied 1")),
    (COPY, message(b"copied 2"), block(7), message(b"home 2"), message(b"home 3"), block(8), message(b"relayed")),
    (message(b"of the adopter"),),
    ((HANDED,),),
)
OF_HOME: tuple[tuple[Record, ...], ...] = (
    head(),
    (block(6), message(b"home 1"), block(7), message(b"home 2")),
    (block(7), message(b"home 3")),
    ((HANDED,),),
)
COPIED_MESSAGES = [b"copied 1", b"copied 2"]
HOME_MESSAGES = [b"home 1", b"home 2", b"home 3"]
IN_ORDER = [*COPIED_MESSAGES, *HOME_MESSAGES, b"relayed", b"of the adopter"]


class Waiting(Claimant):
    """The client."""

    def is_open(self) -> bool:
        return True

    def claimed(self) -> None:
        """It is let in."""

    def outclaimed(self, text: str) -> None:
        """It is elsewhere by now."""


class Third(Home):
    """Both have said that they hand over to it."""

    def __init__(self) -> None:
        super().__init__()
        assert not self.sessions.claim(Waiting(), "c", "", False, 0.0)
        self.epoch: Epoch = self.sessions.homes.epoch_of(self.sessions.homes.by_client["c"])
        for name, since in ((HOME, SINCE), (ADOPTER, ADOPTED_SINCE)):
            self.hear(name, ANSWER, self.epoch, HANDING, *self.epoch, STORES[name], since)

    def hands_over(self, name: str, records: tuple[Record, ...]) -> None:
        more = (LOST, BELOW) if name == ADOPTER else ()
        since = ADOPTED_SINCE if name == ADOPTER else SINCE
        self.hear(name, HAND, self.epoch, (name,), records, since, *more)

    def queued(self) -> list[bytes]:
        return [
            outgoing.message.payload for outgoing in self.broker.sessions["c"].queued() if outgoing.message is not None
        ]

    def leaves(self) -> None:
        for other in STORES:
            self.hear(other, SWITCH, self.epoch)
            self.said(other)
        self.hear(NEXT, CLAIM, (self.epoch[0] + 50, STORES[NEXT]), True, False, False)

    def left(self, now: float) -> list[bytes]:
        """Return payloads that leave for the next node until then."""
        self.sessions.handle_timeout(now)
        self.node.turn_ended(now)
        frames = [frame for frame in self.said(NEXT) if frame.operation == HAND]
        records: list[Record] = [record for frame in frames for record in frame.more[1]]  # type: ignore[attr-defined]
        return [record[2][2] for record in records if record[0] == OUTGOING]  # type: ignore[index]


def orders(of_home: tuple[tuple[Record, ...], ...]) -> Iterator[list[tuple[str, tuple[Record, ...]]]]:
    """All in which the frames may come."""
    count = len(OF_ADOPTER) + len(of_home)
    for places in combinations(range(count), len(of_home)):
        parts = {HOME: iter(of_home), ADOPTER: iter(OF_ADOPTER)}
        names = [HOME if place in places else ADOPTER for place in range(count)]
        yield [(name, next(parts[name])) for name in names]


@pytest.mark.parametrize("has_none", [True, False])
@pytest.mark.parametrize("is_let_in", [True, False])
def test_what_both_hand_over_comes_once_and_in_order(is_let_in: bool, has_none: bool) -> None:
    """70 to 73 and 92 to 94 of a publisher came from the adopter, 74 to 91 from the home, and these first
    (machines_come_back_to_their_clients 60005). is_let_in: the session stays, else its client goes on when both heads are
    there. has_none: all that the home had is in its copy."""
    expected = [*COPIED_MESSAGES, b"home 2", b"home 3", b"relayed", b"of the adopter"] if has_none else IN_ORDER
    for order in orders((OF_HOME[0], OF_HOME[-1]) if has_none else OF_HOME):
        third = Third()
        for at, (name, records) in enumerate(order):
            third.hands_over(name, records)
            if not is_let_in and at and records[-1] == (HEAD_END,):
                third.leaves()
        assert (third.queued() if is_let_in else third.left(10.0)) == expected, [name for name, _ in order]


@pytest.mark.parametrize("ends", [HOME, ADOPTER])
def test_what_one_hands_over_waits_no_longer_than_the_other_is_waited_for(ends: str) -> None:
    third = Third()
    others = OF_ADOPTER if ends == HOME else OF_HOME
    for records in others[:-1]:
        third.hands_over(ADOPTER if ends == HOME else HOME, records)
    expected = (
        [*COPIED_MESSAGES, b"home 2", b"home 3", b"relayed", b"of the adopter"] if ends == HOME else HOME_MESSAGES
    )
    assert third.queued() == (COPIED_MESSAGES if ends == HOME else [])
    third.sessions.handle_timeout(LIVING_SECONDS_MAX + 3 * HANDING_SECONDS_MAX)
    assert third.queued() == expected


def test_what_waits_ends_with_its_session() -> None:
    third = Third()
    for records in OF_HOME[:-1]:
        third.hands_over(HOME, records)
    session = third.broker.sessions["c"]
    held = session.sources.waiting_messages() if session.sources is not None else []
    assert [outgoing.record > 0 for outgoing in held if isinstance(outgoing, Outgoing)] == [True] * len(HOME_MESSAGES)
    third.broker.end_session(session, 0.0)
    assert third.broker.counters.messages_dropped[DROP_SESSION_ENDED] == len(HOME_MESSAGES)
