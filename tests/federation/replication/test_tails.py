"""The newest messages of a copy: which record of the lost home each of them was, and that it gets those that it may lack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.message import Message
from broker.session.durable import attach_records
from broker.session.outgoing import AWAIT_PUBREC, QUEUED
from broker.session.session import Session
from broker.store.kinds import COPY, DEPARTING, HOME, MESSAGE, OUTGOING, RECEIVED, REPLICA, SESSION
from broker.store.restoring import StoredDeparture
from federation.replication.adopting import TAIL_RECORDS
from federation.sessions.content import take_outgoing
from federation.sessions.departing import Departing, Marks
from federation.sessions.home import Tail, adopted_of, number_there
from federation.sessions.relayed import RELAYED_MAX, Came, Relayed
from federation.sessions.stored import restore
from federation.sessions.wire import BLOCK_OF, COPIED, HAND, NOT_COPIED, decode_session_frame
from federation.stream.frames import HEADER_SIZE
from session_home import STORES, Home
from stored_node import Records, Station

LOST = "0c" * 16
BASE = 2**24
"""Numbers of a copy that are far above those of an older message of the session."""


def message(payload: bytes) -> tuple[object, ...]:
    return MESSAGE, b"t", payload, 2, False, b"", 0.0, "p"


def outgoing(message: int, state: int = QUEUED, packet_id: int = 0) -> tuple[object, ...]:
    return OUTGOING, 1, message, 2, False, (), 0.0, packet_id, state


def adopted(
    records: Records,
    client_id: str = "c",
    is_here: bool = False,
    stored_below: int = 0,
    handed: int = 0,
    unstored: tuple[tuple[int, int], ...] = (),
    is_leaving: bool = False,
) -> Station:
    """A keeper has adopted the session from a copy with these records. is_here: it has had one of the client before.
    stored_below: as the home has said, which an earlier build does not. handed: up to which claim the home had handed it over
    to this node; unstored: as it has said then. is_leaving: the copy is of the session as it left, when its head had."""
    times = (0.0, 0.0, 3600, 0.0, None, 0.0)
    session = SESSION, client_id, "", None, 5, 60, "127.0.0.1:1", "127.0.0.1:2", *times
    stored: Records = {1: (REPLICA, "n2", LOST, 1, 1, 7, True, ("n1",), *((stored_below,) if stored_below else ()))}
    leaving = DEPARTING, 1, 1_001, "0c" * 16, 1_000, "n1", (), True, None
    copied = {1: session, 2: leaving if is_leaving else (HOME, client_id, 1_000, False, None), **records}
    for at, (number, record) in enumerate(copied.items(), 2):
        stored[at] = COPY, 1, number, record
    station = Station(stored)
    sessions = station.node.sessions
    assert sessions is not None
    assert sessions.lost is not None
    if is_here:
        durable(station, client_id)
        home = sessions.homes.by_client[client_id] = sessions.homes.made(client_id, 500)
        home.include(((LOST, handed),), ((LOST, unstored),))
        home.handed[LOST] = handed
    sessions.homes.starting_until = 0.0
    sessions.lost.wanted(client_id, "n1", 1.0)
    for at in (1, 2):
        station.node.handle_timeout(float(at))
        while station.node.turn_ended(float(at)):
            station.commit()
    return station


def durable(station: Station, client_id: str) -> Session:
    session = station.broker.sessions[client_id] = Session(station.broker, client_id, 0.0)
    session.expiry_interval = 3600
    attach_records(session, station.journal)
    return session


def tail_of(station: Station) -> Tail:
    assert station.node.sessions is not None
    home = station.node.sessions.homes.by_client["c"]
    ((store_id, *_, tail),) = adopted_of(home.values(0.0)[5])  # as its record has it
    assert store_id == LOST
    return tail


def numbers(station: Station) -> dict[bytes, int | None]:
    """By payload: the number of the message in the copy, as the tail has it."""
    session = station.broker.sessions["c"]
    assert isinstance(session, Session)
    found = session.queued()
    if session.inflight is not None:
        found += session.inflight.messages()
    tail = tail_of(station)
    return {each.message.payload: number_there(tail, each.record) for each in found if each.message is not None}


NEWEST: Records = {
    3: message(b"old"),
    4: outgoing(3),
    BASE: message(b"a"),
    BASE + 1: outgoing(BASE),
    BASE + 2: message(b"b"),
    BASE + 3: outgoing(BASE + 2),
}


def test_each_of_the_newest_is_known_by_its_own_number() -> None:
    assert numbers(adopted(NEWEST)) == {b"old": None, b"a": BASE + 1, b"b": BASE + 3}


@pytest.mark.parametrize("lacking", [outgoing(99), (*outgoing(BASE)[:7], "no packet identifier", QUEUED)])
def test_one_that_was_not_taken_shifts_none(lacking: tuple[object, ...]) -> None:
    """Neither the newest nor one between: its message is missing in the copy, or it is no record of a broker."""
    station = adopted({**NEWEST, BASE + 2: lacking, BASE + 3: outgoing(BASE), BASE + 4: lacking})
    assert numbers(station) == {b"old": None, b"a": BASE + 3}


def test_one_on_the_way_to_its_client_is_known_by_its_packet_identifier() -> None:
    sent = {**NEWEST, BASE + 4: outgoing(BASE, AWAIT_PUBREC, 7), BASE + 1: outgoing(3, AWAIT_PUBREC, 9)}
    station = adopted(sent)
    assert numbers(station)[b"a"] == BASE + 4
    assert numbers(station)[b"b"] == BASE + 3


def test_one_whose_packet_identifier_is_of_another_session_is_in_doubt() -> None:
    station = adopted({**NEWEST, BASE + 4: outgoing(BASE, AWAIT_PUBREC, 7)}, is_here=True)
    assert numbers(station)[b"a"] == 0
    assert numbers(station)[b"b"] == BASE + 3


def test_there_is_no_tail_without_new_messages() -> None:
    station = adopted({3: message(b"old"), 4: outgoing(3), 4 + 2 * TAIL_RECORDS: (HOME, "other", 1, False, None)})
    assert tail_of(station) == ()
    assert numbers(station) == {b"old": None}


@pytest.mark.parametrize(("stored_below", "expected"), [(0, None), (3, 4), (4, 4), (5, None), (BASE + 1, None)])
def test_however_many_the_home_had_not_on_its_disk_are_among_the_newest(
    stored_below: int, expected: int | None
) -> None:
    """A batch may have more records than those that always are."""
    assert numbers(adopted(NEWEST, stored_below=stored_below)) == {b"old": expected, b"a": BASE + 1, b"b": BASE + 3}


def test_what_came_behind_a_hand_over_is_taken_from_the_copy() -> None:
    session = adopted(NEWEST, is_here=True, handed=1_000, is_leaving=True).broker.sessions["c"]
    assert isinstance(session, Session)
    assert [each.message.payload for each in session.queued() if each.message is not None] == [b"old", b"a", b"b"]


@pytest.mark.parametrize(
    ("handed", "unstored", "expected"),
    [(999, (), [b"old", b"a", b"b"]), (1_000, (), []), (1_000, ((1, BASE), (BASE + 3, BASE + 4)), [b"b"])],
)
def test_an_older_copy_of_what_its_home_has_handed_over_is_not_taken(
    handed: int, unstored: tuple[tuple[int, int], ...], expected: list[bytes]
) -> None:
    """But for what was never on the disk of that home. The claim of the copy is 1,000."""
    session = adopted(NEWEST, is_here=True, handed=handed, unstored=unstored).broker.sessions["c"]
    assert isinstance(session, Session)
    assert [each.message.payload for each in session.queued() if each.message is not None] == expected


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_adopted", [False, True])
def test_packet_identifiers_of_the_newest_go_back(is_restarted: bool, is_adopted: bool) -> None:
    """is_adopted: the session is from the copy of this node's store, and who has adopted it hands them on."""
    home = Home()
    session = durable(home, "c")
    at = home.sessions.homes.by_client["c"] = home.sessions.homes.made("c", 1)
    first = home.journal.next_number
    for packet_id in (1, 2):
        session.note_received(packet_id)
    assert session.incoming is not None
    newest = session.incoming[2]
    at.adopts((STORES["n2"], 31, first, home.journal.next_number, 1, ((newest, newest + 1, 30),)))
    departing = home.sessions.moves.depart(session, at, home.node.senders["n2"], (5, STORES["n2"]), Marks([], 0.0), 0.0)
    if is_restarted:
        departing = again(departing, session)
    departing.is_adopted = is_adopted
    shown: list[object] = []
    for frame in departing.take_head(0.0, 0.0):
        _, records, *_ = decode_session_frame(frame[HEADER_SIZE:]).more
        assert isinstance(records, tuple)
        shown += [record for record in records if record[0] in (BLOCK_OF, RECEIVED)]
    assert shown == ([] if is_adopted else [(BLOCK_OF, "n2", STORES["n2"], 30), (RECEIVED, 0, 2)])


