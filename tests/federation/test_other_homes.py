"""A home that was away, and whose sessions another node has adopted: what comes directly waits for what that one hands over."""

from __future__ import annotations

import pytest

from broker.hooks import NO_GROUPS
from broker.message import Message
from broker.session.session import Session
from broker.store.kinds import OUTGOING, RECEIVED
from federation.serf.events import Member, MemberFailed, MemberStatus
from federation.sessions.arriving import HANDING_SECONDS_MAX, LIVING_SECONDS_MAX, Arriving
from federation.sessions.content import checked_hand
from federation.sessions.home import NOT_TAKEN
from federation.sessions.other_homes import KNOWN_SECONDS_MAX
from federation.sessions.relayed import RELAYED_MAX, Relayed
from federation.sessions.wire import (
    ANSWER,
    BLOCK_OF,
    CLAIM,
    COPIED,
    HAND,
    HANDED,
    HEAD_END,
    INCLUDES,
    MOVE,
    NOT_COPIED,
    REFUSED,
    SWITCH,
    Record,
    SessionFrame,
    decode_session_frame,
    encode_session_frame,
)
from federation.stream.frames import HEADER_SIZE
from federation.stream.positions import BLOCKS_MAX, Positions
from federation.tags import own_tags
from session_home import STORES, SUBSCRIPTION, Home, session_records
from simulator.durable_client import DurableClient
from stored_node import STORE_ID

OWN = (20, STORE_ID)
ADOPTER = (15, STORES["n3"])


def at_home() -> Home:
    """The session is here, from n4, as a whole."""
    home = Home()
    session, _ = session_records()
    home.hear("n4", HAND, OWN, ("n4",), (session, SUBSCRIPTION, (HEAD_END,), (HANDED,)), 10)
    for name in STORES:
        home.hear(name, SWITCH, OWN)
        home.said(name)
    return home


def arriving(home: Home) -> Arriving:
    found = home.sessions.homes.by_client["c"].arriving
    assert found is not None
    return found


def publish(home: Home, name: str, payload: bytes) -> None:
    """The node has sent a message."""
    home.node.receivers.by_name[name].publish(Message(b"t", payload, 2, False), NO_GROUPS, 0.0)


def queue(home: Home) -> list[bytes]:
    return [outgoing.message.payload for outgoing in home.broker.sessions["c"].queued() if outgoing.message is not None]


def outgoing(payload: bytes) -> Record:
    _, (kind, number, message, *rest) = session_records()
    assert isinstance(message, tuple)
    return (kind, number, (*message[:2], payload, *message[3:]), *rest)


def checked_records(frame: SessionFrame) -> list[Record]:
    """Of a HAND."""
    return checked_hand(frame.more)[1]


def hand_over(home: Home, *records: Record, since: int = ADOPTER[0]) -> None:
    session, _ = session_records()
    home.hear("n3", HAND, OWN, ("n3",), (session, (INCLUDES, ((STORES["n3"], since),)), (HEAD_END,), *records), since)


def test_what_comes_directly_waits_for_the_adopter_that_others_have_sent_to() -> None:
    """n2 has sent to n3 for a while, and sends here again before anything of n3 has come."""
    home = at_home()
    publish(home, "n2", b"1")
    home.hear("n2", SWITCH, ADOPTER)
    publish(home, "n2", b"2, for n3")
    home.commit()
    frame, _ = home.sessions.homes.move("c", "n2")
    assert "n3" in decode_session_frame(frame[HEADER_SIZE:]).more, "n2 is asked to tell it"
    home.hear("n2", SWITCH, OWN)
    publish(home, "n2", b"3")
    assert queue(home) == [b"1"]
    hand_over(home, outgoing(b"2"))
    assert queue(home) == [b"1", b"2"]
    home.hear("n3", HAND, OWN, ("n3",), ((HANDED,),), ADOPTER[0])
    assert queue(home) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(("handed_on_at", "waits"), [(15, False), (16, False), (14, True), (None, True)])
