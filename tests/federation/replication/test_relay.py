"""Blocks for a lost home, which come from their node and from who had adopted the sessions of that one."""

from __future__ import annotations

import itertools

import pytest

from broker.message import Message
from broker.session.durable import attach_records
from broker.session.session import Session
from broker.store.kinds import COPY, HOME, OUTBOX, REPLICA, SUBSCRIPTION
from broker.store.restoring import insert_restored, subscription_of
from federation.replication.relay import Adopter
from federation.serf.events import Member, MemberFailed, MemberJoin, MemberStatus
from federation.sessions.home import ADOPTED_MAX
from federation.sessions.wire import (
    ADOPTED,
    ADOPTED_SESSIONS,
    ALL,
    BLOCK,
    BLOCK_OF,
    OTHERS,
    RELAY,
    RELAYED,
    REST_OF,
    SWITCH,
    SessionFrame,
    encode_session_frame,
)
from federation.settings import FederationSettings
from federation.stream.frames import (
    GROUP_COPY,
    PUBLISH,
    FrameError,
    encode_copy_head,
    encode_frame,
    encode_groups,
    encode_packet,
)
from federation.stream.positions import POSITIONS_MAX
from federation.stream.serials import START_BITS
from federation.tags import own_tags
from lost_homes import LOST, kept_in_runs, session
from session_home import STORES, Home
from stored_node import Records, Station

OTHER = "0d" * 16
KEEPER = "0e" * 16
EARLIER, LATER = 1 << START_BITS, 2 << START_BITS
HOME_RECORDS = session("c"), (SUBSCRIPTION, 1, b"a/#", 1, False, False, 0, 0), (HOME, "c", 1_000, False, None)


def adopted(*more: tuple[object, ...]) -> Station:
    """The adopter of n2, whose client is not connected."""
    station = kept_in_runs(*HOME_RECORDS, *more)
    for name in ("n3", "n4"):
        station.node.added(name, 2.0)
    go_on(station, 2.0 + FederationSettings().replication.adopt_after)
    return station


def go_on(station: Station, now: float) -> None:
    station.node.handle_timeout(now)
    while station.node.turn_ended(now):
        station.commit()


def messages(count: int) -> bytes:
    packets = [encode_packet(Message(b"a/b", b"%d" % number, 1, False), 5) for number in range(count)]
    return b"".join([encode_frame(PUBLISH, encode_groups(()) + packet) for packet in packets])


def block(serial: int, count: int) -> bytes:
    """Of n3 itself."""
    return encode_session_frame(BLOCK, "", (0, OTHER), (serial, 0, count)) + messages(count)


def rest_of(serial: int, count: int, data: bytes | None = None) -> bytes:
    """The same from n4, which has adopted the sessions of n3."""
    return encode_session_frame(REST_OF, "", (0, OTHER), ("n3", serial, 0, count, data or messages(count)))


def relay(station: Station, name: str, data: bytes, sessions: int = ADOPTED_SESSIONS) -> None:
    """The node brings it for n2."""
    assert station.node.copies is not None
    station.node.copies.adoptions.receive(name, SessionFrame(RELAY, "", (0, OTHER), ("n2", sessions, data, 0)), 41.0)


@pytest.mark.parametrize("is_direct_first", [False, True])
@pytest.mark.parametrize(
    ("serial", "expected"), [(EARLIER | 9, 2), (LATER | 1, 4)], ids=["the same", "one that its disk lacked"]
)
def test_a_block_comes_once_from_its_node_and_from_who_had_adopted_that(
    serial: int, expected: int, is_direct_first: bool
) -> None:
    """n3 had a block for n2, died, and was adopted by n4; n2 lost its disk, and n3 is back with its own."""
    station = adopted()
    relayed = [("n3", block(serial, 2)), ("n4", rest_of(EARLIER | 9, 2))]
    for name, data in relayed if is_direct_first else reversed(relayed):
        relay(station, name, data)
    assert station.broker.sessions["c"].queue_length() == expected


@pytest.mark.parametrize("data", [block(7, 2), rest_of(7, 2)])
def test_what_was_brought_for_a_lost_home_is_known_by_its_block(data: bytes) -> None:
    """By its node, or by who has adopted that: the home hands it over, too, if it was only away."""
    station = adopted()
    relay(station, "n4" if data == rest_of(7, 2) else "n3", data)
    session = station.broker.sessions["c"]
    assert isinstance(session, Session)
    sessions = station.node.sessions
    assert sessions is not None
    relayed = sessions.moves.relayed
    mark: tuple[object, ...] = (BLOCK_OF, "n3", OTHER, 7)
    assert [relayed.marks_of(outgoing.record) for outgoing in session.queued()] == [(LOST, (mark,))] * 2
    assert relayed.was_brought(mark, LOST)
    assert not relayed.was_brought(mark, OTHER)


