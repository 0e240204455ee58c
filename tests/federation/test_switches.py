"""Where a node sends its messages for a client that others say to be theirs: never back to a home with a lower epoch."""

from __future__ import annotations

from typing import cast

import pytest

from broker.message import Message
from broker.publisher import NodePublisher
from broker.session.outgoing import Outgoing
from broker.session.session import Session
from federation.serf.events import Member, MemberFailed, MemberJoin, MemberStatus
from federation.sessions.arriving import Arriving
from federation.sessions.wire import (
    ADOPTED,
    ADOPTED_SESSIONS,
    AWAITED,
    BLOCK,
    CLAIM,
    COPIED,
    HAND,
    HANDED,
    HEAD_END,
    INCLUDES,
    MOVE,
    OTHERS,
    RELAY,
    RELAYED,
    SWITCH,
    Record,
    decode_session_frame,
    encode_session_frame,
)
from federation.stream.frames import HEADER_SIZE, PUBLISH, encode_frame, encode_groups, encode_packet
from federation.tags import own_tags
from session_home import STORES, SUBSCRIPTION, Home, session_records, subscribed
from stored_node import STORE_ID

Records = tuple[Record, ...]
Included = tuple[tuple[str, int], ...]
LATE = 60.0
"""Seconds, by when no home is waited for that other nodes send to."""


def test_a_node_does_not_go_back_to_a_home_with_a_lower_epoch() -> None:
    """It comes with an old copy: it is told who the home is, and nobody else hears of it."""
    home = Home()
    newer, older = (20, STORES["n2"]), (10, STORES["n3"])
    home.hear("n2", MOVE, newer, "n4")
    assert [home.switches(name) for name in STORES] == [[newer], [], [newer]]
    home.hear("n3", MOVE, older, "n4")
    assert [home.switches(name) for name in STORES] == [[], [newer], []]
    newest = (30, STORES["n4"])
    home.hear("n4", MOVE, newest, "n3", "n2")
    assert [home.switches(name) for name in STORES] == [[newest], [newest], [newest]]


@pytest.mark.parametrize(("starts", "is_reached"), [(1, False), (2, False), (2, True)])
def test_a_node_that_has_started_again_tells_all_that_are_away_where_it_sends(starts: int, is_reached: bool) -> None:
    """The process before may have sent to one of them, which would take what follows, too
    (power_fails_while_clients_move 71104, QoS 2 twice)."""
    home = Home()
    home.broker.identity.starts = starts
    if is_reached:
        home.node.senders["n3"].reachable = True
    first, second = (20, STORES["n2"]), (30, STORES["n2"])
    home.hear("n2", MOVE, first, "n4")
    assert [home.switches(name) for name in STORES] == [
        [first],
        [first] if starts > 1 and not is_reached else [],
        [first],
    ]
    home.hear("n2", MOVE, second, "n4")
    assert [home.switches(name) for name in STORES] == [[second], [], [second]]


def test_what_a_former_home_hands_over_late_goes_on_to_the_home_that_is_known() -> None:
    home = Home()
    home.hear("n2", MOVE, (20, STORES["n2"]), "n1")
    assert home.switches("n2") == [(20, STORES["n2"])]
    home.hear("n3", HAND, (10, STORE_ID), ("n3",), ((HEAD_END,),), 5)
    assert home.node.sessions is not None
    assert home.node.sessions.homes.by_client == {}
    assert [(frame.operation, frame.epoch) for frame in home.said("n2")] == [(HAND, (20, STORES["n2"]))]


@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_who_adopts_an_old_copy_hears_that_nothing_that_waits_for_the_lost_home_is_for_it(
    is_acknowledged: bool,
) -> None:
    """n2 was the home, and acknowledged that the session is on n3; n4 adopts a copy of the time before."""
    home = Home()
    home.hear("n3", MOVE, (20, STORES["n3"]), "n2")
    if is_acknowledged:
        home.said("n2")
    home.hear("n4", MOVE, (30, STORES["n4"]), "n2", "n3")
    operations = [frame.operation for frame in home.said("n4")]
    assert operations == ([RELAY, SWITCH] if is_acknowledged else [SWITCH])