def test_what_has_been_handed_over_is_not_waited_for(handed_on_at: int | None, waits: bool) -> None:
    """n3 has given it to n4, from which it is here."""
    home = Home()
    session, _ = session_records()
    includes: tuple[object, ...] = () if handed_on_at is None else ((STORES["n3"], handed_on_at),)
    home.hear("n4", HAND, OWN, ("n4",), (session, SUBSCRIPTION, (INCLUDES, includes), (HEAD_END,), (HANDED,)), 10)
    home.hear("n2", SWITCH, ADOPTER)
    assert bool(arriving(home).expected) is waits


def test_who_hands_over_for_another_one_ends_the_wait_for_it() -> None:
    home = at_home()
    home.hear("n2", SWITCH, ADOPTER)
    home.hear("n2", SWITCH, OWN)
    publish(home, "n2", b"2")
    session, _ = session_records()
    records = session, (INCLUDES, ((STORES["n3"], 15),)), (HEAD_END,), outgoing(b"1"), (HANDED,)
    home.hear("n4", HAND, OWN, ("n4", "n3"), records, 18)
    assert queue(home) == [b"1", b"2"]


@pytest.mark.parametrize("lives", [True, False])
def test_a_node_that_lives_is_waited_for_longer(lives: bool) -> None:
    home = at_home()
    home.hear("n2", SWITCH, ADOPTER)
    home.hear("n2", SWITCH, OWN)
    publish(home, "n2", b"1")
    if not lives:
        tags = {**own_tags("127.0.0.1:8901", True), "store": STORES["n3"]}
        home.node.member_events([MemberFailed(Member("n3", "127.0.0.1", 8901, tags, MemberStatus.FAILED))], 0.0)
    homes = home.sessions.homes
    homes.handle_timeout(HANDING_SECONDS_MAX)
    assert queue(home) == ([] if lives else [b"1"])
    homes.handle_timeout(HANDING_SECONDS_MAX + LIVING_SECONDS_MAX)
    assert queue(home) == [b"1"]
    assert homes.not_waited_for == 1
    home.hear("n3", HAND, OWN, ("n3",), ((HANDED,),), ADOPTER[0])
    assert queue(home) == [b"1"]


@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.parametrize("store_id", [STORE_ID, STORES["n4"]])
@pytest.mark.parametrize("is_deserted", [True, False])
@pytest.mark.parametrize("is_told", [True, False])
def test_a_client_that_is_here_stays_where_its_session_was_only_adopted(
    is_connected: bool, store_id: str, is_deserted: bool, is_told: bool
) -> None:
    """By n3. is_told: n2 has said before that it sends there. is_deserted: no client has connected to n3 since."""
    home = at_home()
    client = DurableClient("c", 5, {}, 0, False)
    client.connect(home.broker, 0.0)
    if not is_connected:
        client.disconnect(False, 0.0)
    epoch = home.sessions.homes.by_client["c"].counter + 1, STORES["n3"]
    if is_told:
        home.hear("n2", SWITCH, epoch)
        assert ("c" in home.sessions.homes.by_client) is is_connected, "until the claim is heard"
    home.hear("n3", CLAIM, epoch, False, False, False, store_id, 5, is_deserted)
    stays = is_connected and store_id == STORE_ID and is_deserted
    assert ("c" in home.sessions.homes.by_client) is stays
    if stays:
        assert home.sessions.homes.epoch_of(home.sessions.homes.by_client["c"]) > epoch
        assert list(arriving(home).expected) == [STORES["n3"]]
        assert home.broker.sessions["c"].connection is not None
        assert arriving(home).takes_from("n2") is not is_told


@pytest.mark.parametrize("store_id", [STORE_ID, STORES["n4"]])
@pytest.mark.parametrize("is_refused", [True, False])
def test_a_client_stays_whichever_way_its_home_hears_that_its_session_was_adopted(
    store_id: str, is_refused: bool
) -> None:
    """n3 refuses a claim of before, or is not met, while n2 sends there."""
    home = at_home()
    DurableClient("c", 5, {}, 0, False).connect(home.broker, 0.0)
    own = home.sessions.homes.epoch_of(home.sessions.homes.by_client["c"])
    epoch = own[0] + 1, STORES["n3"]
    if is_refused:
        home.hear("n3", ANSWER, own, REFUSED, *epoch, store_id, 5)
    else:
        home.hear("n2", SWITCH, epoch)
        home.sessions.handle_timeout(KNOWN_SECONDS_MAX)
    stays = store_id == STORE_ID or not is_refused
    assert ("c" in home.sessions.homes.by_client) is stays
    if stays:
        assert home.sessions.homes.epoch_of(home.sessions.homes.by_client["c"]) > epoch
        assert list(arriving(home).expected) == [STORES["n3"]]


