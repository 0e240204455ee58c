"""A session that leaves for another node: whose messages it takes, and what still comes of a former home."""

from __future__ import annotations

import pytest

from broker.hooks import NO_GROUPS
from broker.message import Message
from broker.publisher import NodePublisher
from broker.session.durable import attach_records
from broker.session.session import Session
from broker.store.kinds import OUTGOING
from broker.store.restoring import StoredDeparture
from federation.sessions.arriving import HANDING_SECONDS_MAX, Arriving
from federation.sessions.content import checked_hand
from federation.sessions.departing import OLDER_SECONDS, Departing, Marks
from federation.sessions.stored import restore
from federation.sessions.wire import (
    AWAITED,
    BLOCK_OF,
    CLAIM,
    COPIED,
    HAND,
    HANDED,
    HEAD_END,
    INCLUDES,
    MOVE,
    NOT_COPIED,
    SWITCH,
    Record,
    decode_session_frame,
)
from federation.stream.frames import HEADER_SIZE, FrameError
from session_home import STORES, SUBSCRIPTION, Home, session_records, subscribed
from stored_node import STORE_ID

NEXT = (5, STORES["n2"])
KINDS = OUTGOING, HEAD_END, HANDED


def leaving(home: Home) -> Departing:
    """n2 has claimed the session, when this node knows n2 alone."""
    session = Session(home.broker, "c", 0.0)
    home.broker.sessions["c"] = session
    subscribed(home.broker, session)
    at = home.sessions.homes.by_client["c"] = home.sessions.homes.made("c", 1)
    senders = home.node.senders
    others = {name: senders.pop(name) for name in ("n3", "n4")}
    found = home.sessions.moves.depart(session, at, senders["n2"], NEXT, Marks([], 0.0), 0.0)
    senders.update(others)
    return found


def takes(departing: Departing, name: str, now: float) -> bool:
    return departing.takes(Message(b"t", b"x", 2, False), 2, False, (), NodePublisher(name), now)


@pytest.mark.parametrize("is_starting", [False, True])
def test_a_process_that_has_just_started_takes_messages_of_nodes_that_it_did_not_know(is_starting: bool) -> None:
    home = Home()
    home.sessions.homes.starting_until = 10.0 if is_starting else 0.0
    departing = leaving(home)
    assert [takes(departing, name, 1.0) for name in ("n1", "n2", "n3")] == [True, True, is_starting]
    home.hear("n2", SWITCH, NEXT)
    home.hear("n3", SWITCH, NEXT)
    assert [takes(departing, name, 1.0) for name in ("n2", "n3", "n4")] == [False, False, is_starting]
    assert not takes(departing, "n4", OLDER_SECONDS)


def test_a_node_that_is_met_before_the_head_leaves_is_waited_for() -> None:
    """The head may wait for longer than messages of unknown nodes are taken, and the next home tells nobody before it came.
    Once what such a node published behind that was for neither of them."""
    home = Home()
    home.sessions.homes.starting_until = 10.0
    departing = leaving(home)
    home.sessions.peer_known("n3", home.node.senders["n3"], 1.0)
    assert [takes(departing, name, OLDER_SECONDS) for name in ("n3", "n4")] == [True, False]
    frames = [decode_session_frame(frame[HEADER_SIZE:]) for frame in departing.take_head(OLDER_SECONDS, 0.0)]
    (awaited,) = [record for frame in frames for record in checked_hand(frame.more)[1] if record[0] == AWAITED]
    assert awaited[1] == ("n2", "n3")
    home.sessions.peer_known("n4", home.node.senders["n4"], OLDER_SECONDS)
    assert not takes(departing, "n4", OLDER_SECONDS), "the next home does not wait for it"
    home.hear("n3", SWITCH, NEXT)
    assert not takes(departing, "n3", OLDER_SECONDS)