def test_what_waits_for_a_lost_home_goes_to_its_adopter_until_the_node_hears_where_the_session_is() -> None:
    """The session has gone on from n4, which has adopted it, before this node heard that it was there."""
    home = Home()
    home.hear("n4", ADOPTED, (0, STORES["n2"]), "n2", (), 5)
    home.said("n4")
    message = encode_session_frame(HAND, "c", (20, STORES["n2"]), ("n1", (), 10))
    home.node.senders["n2"].append_session(message, 1, True, 0.0)
    for count in (1, 0):
        home.hear("n3", MOVE, (30, STORES["n3"]), "n4", "n2")
        *relays, switch = home.said("n4")
        assert switch.operation == SWITCH, "behind what was before it"
        assert b"".join([cast(bytes, relay.more[2]) for relay in relays]).count(message) == count


@pytest.mark.parametrize("sessions", [ADOPTED_SESSIONS, OTHERS])
def test_what_a_lost_home_is_told_of_stores_comes_when_it_is_back(sessions: int) -> None:
    """What waited for it was relayed, and says that n4 has adopted a store of n3."""
    home = Home()
    told = encode_session_frame(ADOPTED, "", (0, STORES["n3"]), ("n3", (), 5))
    home.node.senders["n3"].append_session(encode_session_frame(HAND, "c", (20, STORES["n3"]), ()), 1, True, 0.0)
    home.hear("n4", RELAY, (0, STORES["n4"]), "n1", sessions, told, 0)
    operations = [frame.operation for frame in home.said("n4")]
    assert operations == ([RELAY, RELAYED] if sessions == OTHERS else [])


@pytest.mark.parametrize(("handed_on_at", "count"), [(7, 0), (8, 0), (6, 1), (None, 1)])
def test_a_copy_of_what_its_home_has_handed_on_itself_is_not_taken(handed_on_at: int | None, count: int) -> None:
    """The session here comes from n2, which was its home by the claim 7 at last; n3 has adopted a copy of it."""
    home = Home()
    own = (20, STORE_ID)
    session, outgoing = session_records()
    includes: tuple[object, ...] = () if handed_on_at is None else ((STORES["n2"], handed_on_at),)
    home.hear("n4", HAND, own, ("n4",), (session, (INCLUDES, includes), (HEAD_END,)), 15)
    home.hear("n3", HAND, own, ("n3",), ((COPIED, STORES["n2"], 7), outgoing), 8)
    assert home.broker.sessions["c"].queue_length() == count
    home.hear("n3", HAND, own, ("n3",), (outgoing,), 8)
    assert home.broker.sessions["c"].queue_length() == count + 1, "what came to the adopter is taken"


def test_a_claim_does_not_change_for_whom_messages_are() -> None:
    """Its session may never come there."""
    home = Home()
    home.hear("n2", MOVE, (20, STORES["n2"]), "n4")
    home.hear("n3", CLAIM, (30, STORES["n3"]), False, False, False)
    home.said("n4")
    home.hear("n4", MOVE, (25, STORES["n4"]), "n2")
    assert home.switches("n4") == [(25, STORES["n4"])]


def test_nodes_that_failed_are_told_when_they_are_back() -> None:
    home = Home()
    tags = {**own_tags("127.0.0.1:8901", True), "store": STORES["n3"]}
    home.node.member_events([MemberFailed(Member("n3", "127.0.0.1", 8901, tags, MemberStatus.FAILED))], 1.0)
    home.hear("n2", MOVE, (20, STORES["n2"]), "n3")
    assert home.switches("n3") == [(20, STORES["n2"])]