def test_packet_identifiers_of_the_newest_are_known() -> None:
    station = adopted({3: (RECEIVED, 1, 5), BASE: (RECEIVED, 1, 9)})
    session = station.broker.sessions["c"]
    assert isinstance(session, Session)
    assert session.incoming is not None
    assert {packet_id: number_there(tail_of(station), record) for packet_id, record in session.incoming.items()} == {
        5: None,
        9: BASE,
    }


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_newest_go_back_however_many_blocks_were_relayed_since(is_restarted: bool) -> None:
    """Of what the copy had, older ones are left out; one that is in doubt goes without a number."""
    home = Home()
    session = durable(home, "c")
    at = home.sessions.homes.by_client["c"] = home.sessions.homes.made("c", 1)
    first = home.journal.next_number
    made = []
    for payload in (b"older", b"known", b"doubt"):
        number = home.journal.next_number
        publish(session, payload)
        made.append((number, home.journal.next_number))
    tail = (*made[1], 30), (*made[2], 0)
    at.adopts((STORES["n2"], 31, first, home.journal.next_number, 1, tail))
    publish(session, b"since")
    relayed = home.sessions.moves.relayed
    for number in range(2 * RELAYED_MAX):
        relayed.add(10_000 + number, 10_001 + number, STORES["n2"], "n3", STORES["n3"], number)
    departing = home.sessions.moves.depart(session, at, home.node.senders["n2"], (5, STORES["n2"]), Marks([], 0.0), 0.0)
    if is_restarted:
        departing = again(departing, session)
    shown: list[object] = []
    for frame in departing.take_messages(0.0):
        _, records, *_ = decode_session_frame(frame[HEADER_SIZE:]).more
        assert isinstance(records, tuple)
        shown += [record[2][2] if record[0] == OUTGOING else record for record in records]
    assert shown == [(BLOCK_OF, "n2", STORES["n2"], 30), b"known", NOT_COPIED, b"doubt", b"since"]