def test_what_a_node_sends_to_the_next_home_does_not_come_back_to_this_one_when_it_starts_again() -> None:
    """Seed 20 of nodes_start_again_while_clients_move: it heard of this home first, and said that it sends here; the next home
    took what it published, too."""
    home = Home()
    session, _ = session_records()
    home.hear("n4", HAND, (20, STORE_ID), ("n4",), (session, SUBSCRIPTION, (HEAD_END,)), 10)
    home.commit()
    later = 25, STORES["n2"]
    home.hear("n2", CLAIM, later, False, False, False)
    (departing,) = home.sessions.moves.departing["c"]
    assert home.sessions.homes.move("c", "n3")[0], "what n3 sends is for this home, or one before"
    home.hear("n3", SWITCH, later)
    assert home.sessions.homes.move("c", "n3") == (b"", 0), "and now for the next one"
    home.hear("n3", SWITCH, (20, STORE_ID))
    assert not takes(departing, "n3", 0.0)


def test_a_restart_keeps_which_nodes_have_switched_and_what_homes_were_told() -> None:
    home = Home()
    home.sessions.homes.starting_until = 10.0
    departing = leaving(home)
    departing.session.expiry_interval = 60
    attach_records(departing.session, home.journal)
    home.hear("n2", SWITCH, NEXT)
    departing.said = (9, STORES["n3"])
    record = departing.values(0.0)
    again = Home()
    again.journal.kept[900] = StoredDeparture(record, Session(again.broker, "c", 0.0))
    restore(again.broker, again.sessions.homes, again.sessions.moves)
    (restored,) = again.sessions.moves.departing["c"]
    assert restored.switched_nodes() == ["n2"]
    assert restored.said == (9, STORES["n3"])
    again.journal.kept[900] = StoredDeparture(record[:-1], Session(again.broker, "d", 0.0))  # of an earlier build
    restore(again.broker, again.sessions.homes, again.sessions.moves)
    assert again.sessions.moves.departing["d"][0].said == (0, "")
    assert [takes(restored, name, 1.0) for name in ("n1", "n2", "n3")] == [True, False, True]
    assert not takes(restored, "n3", OLDER_SECONDS)


@pytest.mark.parametrize("lives", [True, False])
def test_a_session_that_leaves_waits_for_its_former_home_and_keeps_the_order(lives: bool) -> None:
    """Its head does not wait that long."""
    home = Home()
    session, _ = session_records()
    subscription = (2, 0, b"t", 2, False, False, 0, 0)
    home.hear("n3", HAND, (20, STORE_ID), ("n3",), (session, subscription, (HEAD_END,)), 15)
    home.hear("n2", SWITCH, (20, STORE_ID))
    home.hear("n4", CLAIM, (25, STORES["n4"]), True, False, False)
    home.said("n4")
    moves = home.sessions.moves
    if not lives:
        home.node.senders["n3"].is_living = False

    def handed(now: float) -> list[object]:
        moves.turn_ended(now)
        home.commit()
        frames = [frame.more[1] for frame in home.said("n4") if frame.operation == HAND]
        records = [record for part in frames if isinstance(part, tuple) for record in part]
        return [record[2][2] if record[0] == OUTGOING else record[0] for record in records if record[0] in KINDS]

    assert handed(HANDING_SECONDS_MAX - 0.1) == []
    home.node.receivers.by_name["n2"].publish(Message(b"t", b"direct", 2, False), NO_GROUPS, 0.0)
    assert handed(HANDING_SECONDS_MAX) == ([HEAD_END] if lives else [HEAD_END, b"direct"])
    home.hear("n3", HAND, (20, STORE_ID), ("n3",), (outgoing(b"former"), (HANDED,)), 15)
    assert handed(HANDING_SECONDS_MAX + 1) == ([b"former", b"direct"] if lives else [b"former", HANDED])