def test_messages_for_a_home_that_is_not_known_yet_are_not_taken() -> None:
    """This node has just started, and does not know whose store that is: it may have adopted the session."""
    home = Home()
    own = (20, STORE_ID)
    session, _ = session_records()
    home.hear("n4", HAND, own, ("n4",), (session, SUBSCRIPTION, (HEAD_END,)), 15)
    home.hear("n4", HAND, own, ("n4",), ((HANDED,),), 15)
    for name in STORES:
        home.hear(name, SWITCH, own)
    sessions = home.node.sessions
    assert sessions is not None
    session_here = home.broker.sessions["c"]

    def is_taken(name: str) -> bool:
        arriving = sessions.homes.by_client["c"].arriving
        return arriving is None or arriving.takes_from(name)

    assert is_taken("n2")
    home.hear("n2", SWITCH, (21, "9" * 32))
    assert not is_taken("n2")
    assert is_taken("n3")
    assert home.broker.sessions["c"] is session_here
    home.hear("n2", SWITCH, own)
    assert is_taken("n2")


def test_a_node_that_sends_to_a_home_that_is_not_known_is_not_asked_once_more_until_that_home_is_late() -> None:
    """Each move would be answered with the same switch. Where the home does not come, this one claims the client above it."""
    home = Home()
    own, later = (20, STORE_ID), (21, "9" * 32)
    session, _ = session_records()
    home.hear("n4", HAND, own, ("n4",), (session, SUBSCRIPTION, (HEAD_END,), (HANDED,)), 15)
    for name in STORES:
        home.hear(name, SWITCH, own)
        home.node.senders[name].news.clear()
    for _ in range(2):
        home.hear("n2", SWITCH, later)
        assert [dict(home.node.senders[name].news.moves) for name in STORES] == [{}, {}, {}]
    sessions = home.node.sessions
    assert sessions is not None
    home.node.handle_timeout(LATE)
    home.commit()
    assert "c" in home.node.senders["n2"].news.moves
    assert "c" in home.node.senders["n2"].news.claims
    here = sessions.homes.by_client["c"]
    raised = sessions.homes.epoch_of(here)
    assert raised > later
    assert here.arriving is not None
    assert not here.arriving.takes_from("n2")
    home.hear("n2", SWITCH, raised)
    assert here.arriving is None or here.arriving.takes_from("n2")


def test_a_home_that_becomes_known_gets_the_session() -> None:
    home = Home()
    session, _ = session_records()
    home.hear("n4", HAND, (20, STORE_ID), ("n4",), (session, (HEAD_END,), (HANDED,)), 15)
    home.hear("n2", SWITCH, (21, "9" * 32))
    tags = {**own_tags("127.0.0.1:8901", True), "store": "9" * 32}
    home.node.member_events([MemberJoin(Member("n5", "127.0.0.1", 8901, tags, MemberStatus.ALIVE))], 0.0)
    sessions = home.node.sessions
    assert sessions is not None
    home.node.handle_timeout(LATE)
    assert "c" not in sessions.homes.by_client
    assert [departing.home for departing in sessions.moves.departing["c"]] == ["n5"]


@pytest.mark.parametrize("is_adopted", [True, False])
def test_a_home_that_is_back_does_not_say_that_it_has_handed_on_what_its_adopter_has(is_adopted: bool) -> None:
    """Seed 7029 of power_fails_while_clients_move: what the adopter handed on of it was not taken."""
    home = Home()
    session, outgoing = session_records()
    home.hear("n4", HAND, (20, STORE_ID), ("n4",), (session, (HEAD_END,), outgoing), 15)
    home.said("n3")
    adopted = (STORE_ID, home.journal.next_number) if is_adopted else ()
    home.hear("n3", CLAIM, (30, STORES["n3"]), False, False, False, *adopted)
    home.node.handle_timeout(LATE)
    assert home.node.sessions is not None
    home.node.sessions.moves.turn_ended(LATE)
    records = [
        record for frame in home.said("n3") if frame.operation == HAND for record in cast(Records, frame.more[1])
    ]
    (included,) = [record[1] for record in records if record[0] == INCLUDES]
    assert (STORE_ID in dict(cast(Included, included))) != is_adopted
    assert [record[0] for record in records].count(outgoing[0]) == (not is_adopted)