def test_records_of_what_a_lost_node_had_for_this_one_are_known_by_its_block() -> None:
    """That node may have brought it to the adopter of this one (nodes_are_cut_off_while_clients_are_away 93002 brought
    QoS 2 twice)."""
    home = Home()
    session = Session(home.broker, "c", 0.0)
    session.expiry_interval = 60
    attach_records(session, home.journal)
    home.broker.sessions["c"] = session
    insert_restored(home.broker, session, subscription_of(HOME_RECORDS[1], session))
    store_id = STORES["n3"]
    home.hear("n4", REST_OF, (0, store_id), "n3", 7, 0, 2, messages(2))
    positions = home.sessions.moves.relayed.positions
    assert [positions.records.of(outgoing.record) for outgoing in session.queued()] == [("n3", store_id, 7)] * 2


def test_blocks_for_a_home_before_do_not_count_as_those_for_the_lost_one() -> None:
    """n4 had adopted the sessions of n5, too, and what n3 had for that one has greater numbers."""
    station = adopted()
    relay(station, "n4", encode_session_frame(RELAY, "", (0, OTHER), ("n5", ADOPTED_SESSIONS, rest_of(9, 1), 0)))
    relay(station, "n3", block(7, 2))
    assert station.broker.sessions["c"].queue_length() == 2


@pytest.mark.parametrize("switched", ["n3", "n4"])
def test_what_a_lost_node_had_goes_where_that_has_said(switched: str) -> None:
    """One of n3, which is lost, too, and n4, which has adopted its sessions, sends for the client to a home since."""
    station = adopted()
    later = encode_session_frame(SWITCH, "c", (2_000, KEEPER), ())
    relay(station, "n4", rest_of(1, 1, later) if switched == "n3" else later)
    relay(station, "n4", rest_of(2, 2))
    assert station.broker.sessions["c"].queue_length() == (0 if switched == "n3" else 2)


def for_others(station: Station, name: str, data: bytes, below: int) -> None:
    """The node had this for n1, whose sessions with records of lower numbers were adopted, and which it reaches again."""
    assert station.node.copies is not None
    frame = SessionFrame(RELAY, "", (0, OTHER), ("n1", OTHERS, data, below))
    station.node.copies.adoptions.receive(name, frame, 41.0)


def test_an_adopter_that_was_adopted_itself_hears_that_a_node_has_relayed_all() -> None:
    """The session was never whole there, and never left it for its next home (machines_are_cut_off_while_clients_move 1)."""
    station = adopted()
    assert station.node.sessions is not None
    arriving = station.node.sessions.homes.by_client["c"].arriving
    assert arriving is not None
    arriving.relaying["n3"] = LOST
    for_others(station, "n3", encode_session_frame(RELAYED, "", (0, LOST), (False,)), 0)
    assert "n3" not in arriving.relaying


@pytest.mark.parametrize("is_in_its_copy", [False, True])
def test_what_a_node_had_for_an_adopter_that_was_adopted_itself_comes_to_sessions_that_its_copy_lacks(
    is_in_its_copy: bool,
) -> None:
    """It was lost (machines_are_cut_off_while_clients_move 2). The others get it where their adopter is."""
    station = adopted()
    for_lost = encode_session_frame(RELAY, "", (0, OTHER), ("n2", ADOPTED_SESSIONS, block(7, 2), 0))
    for_others(station, "n3", for_lost, station.journal.next_number if is_in_its_copy else 0)
    assert station.broker.sessions["c"].queue_length() == (0 if is_in_its_copy else 2)


@pytest.mark.parametrize("number", [0, 7])
@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("is_relayed", [False, True])
def test_a_copy_for_a_group_that_nobody_chooses_again_is_taken(is_relayed: bool, is_lost: bool, number: int) -> None:
    """n3 chose a member at n2. is_lost: n3 is, too, and n4 brings it. is_relayed: it chose one at n9, whose sessions n2 had
    adopted, and has chosen again when it relayed that."""
    station = adopted((SUBSCRIPTION, 1, b"$share/g/a/#", 1, False, False, 0, 0))
    head = encode_copy_head(number, 1, 0, b"g", b"a/#")
    copy = encode_frame(GROUP_COPY, head + encode_packet(Message(b"a/b", b"1", 1, False), 5))
    if is_relayed:
        copy = encode_session_frame(RELAY, "", (0, OTHER), ("n9", ADOPTED_SESSIONS, copy, 0))
    relay(station, *(("n4", rest_of(9, 1, copy)) if is_lost else ("n3", copy)))
    assert station.broker.sessions["c"].queue_length() == (0 if number and (is_relayed or not is_lost) else 1)