def test_a_client_that_is_back_before_its_session_left_waits_for_what_nodes_have_sent_elsewhere() -> None:
    home = at_home()
    client = DurableClient("c", 5, {}, 0, False)
    client.connect(home.broker, 0.0)
    epoch = home.sessions.homes.by_client["c"].counter + 1, STORES["n3"]
    home.hear("n2", SWITCH, epoch)
    claim = encode_session_frame(CLAIM, "c", epoch, (False, False, False, STORE_ID, 5, False))
    home.sessions.receive("n3", claim[HEADER_SIZE:], 0.0)
    assert home.sessions.moves.departing["c"][0].marks is not None
    client.lose()
    client.connect(home.broker, 0.0)
    assert arriving(home).expected == {STORES["n3"]: epoch[0]}


@pytest.mark.parametrize("next_home", ["n3", "n4"])
def test_a_session_that_leaves_waits_for_nothing_that_goes_to_its_next_home(next_home: str) -> None:
    """It waits for n3, which claims the session, or hands over to n4."""
    home = at_home()
    home.hear("n2", SWITCH, ADOPTER)
    home.hear("n2", SWITCH, OWN)
    publish(home, "n2", b"1")
    epoch = 30, STORES[next_home]
    home.hear(next_home, CLAIM, epoch, False, False, False)
    (departing,) = home.sessions.moves.departing["c"]
    assert departing.before is not None
    assert departing.before.waits_for_older() is (next_home == "n4")
    home.hear(next_home, MOVE, epoch, "n4")
    assert departing.before.waits_for_older() is (next_home == "n4"), "n3 has not handed over to it"
    home.hear(next_home, MOVE, epoch, "n3")
    assert not departing.before.waits_for_older()
    home.node.turn_ended(0.0)
    records = [record for frame in home.said(next_home) if frame.operation == HAND for record in checked_records(frame)]
    messages = [record[2] for record in records if record[0] == OUTGOING]
    assert [message[2] for message in messages if isinstance(message, tuple)] == [b"1"]
    assert records[-1] != (HANDED,), "others still send here"


def test_a_home_that_is_back_leaves_out_what_it_had_done_of_what_was_relayed() -> None:
    """Blocks 7 and 8 of n2 were relayed to n3; the first one was done here, which n2 had not heard."""
    home = at_home()
    position = home.sessions.moves.relayed.positions.of("n2", STORES["n2"])
    position.done_whole(7)
    home.hear("n2", SWITCH, ADOPTER)
    of_7, of_8 = (BLOCK_OF, "n2", STORES["n2"], 7), (BLOCK_OF, "n2", STORES["n2"], 8)
    records = of_7, outgoing(b"done"), of_8, outgoing(b"new"), NOT_COPIED, outgoing(b"newer")
    session, _ = session_records()
    more = ("n3",), (session, (HEAD_END,), *records), ADOPTER[0]
    home.hear("n3", HAND, OWN, *more, STORES["n4"], 9)
    assert queue(home) == [b"done", b"new", b"newer"], "of another home"
    home.hear("n3", HAND, OWN, *more, STORE_ID, 9)
    assert queue(home)[3:] == [b"new", b"newer"]


def test_blocks_that_were_done_are_known_for_a_while() -> None:
    positions = Positions(None)
    position = positions.of("n2", "2")
    for serial in range(BLOCKS_MAX + 1):
        position.done_whole(serial)
    assert [positions.has_done("n2", "2", serial) for serial in (0, 1, BLOCKS_MAX)] == [False, True, True]
    assert not positions.has_done("n2", "3", 2)
    assert not positions.has_done("n3", "2", 2)