def test_a_session_stays_until_a_node_that_was_away_has_relayed_what_it_had_for_a_lost_home() -> None:
    """The node said first where it sends, and the session was forgotten before the rest came
    (machines_are_cut_off_while_clients_move 17 lacked four messages)."""
    home = Home()
    departing = leaving(home)
    moves = home.sessions.moves
    departing.before = Arriving(departing.session, (1, STORE_ID), "n1", {})
    departing.before.lost["n3"] = "store"
    departing.before.relaying["n4"] = "store"
    departing.waiting.clear()
    while moves.turn_ended(OLDER_SECONDS):
        pass
    assert departing.take_end([])  # while n4 was away
    moves.turn_ended(OLDER_SECONDS + 1.0)
    assert moves.departing["c"] == [departing]
    assert departing not in moves.due
    assert home.node.copies is not None
    home.node.copies.adoptions.handed_over("n4", "store", False, OLDER_SECONDS + 1.0)
    moves.turn_ended(OLDER_SECONDS + 1.0)
    assert not moves.departing


def test_what_waits_for_a_hand_over_that_has_gone_past_follows_it() -> None:
    """The session came from n2 and goes on to n4 while n3, which was its home, too, is expected to hand over; what n3 has comes
    for a claim of before, so all of it goes on at once. Once direct messages waited here for as long as for a dead home."""
    home = Home()
    session, _ = session_records()
    subscription = (2, 0, b"t", 2, False, False, 0, 0)
    home.hear("n2", HAND, (20, STORE_ID), ("n2",), (session, subscription, (HEAD_END,), (HANDED,)), 15)
    home.hear("n2", SWITCH, (20, STORE_ID))
    arriving = home.sessions.homes.by_client["c"].arriving
    assert arriving is not None
    arriving.expect((14, STORES["n3"]), 0.0)
    home.hear("n4", CLAIM, (25, STORES["n4"]), True, False, False)
    home.node.receivers.by_name["n2"].publish(Message(b"t", b"direct", 2, False), NO_GROUPS, 0.0)
    home.commit()
    home.hear("n3", HAND, (20, STORE_ID), ("n3",), (session, subscription, (HEAD_END,), outgoing(b"former")), 14)
    home.hear("n3", HAND, (20, STORE_ID), ("n3",), ((HANDED,),), 14)
    home.sessions.moves.turn_ended(0.1)
    home.commit()
    frames = [frame.more[1] for frame in home.said("n4") if frame.operation == HAND]
    records = [record for part in frames if isinstance(part, tuple) for record in part]
    assert [record[2][2] for record in records if record[0] == OUTGOING] == [b"former", b"direct"]


def test_the_newest_of_a_copy_go_on_as_such_where_its_home_is_lost_once_more() -> None:
    """It goes back to n2, where the copy is from, and then to n3, which has what n2 had. Once the number of the record at n2
    was told as one of n3."""
    home = Home()
    departing = leaving(home)
    session, lost = departing.session, STORES["n2"]
    session.expiry_interval = 60
    attach_records(session, home.journal)
    for payload in (b"old", b"newest", b"own"):
        session.deliver(Message(b"t", payload, 2, False), 2, False, (), None, 0.0)
    _, newest, own = [each.record for each in session.queued()]
    departing.came(((lost, 50, 1, own, 3, ((newest, own, 40),)),), None, {})
    departing.asked, departing.asked_until = {"n4": None}, 1.0
    home.node.senders["n2"].is_living = False
    home.hear("n3", MOVE, (9, STORES["n3"]), "n2")
    home.said("n3")
    home.sessions.moves.turn_ended(1.0)
    home.commit()
    found: list[object] = []
    for frame in home.said("n3"):
        _, records, *_ = frame.more
        for record in records if frame.operation == HAND and isinstance(records, tuple) else ():
            if record[0] in (COPIED, BLOCK_OF):
                found.append(record)
            elif record[0] == OUTGOING:
                found.append(record[2][2])
    assert found == [(BLOCK_OF, "n3", lost, 40), (COPIED, lost, 3), b"newest", NOT_COPIED, b"own"]