@pytest.mark.parametrize("goes_back", [True, False])
@pytest.mark.parametrize("is_back", [True, False])
def test_messages_of_a_copy_are_known_behind_a_second_hand_over(goes_back: bool, is_back: bool) -> None:
    """A third node has the session from who had adopted it, and hands it on: to the home of the copy, which has what is no
    record that it may lack, or to another one. is_back: that home has handed on itself what it had."""
    since = COPIED, STORES["n2"], 1
    known = BLOCK_OF, "n2", STORES["n2"], 30
    doubt = BLOCK_OF, "n2", STORES["n2"], 0
    home = Home()
    session = durable(home, "c")
    at = home.sessions.homes.by_client["c"] = home.sessions.homes.made("c", 1)
    at.adopts((STORES["n2"], 31, 0, 0, 0, ()))
    relayed = home.sessions.moves.relayed
    came = Came(relayed, home.broker.identity, [], None)
    marked = ((since,), b"a"), ((), b"b"), ((known, since), b"c"), ((doubt, since), b"d"), ((NOT_COPIED,), b"e")
    for marks, payload in marked:
        for mark in marks:
            came.note(mark)
        body = (MESSAGE, b"t", payload, 2, False, b"", 0.0, "p")
        take_outgoing(home.broker, session, (OUTGOING, 0, body, 2, False, (), 0.0, 0, QUEUED), False, came, 0.0)
    if is_back:
        assert not at.was_not_lost(STORES["n2"], 1)
    to = "n2" if goes_back else "n3"
    departing = home.sessions.moves.depart(session, at, home.node.senders[to], (5, STORES[to]), Marks([], 0.0), 0.0)
    taken = list(shown(departing.take_messages(0.0)))
    rest = [b"d", b"e"]
    if is_back:
        assert taken == [b"a", b"b", b"c", *rest]
    elif goes_back:
        assert taken == [known, b"c", NOT_COPIED, *rest]
    else:
        assert taken == [since, b"a", b"b", known, since, b"c", NOT_COPIED, *rest]


@pytest.mark.parametrize("is_adopted", [True, False])
def test_a_home_says_to_its_adopter_of_which_block_each_message_is(is_adopted: bool) -> None:
    """The node of that block may not have heard that it was done, and has brought it to the adopter
    (nodes_stand_still_with_their_clients 504 brought QoS 2 twice)."""
    home = Home()
    session = durable(home, "c")
    at = home.sessions.homes.by_client["c"] = home.sessions.homes.made("c", 1)
    for payload in (b"copied", b"of a client"):
        publish(session, payload)
    newest = session.queued()[1].record
    first = home.journal.next_number
    publish(session, b"of a block")
    home.sessions.moves.relayed.positions.records.add(first, home.journal.next_number, ("n3", STORES["n3"], 7))
    departing = home.sessions.moves.depart(session, at, home.node.senders["n2"], (5, STORES["n2"]), Marks([], 0.0), 0.0)
    if is_adopted:
        departing.note_adopted(newest)
    taken = list(shown(departing.take_messages(0.0)))
    marked = [b"of a client", (BLOCK_OF, "n3", STORES["n3"], 7), b"of a block"]
    assert taken == (marked if is_adopted else [b"copied", b"of a client", b"of a block"])