def test_a_node_that_a_former_home_waits_for_hears_where_the_session_is() -> None:
    """Seed 7001 of power_fails_while_clients_move: it was away, and this node did not know it."""
    home = Home()
    session, _ = session_records()
    home.hear("n4", HAND, (20, STORE_ID), ("n4", "n3"), (session, (AWAITED, ("n1", "n3", "n9")), (HEAD_END,)), 15)
    assert list(home.node.senders) == ["n2", "n3", "n4", "n9"]
    home.hear("n4", HAND, (20, STORE_ID), ("n4",), ((HANDED,),), 15)
    for name in STORES:
        home.hear(name, SWITCH, (20, STORE_ID))
    sources = home.broker.sessions["c"].sources
    assert isinstance(sources, Arriving)
    assert list(sources.waiting) == ["n9"]


def test_a_message_for_the_group_of_a_lost_home_goes_to_members_of_its_adopter() -> None:
    """Seed 5 of power_fails_while_clients_move: n3 did not know since its start whether the home takes copies."""
    home = Home()
    session, _ = session_records()
    subscription = (2, 0, b"$share/g/t", 1, False, False, 0, 0)
    home.hear("n4", HAND, (20, STORE_ID), ("n4",), (session, subscription, (HEAD_END,)), 15)
    group = encode_groups(((b"g", b"t"),))
    data = encode_frame(PUBLISH, group + encode_packet(Message(b"t", b"x", 1, False), 5))
    for sessions, count in ((OTHERS, 0), (ADOPTED_SESSIONS, 1)):
        home.hear("n3", RELAY, (0, STORES["n3"]), "n2", sessions, data, 5)
        assert home.broker.sessions["c"].queue_length() == count


def test_a_home_that_is_back_takes_no_block_once_more_for_sessions_that_nobody_has_adopted() -> None:
    """Block 7 of n3 had come before the home was taken for lost, which n3 had not heard."""
    home = Home()
    session = Session(home.broker, "c", 0.0)
    session.expiry_interval = 60
    home.broker.sessions["c"] = session
    subscribed(home.broker, session)
    home.sessions.moves.relayed.positions.of("n3", STORES["n3"]).done_whole(7)
    data = encode_frame(PUBLISH, encode_groups(()) + encode_packet(Message(b"t", b"x", 1, False), 5))
    for serial, count in ((7, 0), (8, 1)):
        block = encode_session_frame(BLOCK, "", (0, STORES["n3"]), (serial, 0, 1)) + data
        home.hear("n3", RELAY, (0, STORES["n3"]), "n1", OTHERS, block, 5)
        assert session.queue_length() == count


def test_the_home_that_messages_were_for_hears_of_the_next_one_that_does_not_know_it() -> None:
    """n2 is back, and has not heard that n3 had adopted its sessions."""
    home = Home()
    home.hear("n3", MOVE, (20, STORES["n3"]), "n2")
    home.said("n3")
    newest = (30, STORES["n2"])
    home.hear("n2", MOVE, newest)
    assert [home.switches(name) for name in ("n2", "n3", "n4")] == [[(20, STORES["n3"]), newest], [newest], []]


@pytest.mark.parametrize("has_subscription", [True, False])
def test_a_home_that_was_told_to_get_no_messages_gets_none(has_subscription: bool) -> None:
    """Seed 5 of first_flights_are_lost: messages of this node were for a session that leaves here for n4; n3 and n2 were told
    that they come behind these homes, and then that they are for n2, which did not take them."""
    home = Home()
    session, _ = session_records()
    subscription = ((2, 0, b"t", 1, False, False, 0, 0),) if has_subscription else ()
    home.hear("n4", HAND, (20, STORE_ID), ("n4",), (session, *subscription, (HEAD_END,), (HANDED,)), 15)
    for name in STORES:
        home.hear(name, SWITCH, (20, STORE_ID))
    home.hear("n4", CLAIM, (25, STORES["n4"]), False, False, False)
    for name in STORES:
        home.said(name)
    home.commit()
    newest = (40, STORES["n3"])
    home.hear("n3", MOVE, newest, "n2")
    assert [home.switches(name) for name in STORES] == [[newest], [] if has_subscription else [newest], []]
    home.hear("n2", MOVE, (30, STORES["n2"]), "n4", "n1")
    assert home.switches("n2") == [newest]
    sessions = home.node.sessions
    assert sessions is not None
    leaving = sessions.moves.departing.get("c", [])  # without subscriptions it has left
    assert ["n1" in departing.waiting for departing in leaving] == [True] * has_subscription
    home.commit()
    for departing in leaving:
        assert home.disk[departing.record] == departing.values(0.0), "the store has what was said"
    home.hear("n3", MOVE, newest, "n2", "n4", "n1")
    assert home.switches("n3") == [newest]
    assert ["n1" in departing.waiting for departing in leaving] == [False] * has_subscription