def test_records_of_relayed_blocks_are_found() -> None:
    relayed = Relayed()
    relayed.add(10, 12, "lost", "n2", "2", 7)
    relayed.add(12, 12, "lost", "n2", "2", 8)
    relayed.add(15, 16, "other", "n2", "2", 9)
    block = "lost", ((BLOCK_OF, "n2", "2", 7),)
    found = [relayed.marks_of(number) for number in (9, 10, 11, 12, 15)]
    assert found == [("", ()), block, block, ("", ()), ("other", ((BLOCK_OF, "n2", "2", 9),))]
    for number in range(16, 16 + RELAYED_MAX):
        relayed.add(number, number + 1, "lost", "n2", "2", number)
    assert relayed.marks_of(10) == ("", ()), "the oldest are forgotten"
    assert relayed.forgotten == RELAYED_MAX // 2
    assert relayed.marks_of(15 + RELAYED_MAX) == ("lost", ((BLOCK_OF, "n2", "2", 15 + RELAYED_MAX),))


def test_a_home_that_is_back_takes_what_its_copy_has_and_its_disk_has_not() -> None:
    """The store had records up to 20 when it started; number 21 and those behind it were of a batch that was not written."""
    home = at_home()
    home.broker.identity.leaves_out(21, 40)
    home.hear("n3", SWITCH, ADOPTER)
    old, new = (BLOCK_OF, "n1", STORE_ID, 20), (BLOCK_OF, "n1", STORE_ID, 21)
    started = (BLOCK_OF, "n1", STORE_ID, 40)
    records = old, outgoing(b"old"), new, outgoing(b"new"), started, outgoing(b"since"), NOT_COPIED, outgoing(b"newer")
    session, _ = session_records()
    home.hear("n3", HAND, OWN, ("n3",), (session, (HEAD_END,), *records), ADOPTER[0], STORE_ID, 41)
    assert queue(home) == [b"new", b"newer"]


def test_a_home_that_is_back_takes_what_it_has_sent_itself_to_who_hands_over() -> None:
    """Its own block was taken for a record of its copy (clients_move_between_the_sides_of_a_cut 7011 lost 20 messages)."""
    home = at_home()
    home.hear("n3", SWITCH, ADOPTER)
    of_copy, sent = (BLOCK_OF, "n1", STORE_ID, 20), (BLOCK_OF, "n1", STORE_ID, (1 << 40) + 7)
    session, _ = session_records()
    records = of_copy, outgoing(b"of the copy"), sent, outgoing(b"sent")
    home.hear("n3", HAND, OWN, ("n3",), (session, (HEAD_END,), *records), ADOPTER[0], STORE_ID, 41)
    assert queue(home) == [b"sent"]


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_home_that_is_back_takes_packet_identifiers_that_its_disk_has_not(is_waiting: bool) -> None:
    """A client that was let in meanwhile has begun others."""
    home = at_home()
    home.broker.identity.leaves_out(21, 40)
    here = home.sessions.homes.by_client["c"]
    here.taken_at = NOT_TAKEN if is_waiting else here.counter
    marks = {number: (BLOCK_OF, "n1", STORE_ID, number) for number in (20, 21)}
    packet_ids = [record for number, mark in marks.items() for record in (mark, (RECEIVED, 0, number))]
    session, _ = session_records()
    head = session, *packet_ids, NOT_COPIED, (RECEIVED, 0, 7), (HEAD_END,)
    home.hear("n3", HAND, OWN, ("n3",), head, ADOPTER[0], STORE_ID, 41)
    found = home.broker.sessions["c"]
    assert isinstance(found, Session)
    assert list(found.incoming or ()) == ([21] if is_waiting else [])


def test_the_end_of_what_was_copied_and_of_a_block_is_one() -> None:
    assert NOT_COPIED == (COPIED, "", 0)


def test_a_client_that_is_back_before_its_session_has_left_gets_what_was_sent_elsewhere_from_there() -> None:
    """n2 sends to n3, whose claim has not come; the session waits for that, and its client connects here again."""
    home = at_home()
    home.hear("n2", SWITCH, (25, STORES["n3"]))
    assert "c" not in home.sessions.homes.by_client
    client = DurableClient("c", 5, {}, 0, False)
    client.connect(home.broker, 0.0)
    here = home.sessions.homes.by_client["c"]
    assert home.sessions.homes.epoch_of(here) > (25, STORES["n3"])
    assert [arriving(home).takes_from(name) for name in ("n1", "n2", "n4")] == [True, False, True]
    assert arriving(home).expected == {STORES["n3"]: 25}
    assert "n3" in arriving(home).homes