@pytest.mark.parametrize("is_here", [True, False])
def test_a_block_for_a_home_that_lost_its_disk_comes_once_from_who_has_adopted_its_node(is_here: bool) -> None:
    """Both were lost; n2 is back with another store, and n3 comes with its own later. is_here: the sessions of n2 are."""
    kept = (OUTBOX, "n2", EARLIER | 9, 0, 0.0, 2, 2, messages(2), (), None)
    home: Records = {10: (REPLICA, "n2", LOST, 1, 1, 7, True, ("n1",))}
    home |= {10 + number: (COPY, 10, number, record) for number, record in enumerate(HOME_RECORDS, 1)}
    station = Station(
        {**(home if is_here else {}), 20: (REPLICA, "n3", OTHER, 1, 1, 7, True, ("n1",)), 21: (COPY, 20, 1, kept)}
    )
    stores = {"n2": LOST, "n3": OTHER, "n5": KEEPER}
    tags = own_tags("127.0.0.1:8901", True)
    members = {
        name: Member(name, "127.0.0.1", 8902, {**tags, "store": store_id}, MemberStatus.ALIVE)
        for name, store_id in stores.items()
    }
    node = station.node
    node.member_events([MemberJoin(member) for member in members.values()], 0.0)
    node.member_events([MemberFailed(members["n2"])], 2.0)
    assert node.copies is not None
    if not is_here:
        node.copies.receive("n5", SessionFrame(ADOPTED, "", (0, LOST), ("n2", (), 9)), 3.0)
    wait = FederationSettings().replication.adopt_after + 1.0
    go_on(station, 2.0)
    go_on(station, 2.0 + wait)
    assert ("c" in station.broker.sessions) == is_here
    back = Member("n2", "127.0.0.1", 8902, {**tags, "store": "0f" * 16}, MemberStatus.ALIVE)
    node.member_events([MemberJoin(back)], 40.0)
    go_on(station, 40.0)
    node.member_events([MemberFailed(members["n3"])], 41.0)
    go_on(station, 41.0)
    go_on(station, 41.0 + wait)
    assert node.copies.replicas.by_store == {}
    if is_here:
        relay(station, "n3", block(EARLIER | 9, 2))
        assert station.broker.sessions["c"].queue_length() == 2
    else:
        sender = node.senders["n5"]
        sender.outbox.close_block()
        sent = b"".join([b"".join(waiting.encode(90.0)) for waiting in sender.outbox.waiting])
        assert rest_of(EARLIER | 9, 2) in sent


@pytest.mark.parametrize("sessions", [ADOPTED_SESSIONS, ALL])
@pytest.mark.parametrize("operation", [RELAY, REST_OF])
def test_blocks_within_blocks_are_bounded(operation: int, sessions: int) -> None:
    """Each level is another lost home."""

    stores = itertools.count(1)

    def nested(levels: int) -> bytes:
        data = messages(1)
        for _ in range(levels - 1):
            more = ("n3", 7, 0, 1, data) if operation == REST_OF else ("n5", sessions, data, 0)
            data = encode_session_frame(operation, "", (0, f"{next(stores):032x}"), more)
        return data

    station = adopted()
    relay(station, "n3", nested(ADOPTED_MAX), sessions)
    for levels in (ADOPTED_MAX + 1, 199):
        with pytest.raises(FrameError, match=f"{ADOPTED_MAX}"):
            relay(station, "n3", nested(levels), sessions)
    relay(station, "n3", nested(ADOPTED_MAX), sessions)


def test_positions_for_a_lost_home_are_bounded() -> None:
    adopter = Adopter("n1", LOST, ("n2", ((OTHER, 7, 2, "n3"),), 9))
    assert adopter.position_of("n3", OTHER).skips(7, 0, 3) == 2
    for number in range(POSITIONS_MAX):
        adopter.position_of("n4", f"store {number}")
    assert len(adopter.positions) == POSITIONS_MAX