def test_nobody_sends_to_a_session_without_subscriptions_before_it_has_them() -> None:
    """Seed 1 of homes_are_lost_that_hold_with_three_copies: the client had begun anew on n4, and n3 had adopted its
    former session. What nodes sent here between the heads of both was for no subscription, and n3 did not take it."""
    home = Home()
    own, adopter = (20, STORE_ID), (15, STORES["n3"])
    session, _ = session_records()
    home.hear("n3", MOVE, adopter, "n2")
    for name in STORES:
        home.said(name)
        home.node.senders[name].news.clear()

    home.hear("n4", HAND, own, ("n4",), (session, (AWAITED, ()), (HEAD_END,), (HANDED,)), 10)
    home.commit()
    assert [home.switches(name) for name in STORES] == [[], [], []]
    assert not home.node.senders["n2"].news.moves

    home.hear("n3", HAND, own, ("n3",), (session, SUBSCRIPTION, (HEAD_END,)), 15)
    home.commit()
    assert [home.switches(name) for name in STORES] == [[], [own], []]
    assert "c" in home.node.senders["n2"].news.moves
    arriving = home.sessions.homes.by_client["c"].arriving
    assert arriving is not None
    assert [arriving.takes_from(name) for name in ("n1", "n2")] == [True, False]


def test_a_session_that_leaves_without_subscriptions_waits_for_nobody() -> None:
    home = Home()
    session, _ = session_records()
    home.hear("n4", HAND, (20, STORE_ID), ("n4",), (session, (AWAITED, ()), (HEAD_END,), (HANDED,)), 10)
    home.hear("n2", CLAIM, (25, STORES["n2"]), False, False, False)
    found = [frame.more[1] for frame in home.said("n2") if frame.operation == HAND]
    assert found[-1] == ((HANDED,),)
    assert "c" not in home.sessions.moves.departing


def test_what_is_left_of_a_session_gets_nothing_of_a_node_that_sends_to_a_later_home() -> None:
    """Seed 8023 of homes_are_away: this node got what was left of a session, with a lower epoch than that of n2, to which it
    had switched: its messages went there, and were handed on, too."""
    home = Home()
    later = (40, STORES["n2"])
    session, _ = session_records()
    home.hear("n2", MOVE, later, "n3")
    home.said("n3")
    home.hear("n2", CLAIM, (21, STORES["n2"]), False, False, False)
    del home.sessions.moves.passed_on.newest["c"]  # the claim has come with what is left
    home.hear("n3", HAND, (20, STORE_ID), ("n3",), (session, SUBSCRIPTION, (HEAD_END,)), 15)
    assert home.switches("n3") == [later]
    home.hear("n2", CLAIM, later, False, False, False)
    (leaving,) = home.sessions.moves.departing["c"]
    assert "n1" not in leaving.waiting