@pytest.mark.parametrize("is_made_here", [True, False])
def test_an_adopter_leaves_out_what_others_have_brought_of_what_the_home_hands_over(is_made_here: bool) -> None:
    """What the client may have got from that home goes on with its packet identifier. is_made_here: of the copy."""
    home = Home()
    home.sessions.homes.starting_until = 0.0
    session = durable(home, "c")
    at = home.sessions.homes.by_client["c"] = home.sessions.homes.made("c", 10)
    at.adopts((STORES["n2"], 31, *((1, 2, 9, ()) if is_made_here else (0, 0, 0, ()))))
    first = home.journal.next_number
    for payload in (b"waits", b"was sent"):
        publish(session, payload)
    block = "n3", STORES["n3"], 7
    home.sessions.moves.relayed.add(first, home.journal.next_number, STORES["n2"], *block)
    publish(session, b"was sent")  # another one with this content

    def record(payload: bytes, state: int, packet_id: int) -> tuple[object, ...]:
        body = (MESSAGE, b"t", payload, 2, False, b"", 0.0, "p")
        return OUTGOING, 0, body, 2, False, (), 0.0, packet_id, state

    marked = record(b"waits", QUEUED, 0), record(b"was sent", AWAIT_PUBREC, 3)
    new = (BLOCK_OF, "n3", STORES["n3"], 8), record(b"new", QUEUED, 0)
    home.hear("n2", HAND, (10, home.broker.identity.store_id), ("n2",), ((BLOCK_OF, *block), *marked, *new), 9)
    queue = [each.message.payload for each in session.queued() if each.message is not None]
    sent = [] if session.inflight is None else session.inflight.messages()
    assert [each.packet_id for each in sent] == [3]
    if is_made_here:
        assert queue == [b"waits", b"was sent", b"new"]
    else:
        assert queue == [b"waits", b"was sent", b"was sent", b"waits", b"new"]
    counters = home.broker.counters
    assert counters.copies == counters.redelivered + len(queue) + len(sent)


@pytest.mark.parametrize("count", [1, 30, 31, 32, 200])
def test_both_marks_of_the_newest_are_in_each_frame(count: int) -> None:
    """However many messages stand between them and the end of a frame."""
    home = Home()
    session = durable(home, "c")
    at = home.sessions.homes.by_client["c"] = home.sessions.homes.made("c", 1)
    first = home.journal.next_number
    made = []
    for number in range(count + 1):
        made.append((home.journal.next_number, number))
        publish(session, b"%d" % number)
    end = home.journal.next_number
    tail = tuple((number, number + 3, 1_000 + at) for number, at in made[:count])
    at.adopts((STORES["n2"], 5_000, first, end, 1, tail))
    departing = home.sessions.moves.depart(session, at, home.node.senders["n3"], (5, STORES["n3"]), Marks([], 0.0), 0.0)
    found: dict[bytes, object] = {}
    for frame in departing.take_messages(0.0):
        came = Came(Relayed(), home.broker.identity, [], None)
        for each in shown([frame]):
            if isinstance(each, bytes):
                came.took(1, 2)
                found[each] = came.marks
            else:
                came.note(each)
    copied = COPIED, STORES["n2"], 1
    assert found == {
        b"%d" % number: ((BLOCK_OF, "n3", STORES["n2"], 1_000 + number), copied) for number in range(count)
    } | {b"%d" % count: (copied,)}


def shown(frames: list[bytes]) -> Iterator[Any]:
    """Payloads of messages, and other records."""
    for frame in frames:
        _, records, *_ = decode_session_frame(frame[HEADER_SIZE:]).more
        assert isinstance(records, tuple)
        yield from (record[2][2] if record[0] == OUTGOING else record for record in records)


def publish(session: Session, payload: bytes) -> None:
    session.deliver(Message(b"t", payload, 2, False), 2, False, (), None, 0.0)


def again(departing: Departing, session: Session) -> Departing:
    """The node has started again."""
    later = Home()
    later.journal.kept[900] = StoredDeparture(departing.values(0.0), session)
    restore(later.broker, later.sessions.homes, later.sessions.moves)
    (restored,) = later.sessions.moves.departing["c"]
    return restored