def test_what_has_come_back_from_a_copy_of_this_store_goes_on_as_its_own() -> None:
    """The home says that it hands on all that it had: the next one left out what was still told as a copy of that
    (homes_are_lost_that_hold_with_three_copies 1 lost four messages)."""
    home = Home()
    departing = leaving(home)
    session = departing.session
    session.expiry_interval = 60
    attach_records(session, home.journal)
    session.deliver(Message(b"t", b"back", 2, False), 2, False, (), None, 0.0)
    (record,) = [each.record for each in session.queued()]
    departing.came(((STORE_ID, 50, 0, 0, 0, ()),), None, {})
    home.sessions.moves.relayed.copied(record, record + 1, ((BLOCK_OF, "n3", STORE_ID, 40), (COPIED, STORE_ID, 3)))
    (frame,) = departing.take_messages(0.0)
    records = checked_hand(decode_session_frame(frame[HEADER_SIZE:]).more)[1]
    assert [record[0] for record in records] == [OUTGOING]


def test_a_session_that_has_left_is_on_its_way_until_its_next_home_has_it() -> None:
    """That is away. A client that comes meanwhile began anew (workers_of_one_node_die 91000)."""
    home = Home()
    session = Session(home.broker, "c", 0.0)
    home.broker.sessions["c"] = session
    at = home.sessions.homes.by_client["c"] = home.sessions.homes.made("c", 1)
    home.sessions.moves.depart(session, at, home.node.senders["n2"], NEXT, Marks([], 0.0), 0.0)
    for now in (0.1, OLDER_SECONDS + 1.0):
        while home.sessions.moves.turn_ended(now):
            home.commit()
    assert home.sessions.moves.departing == {}
    assert home.sessions.moves.on_way("c") == {STORE_ID: 1}
    assert [frame.operation for frame in home.said("n2")] == [HAND, HAND]
    assert home.sessions.moves.on_way("c") == {}


def outgoing(payload: bytes) -> Record:
    _, (kind, number, message, *rest) = session_records()
    assert isinstance(message, tuple)
    return (kind, number, (*message[:2], payload, *message[3:]), *rest)


@pytest.mark.parametrize("is_included", [True, False])
@pytest.mark.parametrize(("adopted", "taken"), [(STORE_ID, [b"new"]), (STORES["n4"], [b"done", b"new"])])
def test_what_a_former_home_hands_over_to_a_session_that_leaves_again_is_known_by_its_marks(
    adopted: str, taken: list[bytes], is_included: bool
) -> None:
    """Of the copy of this node's store nothing is taken, if this one has handed it on itself, and not left it to the adopter
    (seed 111 of homes_are_lost_that_hold); of the blocks behind it those that were not done here."""
    home = Home()
    session, _ = session_records()
    home.sessions.moves.relayed.positions.of("n2", STORES["n2"]).done_whole(7)
    includes = INCLUDES, ((STORE_ID, 5),) if is_included else ()
    home.hear("n3", HAND, (20, STORE_ID), ("n3",), (session, SUBSCRIPTION, includes, (HEAD_END,)), 15)
    home.hear("n4", CLAIM, (25, STORES["n4"]), True, False, False)
    (departing,) = home.sessions.moves.departing["c"]
    of_7, of_8 = (BLOCK_OF, "n2", STORES["n2"], 7), (BLOCK_OF, "n2", STORES["n2"], 8)
    records = (COPIED, STORE_ID, 5), outgoing(b"copied"), of_7, outgoing(b"done"), of_8, outgoing(b"new")
    home.hear("n3", HAND, (20, STORE_ID), ("n3",), records, 15, adopted, 9)
    found = [each.message.payload for each in departing.session.queued() if each.message is not None]
    assert found == (taken if is_included else [b"copied", *taken])


@pytest.mark.parametrize("block", [("n2", 7), (2, "2", 7), ("n2", b"2", 7), ("n2", "2", -1), ("n2", "2", "7")])
def test_a_block_that_no_node_names_is_refused(block: tuple[object, ...]) -> None:
    with pytest.raises(FrameError):
        checked_hand((("n3",), ((BLOCK_OF, *block),), 15))