def test_what_is_left_of_a_session_gets_nothing_of_a_node_that_sends_to_its_adopter() -> None:
    """Seed 60004 of machines_come_back_to_their_clients: the client was claimed here, and then by n2, before n3 and n4 heard
    of this node again. n4 had adopted the session, got the messages of n3, and hands them over."""
    home = Home()
    own, adopter, later = (20, STORE_ID), (18, STORES["n4"]), (25, STORES["n2"])
    session, _ = session_records()
    home.hear("n4", HAND, own, ("n4",), (session, SUBSCRIPTION, (HEAD_END,), (HANDED,)), 15)
    for name in STORES:
        home.hear(name, SWITCH, own)
    home.hear("n2", CLAIM, later, False, False, False)
    (leaving,) = home.sessions.moves.departing["c"]

    def has_left() -> bool:
        hands = [frame.more[1] for frame in home.said("n2") if frame.operation == HAND]
        return ((HANDED,),) in hands

    home.hear("n3", SWITCH, adopter)
    for name in ("n2", "n3"):
        message = Message(b"t", name.encode(), 1, False)
        assert not leaving.takes(message, 1, False, (), NodePublisher(name), 0.0)
    waiting = [cast(Outgoing, outgoing).message for outgoing in leaving.waiting_messages()]
    assert [message.payload for message in waiting if message is not None] == [b"n2"]
    assert "n3" in leaving.waiting, "it may hear of the home here, and send to it"
    home.commit()
    assert home.disk[leaving.record] == leaving.values(0.0)
    home.hear("n2", MOVE, later, "n1")
    for name in STORES:
        home.hear(name, SWITCH, later)
    assert not has_left()
    home.hear("n4", HAND, own, ("n4",), (session, (HEAD_END,), (HANDED,)), 18)
    assert has_left()


def test_nodes_hear_of_a_home_from_which_the_session_has_gone_on() -> None:
    """What they send to homes before that is for nobody when these are lost. n2 is the next one, and hears that they send here
    first: it may have a session of the client, and take what is for this one."""
    home = Home()
    own, later = (20, STORE_ID), (25, STORES["n2"])
    session, _ = session_records()
    home.hear("n4", HAND, own, ("n4",), (session, SUBSCRIPTION, (HEAD_END,)), 10)
    home.commit()
    home.hear("n2", CLAIM, later, False, False, False)
    assert "c" not in home.sessions.homes.by_client
    homes = home.sessions.homes
    assert homes.moving() == ["c"]
    frame, _ = homes.move("c", "n3")
    assert decode_session_frame(frame[HEADER_SIZE:]) == (MOVE, "c", own, ("n4", "n2"))
    home.hear("n3", SWITCH, own)
    assert homes.move("c", "n3")[0], "n3 sends here, but if it starts again it does not know that"
    (leaving,) = home.sessions.moves.departing["c"]
    assert leaving.before is not None
    assert leaving.before.takes_from("n3")
    assert "n3" in leaving.waiting
    home.hear("n3", SWITCH, later)
    assert homes.move("c", "n3") == (b"", 0)


def test_what_a_node_says_to_a_lost_home_does_not_say_what_it_sends_here() -> None:
    """Seed 60004 of machines_come_back_to_their_clients: a session that leaves n3 takes what comes in there, and the home
    before hears that nothing is for it. This node, which has adopted that home's sessions, took the same from n3."""
    home = Home()
    own = (20, STORE_ID)
    session, _ = session_records()
    home.hear("n4", HAND, own, ("n4", "n2"), (session, SUBSCRIPTION, (HEAD_END,)), 15)
    arriving = home.sessions.homes.by_client["c"].arriving
    assert arriving is not None
    said = encode_session_frame(SWITCH, "c", own, ())
    home.hear("n3", RELAY, (0, STORES["n3"]), "n2", ADOPTED_SESSIONS, said, 5)
    assert not arriving.takes_from("n3")
    home.hear("n3", SWITCH, own)
    assert arriving.takes_from("n3")


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_session_for_a_home_that_is_lost_goes_to_who_has_adopted_it(is_lost: bool) -> None:
    """It waits for that home's answer when the home fails."""
    home = Home()
    session, _ = session_records()
    home.hear("n4", HAND, (20, STORE_ID), ("n4",), (session, (HEAD_END,), (HANDED,)), 15)
    home.hear("n4", SWITCH, (50, STORES["n3"]))
    home.said("n2")
    home.node.senders["n3"].is_living = not is_lost
    home.hear("n2", MOVE, (51, STORES["n2"]), "n3")
    home.node.handle_timeout(LATE)
    home.sessions.moves.turn_ended(LATE)
    heads = [name for name in ("n2", "n3") for frame in home.said(name) if frame.operation == HAND]
    assert set(heads) == {"n2" if is_lost else "n3"}
