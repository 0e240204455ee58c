"""What the store keeps for other nodes: over a stop, over another name of this node, and as records that nobody wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.codec.packets import SubscribeFilter
from broker.codec.writer import encode_publish
from broker.hooks import NO_GROUPS
from broker.message import Message
from broker.session.durable import attach_records
from broker.session.session import Session
from broker.store.identity import StoreIdentity
from broker.store.kinds import INTEREST, OUTBOX, POSITION
from federation.pb import federation_pb2 as pb
from federation.replication.copies import ADOPTED_SECONDS_MAX
from federation.serf.events import Member, MemberFailed, MemberJoin, MemberLeave, MemberReap, MemberStatus
from federation.sessions.wire import MOVE, encode_session_frame
from federation.settings import FederationSettings
from federation.stream.counters import DropReason
from federation.stream.frames import (
    GROUP_COPY,
    HEADER_SIZE,
    encode_block_header,
    encode_copy_head,
    encode_frame,
    encode_packet,
)
from federation.stream.go_events import receive_event
from federation.stream.receiver import OpenStream
from federation.stream.receivers import NotAMember
from federation.stream.state import State
from federation.tags import own_tags
from stored_node import STORE_ID, Station

OTHER = Member("n2", "127.0.0.1", 8902, own_tags("127.0.0.1:8901", True), MemberStatus.ALIVE)
STORED = replace(OTHER, tags=own_tags("127.0.0.1:8901", True, StoreIdentity("6" * 32, 1, True)))
MESSAGE = Message(b"t", b"x", 1, False)


def away() -> Station:
    """Of a node with a message for another one, which wants it and is away."""
    station = Station({})
    station.node.member_events([MemberJoin(OTHER)], 0.0)
    station.node.tree.add_interest("n2", b"", b"t")
    station.node.senders["n2"].forward(MESSAGE, NO_GROUPS, 0.0)
    station.commit()
    assert station.kinds() == sorted([OUTBOX, INTEREST], key=str)
    return station


def test_a_node_that_stops_keeps_what_waits_for_others() -> None:
    station = away()
    station.node.stopped()
    station.commit()
    again = Station(station.disk, starts=2)
    assert again.node.senders["n2"].outbox.size > 0
    assert [peer.name for peer in again.broker.router.lookup(b"t").peers] == ["n2"]


def test_a_node_with_a_store_that_left_gets_what_was_published_meanwhile() -> None:
    station = away()
    node = station.node
    node.member_events([MemberLeave(STORED)], 1.0)
    assert station.state() == State.STOPPED
    node.senders["n2"].forward(MESSAGE, NO_GROUPS, 2.0)
    assert node.senders["n2"].outbox.size > 0
    node.member_events([MemberJoin(STORED)], 3.0)
    assert station.state() == State.HELLO


def test_a_leave_that_is_heard_after_the_node_was_taken_for_failed_costs_nothing_unless_it_was_forced() -> None:
    station = away()
    node = station.node
    node.member_events([MemberJoin(STORED), MemberFailed(STORED)], 1.0)
    node.member_events([MemberLeave(STORED)], 2.0)
    assert station.state() == State.STOPPED
    assert node.senders["n2"].outbox.size > 0
    node.handle_timeout(1.0 + node.settings.outbox_age_max)
    assert node.senders["n2"].outbox.size == 0, "it is away since it failed"
    node.member_events([MemberLeave(STORED)], 3.0)  # of one that was given up
    node.member_events([MemberLeave(STORED, is_forced=True)], 4.0)
    assert node.senders == {}
    assert node.counters["n2"].dropped[DropReason.PEER_GONE] == 1


def test_a_node_that_left_is_given_up_with_its_time_and_forgotten_when_it_is_reaped() -> None:
    station = away()
    node = station.node
    node.member_events([MemberLeave(STORED)], 1.0)
    node.handle_timeout(1.0 + 2 * node.settings.outbox_age_max)
    sender = node.senders["n2"]
    sender.append_session(b"frame", 3, True, 2.0)
    assert sender.outbox.size == 0
    assert sender.counters.dropped[DropReason.PEER_GONE] == 4
    station.commit()
    assert INTEREST in station.kinds()
    assert OUTBOX not in station.kinds()
    node.member_events([MemberReap(STORED)], 2.0)
    assert node.senders == {}
    station.commit()
    assert station.disk == {}


def test_a_node_that_is_no_member_after_a_start_can_be_forgotten() -> None:
    again = Station(away().disk, starts=2)
    assert again.node.forget("n2")
    assert not again.node.forget("n2")
    again.commit()
    assert again.disk == {}
    again.node.member_events([MemberJoin(OTHER)], 0.0)
    assert not again.node.forget("n2"), "it is a member"


def test_a_node_that_is_no_member_after_a_start_is_forgotten_with_its_time() -> None:
    again = Station(away().disk, starts=2)
    again.node.handle_timeout(again.node.settings.outbox_age_max)
    assert again.node.senders == {}
    again.commit()
    assert again.disk == {}


def test_a_start_writes_no_interest_that_is_there() -> None:
    again = Station(away().disk, starts=2)
    assert again.journal.changes == {}


def test_a_node_that_leaves_gives_up_what_waits_for_others() -> None:
    station = away()
    station.node.left()
    station.commit()
    assert station.disk == {}
    assert station.node.counters["n2"].dropped[DropReason.PEER_GONE] == 1


def test_a_node_with_the_name_of_another_one_before_keeps_nothing_for_itself() -> None:
    again = Station(away().disk, "n2", starts=2)
    assert again.node.senders == {}
    again.commit()
    assert again.disk == {}


def test_a_living_node_with_the_same_store_id_is_named_and_sends_nothing() -> None:
    node = Station({}).node
    node.member_events([MemberJoin(STORED)], 0.0)
    assert node.receivers.hello("n2", "session", "6" * 32) == (True, 0)
    assert node.twin() == ""
    with pytest.raises(NotAMember):
        node.receivers.hello("n2", "session", STORE_ID)
    assert node.twin() == "n2"
    node.member_events([MemberFailed(STORED)], 1.0)
    assert node.twin() == ""


@pytest.mark.parametrize(
    "record",
    [
        (OUTBOX,),
        (OUTBOX, 2, 1, 0, 0.0, 1, 1, b"", (), None),
        (OUTBOX, "n2", "1", 0, 0.0, 1, 1, b"", (), None),
        (OUTBOX, "n2", 0, 0, 0.0, 1, 1, b"", (), None),
        (OUTBOX, "n2", 1, 0, None, 1, 1, b"", (), None),
        (OUTBOX, "n2", 1, 0, 0.0, 1, 1, "", (), None),
        (OUTBOX, "n2", 1, 0, 0.0, 1, 1, b"abc", ((9, -4, 0.0),), None),
        (OUTBOX, "n2", 1, 0, 0.0, 1, 1, b"abc", (3,), None),
        (OUTBOX, "n2", 1, 0, 0.0, 1, 1, b"abc", (), (("t", True),)),
        (POSITION, STORE_ID, 1),
        (POSITION, 1, 1, 0),
        (POSITION, STORE_ID, "1", 0),
        (POSITION, STORE_ID, 1, None),
        (POSITION, STORE_ID, 1, 0, None),
        (POSITION, STORE_ID, 1, 0, "n2", "n3"),
        (POSITION, STORE_ID, 1, 0, "n2", ((1, "2"),)),
        (POSITION, STORE_ID, 1, 0, "n2", ((1, 2),), 3),
        (INTEREST, "n2"),
        (INTEREST, b"n2", ()),
        (INTEREST, "n2", None),
        (INTEREST, "n2", (b"t",)),
        (INTEREST, "n2", ((b"", "t", b""),)),
        (INTEREST, "n2", ((b"", b"a/#/b", b""),)),
        (INTEREST, "n2", ((b"", b"t", b""), (b"", b"t", b""))),
    ],
)
def test_a_record_that_no_node_has_written_is_refused(record: tuple[object, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Station({7: record})


def test_a_position_without_a_node_belongs_to_the_first_one_that_says_its_store() -> None:
    """Builds before wrote it so."""
    station = Station({7: (POSITION, "6" * 32, 9, 1)})
    station.node.member_events([MemberJoin(STORED), MemberJoin(replace(STORED, name="n3"))], 0.0)
    receivers = station.node.receivers
    for name in ("n2", "n3"):
        receivers.hello(name, "session", "6" * 32)
    position = receivers.get("n2").position
    assert (position.serial, position.done) == (9, 1)
    assert receivers.get("n3").position.serial == 0
    assert position.values(0.0) == (POSITION, "6" * 32, 9, 1, "n2")


def test_two_positions_of_one_store_are_refused() -> None:
    with pytest.raises(ValueError, match="second"):
        Station({7: (POSITION, STORE_ID, 1, 0, "n2"), 8: (POSITION, STORE_ID, 2, 0, "n2")})


@pytest.mark.parametrize(
    ("is_direct", "starts", "more"), [(False, 1, 0.0), (True, 1, ADOPTED_SECONDS_MAX), (True, 2, 0.0)]
)
def test_a_start_waits_for_the_interest_of_members_that_tell_when_it_is_whole(
    is_direct: bool, starts: int, more: float
) -> None:
    """A new store may be let in late: in the place of a lost one."""
    station = Station({}, starts=starts)
    station.node.begin(0.0, True)
    assert station.broker.unheard is not None
    station.node.turn_ended(0.1)
    assert station.broker.unheard is not None, "nobody was heard"
    member = replace(OTHER, tags=own_tags("127.0.0.1:8901", is_direct))  # a Go broker, where it is not
    station.node.member_events([MemberJoin(member)], 0.2)
    station.node.turn_ended(0.2)
    assert (station.broker.unheard is not None) == is_direct
    before = FederationSettings().startup_wait + more - 0.1
    station.node.handle_timeout(before)
    station.node.turn_ended(before)
    assert (station.broker.unheard is not None) == is_direct
    station.node.outlets.take_ready()
    assert station.node.next_timeout() > before, "the node sleeps until then"
    station.node.turn_ended(FederationSettings().startup_wait + more)
    assert station.broker.unheard is None


@pytest.mark.parametrize("joins_others", [True, False])
def test_a_start_waits_for_other_machines_where_there_are_some_to_join(joins_others: bool) -> None:
    """Workers of a machine that has lost its disks tell each other that they want nothing. Once that was enough to publish."""
    station = Station({}, starts=1)
    station.node.siblings = {"n1~1": "unix:///nowhere"}
    station.node.begin(0.0, True, joins_others)
    station.node.member_events([MemberJoin(replace(OTHER, name="n1~1"))], 0.1)
    station.node.receivers.get("n1~1").has_interest = True
    station.node.turn_ended(0.1)
    assert (station.broker.unheard is not None) == joins_others
    if joins_others:
        assert station.node.next_timeout() <= FederationSettings().startup_wait
        station.node.member_events([MemberJoin(OTHER)], 0.2)
        station.node.turn_ended(0.2)
        assert station.broker.unheard is not None, "its interest is not known yet"
        station.node.receivers.get("n2").has_interest = True
        station.node.turn_ended(0.3)
        assert station.broker.unheard is None


class Silent(OpenStream):
    """A stream that nothing may end."""

    def end(self, text: str, malformed: bool = False) -> None:
        raise AssertionError(text)


def copy_frame(number: int, qos: int, payload: bytes) -> bytes:
    message = Message(b"t", payload, qos, False)
    return encode_frame(GROUP_COPY, encode_copy_head(number, 0, 0, b"g", b"t") + encode_packet(message, 5))


@pytest.mark.parametrize("is_direct", [True, False])
def test_copies_of_a_group_that_were_done_by_the_process_before_come_again(is_direct: bool) -> None:
    """What it had in memory is lost, and the node that chose waits for their ends: once, and not those of QoS 2, which another
    member may have got."""
    store_id = "6" * 32
    station = Station({1: (POSITION, store_id, 5, 3, "n2")}, starts=2)
    station.node.member_events([MemberJoin(STORED)], 0.0)
    member = Session(station.broker, "member", 0.0)
    member.expiry_interval = 100
    station.broker.sessions["member"] = member
    station.broker.subscribe_one(member, SubscribeFilter(b"$share/g/t", 2, False, False, 0), 0)
    receiver = station.node.receivers.by_name["n2"]
    frames = [copy_frame(7, 1, b"a"), copy_frame(0, 2, b"b"), copy_frame(8, 1, b"c"), copy_frame(9, 1, b"d")]

    def receive(session_id: str) -> list[bytes]:
        """The payloads that the member gets when the block comes in a session of its own."""
        assert receiver.hello(session_id, store_id) == (True, 0)
        stream = Silent()
        receiver.open_stream(stream, 0.0)
        if is_direct:
            receiver.receive_batch(stream, 0, 4, b"".join(frames), 0.0, serial=5)
        else:
            for place, frame in enumerate(frames, 1):
                event = pb.Event(id=place - 1, serial=5, place=place, frame=frame)
                receive_event(receiver, stream, event.SerializeToString(), 0.0)
        assert receiver.next_event_id == 4
        receiver.close_stream(stream)
        got = [outgoing.message.payload for outgoing in member.queued() if outgoing.message is not None]
        member.queue = None
        return got

    assert receive("first") == [b"a", b"c", b"d"]
    assert receive("second") == []


@pytest.mark.parametrize("skipped", [0, 1])
def test_records_of_a_block_that_came_as_a_whole_are_known(skipped: int) -> None:
    """skipped: how much of it had come before."""
    store_id = "6" * 32
    station = Station({})
    station.node.member_events([MemberJoin(STORED)], 0.0)
    session = Session(station.broker, "c", 0.0)
    session.expiry_interval = 100
    attach_records(session, station.journal)
    station.broker.sessions["c"] = session
    station.broker.subscribe_one(session, SubscribeFilter(b"t", 2, False, False, 0), 0)
    receiver = station.node.receivers.by_name["n2"]
    receiver.hello("session", store_id)
    stream = Silent()
    receiver.open_stream(stream, 0.0)
    packets = b"".join(encode_publish(4, b"t", b"x", 1, False, False, 1, b"") for _ in range(8))
    first = station.journal.next_number
    data = encode_block_header(4, 8, len(packets)) + packets
    receiver.receive_batch(stream, 0, 8, data, 0.0, serial=7, skipped=skipped)
    queued = [outgoing.record for outgoing in session.queued()]
    assert queued
    assert min(queued) > first
    records = receiver._positions.records
    assert {records.of(number) for number in queued} == {None if skipped else ("n2", store_id, 7)}
    assert records.of(first - 1) is None


def test_a_switch_for_a_former_home_that_is_not_known_yet_outlives_the_process() -> None:
    """So does the one for the new home: both of them, or none."""
    station = Station({})
    node = station.node
    node.member_events([MemberJoin(STORED)], 0.0)
    assert node.sessions is not None
    move = encode_session_frame(MOVE, "c", (1, "6" * 32), ("n3",))
    node.sessions.receive("n2", move[HEADER_SIZE:], 0.0)
    for name in ("n2", "n3"):
        assert node.senders[name].outbox.is_next_unstored()
    station.commit()
    again = Station(station.disk, starts=2)
    for name in ("n2", "n3"):
        assert again.node.senders[name].outbox.size > 0
