"""What a keeper makes of the copy of a lost store."""

from __future__ import annotations

import random

import pytest

import federation.replication.adoption
import federation.replication.replicas
from broker.broker import Broker
from broker.config.settings_mqtt import MqttSettings
from broker.session.will import StoredWill
from broker.store.identity import StoreIdentity
from broker.store.kinds import COPY, DEPARTING, HOME, REPLICA, RUN, STORE, SUBSCRIPTION, WILL
from broker.store.restoring import Restoring
from federation.node import Node
from federation.replication.copies import ADOPTED_SECONDS_MAX
from federation.replication.keeper_server import KeeperServer
from federation.serf.events import Member, MemberFailed, MemberJoin, MemberStatus
from federation.sessions.departing import Departing
from federation.sessions.home import ADOPTED_MAX, Home, adopted_below, adopted_of, told_adopted
from federation.sessions.wire import (
    ADOPTED,
    CLAIM,
    SessionFrame,
    encode_session_frame,
)
from federation.settings import FederationSettings
from federation.stream.frames import HEADER_SIZE
from federation.stream.receiver import OpenStream
from federation.tags import own_tags
from lost_homes import LOST, kept_in_runs, session
from stored_node import Station


def kept_for_n2() -> Station:
    """A keeper of the store of n2, which has one session."""
    return Station(
        {
            1: (REPLICA, "n2", LOST, 1, 1, 7, True, ("n1",)),
            2: (COPY, 1, 1, session("c")),
            3: (COPY, 1, 2, (HOME, "c", 1_000, False, None)),
        }
    )


def test_a_home_is_not_lost_for_a_client_before_this_node_knows_who_lives() -> None:
    station = kept_for_n2()
    assert station.node.sessions is not None
    station.node.sessions.homes.starting_until = 5.0
    for at in (0.5, 4.9):
        assert station.node.sessions.lost is not None
        station.node.sessions.lost.wanted("c", "n1", at)
        station.node.handle_timeout(at)
        station.node.turn_ended(at)
        assert list(station.broker.sessions) == []
    assert station.node.next_timeout() <= 5.0
    station.node.handle_timeout(5.0)
    station.node.turn_ended(5.0)
    assert list(station.broker.sessions) == ["c"]


def test_the_copy_of_a_home_that_is_away_stays_until_it_is_adopted() -> None:
    station = kept_in_runs(session("c"))
    drain = station.node.drain
    assert drain is not None
    assert "the store of n2" in drain.keeps()
    adopted_at = 2.0 + FederationSettings().replication.adopt_after
    station.node.handle_timeout(adopted_at)
    station.node.turn_ended(adopted_at)
    assert list(station.broker.sessions) == ["c"]
    assert drain.keeps() == "messages for n2", "who has adopted it"


def test_a_home_whose_stream_is_here_is_not_lost() -> None:
    """It is back, and its stream is here before its gossip."""
    station = kept_for_n2()
    station.node.added("n2", 0.0)
    receiver = station.node.receivers.by_name["n2"]
    receiver.hello("s", LOST)
    stream = OpenStream()
    receiver.open_stream(stream, 1.0)
    for sessions in ([], ["c"]):
        assert station.node.sessions is not None
        station.node.sessions.homes.starting_until = 0.0
        assert station.node.sessions.lost is not None
        station.node.sessions.lost.wanted("c", "n1", 1.0)
        station.node.turn_ended(1.0)
        assert list(station.broker.sessions) == sessions
        receiver.close_stream(stream)


def test_a_damaged_session_costs_no_other_one() -> None:
    subscription = (SUBSCRIPTION, 1, b"a/#", 1, False, False, 0, 0)
    station = Station(
        {
            1: (REPLICA, "n2", LOST, 1, 1, 7, True, ("n1",)),
            2: (COPY, 1, 1, session("whole")),
            3: (COPY, 1, 2, subscription),
            4: (COPY, 1, 3, session("damaged")[:5]),
            5: (COPY, 1, 4, (HOME, "whole", 1_000, False, None)),
        }
    )
    node = station.node
    copies = node.copies
    assert copies is not None
    tags = {**own_tags("127.0.0.1:8901", True), "store": LOST}
    member = Member("n2", "127.0.0.1", 8902, tags, MemberStatus.ALIVE)
    node.member_events([MemberJoin(member)], 0.0)
    node.handle_timeout(1.0)
    assert station.broker.sessions == {}
    node.member_events([MemberFailed(member)], 2.0)
    node.handle_timeout(2.0)
    node.handle_timeout(2.0 + FederationSettings().replication.adopt_after)
    while node.turn_ended(2.0):
        pass
    assert list(station.broker.sessions) == ["whole"]
    assert list(station.broker.sessions["whole"].subscriptions) == [b"a/#"]
    assert (copies.adoptions.adopted, copies.adoptions.refused) == (1, 1)
    assert copies.replicas.by_store == {}
    station.commit()
    kinds = station.kinds()
    assert REPLICA not in kinds
    assert COPY not in kinds
    assert node.sessions is not None
    assert node.sessions.homes.by_client["whole"].counter == 1_001, "who has claimed the client since stays its home"


def will_of(client_id: str) -> tuple[object, ...]:
    """Of a client whose session ends with its connection."""
    will = b"w/" + client_id.encode(), b"gone", 1, True, b"", None, 10
    return WILL, client_id, "", None, 5, 60, "127.0.0.1:1", "127.0.0.1:2", 0.0, 0.0, 0, 0.0, will, 0.0


def published(station: Station) -> list[bytes]:
    """The topics of retained wills."""
    return sorted(message.topic for message in station.broker.retained.messages())


@pytest.mark.interpreted
def test_a_copy_is_opened_in_some_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that connects meanwhile finds its session at once, and its will is published before it says something else."""
    monkeypatch.setattr(federation.replication.adoption, "RECORDS_OF_A_TURN", 1)
    subscription = (SUBSCRIPTION, 2, b"a/#", 1, False, False, 0, 0)
    station = kept_in_runs(will_of("w"), session("c"), subscription, *[session(f"other {n}") for n in range(5)])
    sessions = station.node.sessions
    assert sessions is not None
    assert sessions.lost is not None
    station.node.handle_timeout(2.0 + FederationSettings().replication.adopt_after)
    for _ in range(3):
        station.node.turn_ended(40.0)
    assert station.broker.sessions == {}
    sessions.lost.wanted("w", "n1", 40.0)
    assert published(station) == [b"w/w"]
    assert station.broker.sessions == {}
    sessions.lost.wanted("c", "n1", 40.0)
    assert list(station.broker.sessions["c"].subscriptions) == [b"a/#"]
    station.node.turn_ended(40.0)
    assert len(station.broker.sessions) == 6
    assert published(station) == [b"w/w"]


@pytest.mark.interpreted
def test_the_session_of_a_client_that_connects_elsewhere_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation.replication.adoption, "RECORDS_OF_A_TURN", 1)
    subscription = (SUBSCRIPTION, 2, b"a/#", 1, False, False, 0, 0)
    station = kept_in_runs(session("other"), session("c"), (HOME, "c", 1_000, False, None), subscription)
    there = "0e" * 16
    tags = {**own_tags("127.0.0.1:8903", True), "store": there}
    member = Member("n3", "127.0.0.1", 8904, tags, MemberStatus.ALIVE)
    station.node.member_events([MemberJoin(member)], 3.0)
    sessions = station.node.sessions
    assert sessions is not None
    sessions.homes.starting_until = 0.0
    claim = encode_session_frame(CLAIM, "c", (2_000, there), (True, False, False))
    sessions.receive("n3", claim[HEADER_SIZE:], 3.0)
    assert sessions.moves.passed_on.newest["c"] == ("n3", (2_000, there))
    while station.node.turn_ended(3.0):
        station.commit()
    assert "c" not in station.broker.sessions
    (departing,) = sessions.moves.departing["c"]
    assert (departing.home, departing.epoch) == ("n3", (2_000, there))
    assert list(station.broker.sessions) == ["other"]


@pytest.mark.interpreted
@pytest.mark.parametrize("is_open", [False, True])
def test_an_adoption_ends_with_its_copy(monkeypatch: pytest.MonkeyPatch, is_open: bool) -> None:
    """Another keeper has adopted the sessions meanwhile: each is whole, there or here."""
    monkeypatch.setattr(federation.replication.adoption, "RECORDS_OF_A_TURN", 100 if is_open else 1)
    monkeypatch.setattr(federation.replication.adoption, "SESSIONS_OF_A_TURN", 1)
    monkeypatch.setattr(federation.replication.replicas, "DROPPED_OF_A_TURN", 5)
    subscriptions = [(SUBSCRIPTION, number, b"a/#", 1, False, False, 0, 0) for number in range(1, 5)]
    station = kept_in_runs(*[session(f"c{number}") for number in range(1, 5)], *subscriptions)
    copies = station.node.copies
    assert copies is not None
    station.node.handle_timeout(2.0 + FederationSettings().replication.adopt_after)
    station.node.turn_ended(40.0)
    adopted = list(station.broker.sessions)
    assert len(adopted) == is_open
    copies.receive("n3", SessionFrame(ADOPTED, "", (0, LOST), ("n2", (), 9)), 40.0)
    while station.node.turn_ended(40.0):
        pass
    assert list(station.broker.sessions) == adopted
    assert all(list(found.subscriptions) == [b"a/#"] for found in station.broker.sessions.values())
    assert not copies.adoptions.is_active()
    assert copies.adoptions.ended == []
    station.commit()
    assert REPLICA not in station.kinds()
    assert RUN not in station.kinds()


@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize("is_connected", [False, True])
def test_a_copy_of_a_home_that_is_back_outlives_a_late_word_of_its_adoption(is_away: bool, is_connected: bool) -> None:
    station = kept_for_n2()
    copies = station.node.copies
    assert copies is not None
    tags = {**own_tags("127.0.0.1:8901", True), "store": LOST}
    member = Member("n2", "127.0.0.1", 8902, tags, MemberStatus.ALIVE)
    station.node.member_events([MemberJoin(member)], 0.0)
    if is_away:
        station.node.member_events([MemberFailed(member)], 1.0)
    stream = KeeperServer(copies.replicas, 1 << 20, 0.0)
    if is_connected:
        stream.replica = copies.replicas.by_store[LOST]
        copies.replicas.connections[LOST] = stream
    copies.receive("n3", SessionFrame(ADOPTED, "", (0, LOST), ("n2", (), 9)), 2.0)
    assert (LOST in copies.replicas.by_store) == (is_connected and not is_away)
    assert stream.is_over == (is_connected and is_away)


BEFORE = 900, "0b" * 16, False, (), ("n4",), ("n5",)
LINEAGE = (("n4", "0a" * 16),), (("n4", "n5", 800, "0a" * 16),)
INCLUDED = (("0a" * 16, 800),)


@pytest.mark.parametrize(
    "former",
    [
        (),
        (("0a" * 16, 5, 1, 2, 3),),
        (None, INCLUDED),
        (None, INCLUDED, LINEAGE),
        (None, INCLUDED, LINEAGE, ("n5",)),
        (None, INCLUDED, LINEAGE, ("n5",), (9, "0b" * 16)),
    ],
    ids=["none", "adopted", "includes", "lineage", "switched", "said"],
)
def test_a_session_that_leaves_knows_after_a_restart_where_it_came_from(former: tuple[object, ...]) -> None:
    broker = Broker(MqttSettings(), random.Random(1), 0.0)
    restoring = Restoring(broker, 0.0, 0.0)
    restoring.add(1, (STORE, LOST, 1))
    restoring.add(2, session("c"))
    leaving = (DEPARTING, 2, 2_000, "0e" * 16, 1_000, "n3", ("n1", "n3"), False, BEFORE, *former)
    restoring.add(3, leaving)
    restoring.end()
    Node("n2", broker, FederationSettings(node_name="n2"), random.Random(1)).begin(0.0, True)
    assert broker.commits.journal is not None
    kept = broker.commits.journal.kept[3]
    assert isinstance(kept, Departing)
    assert kept.values(0.0) == (*leaving, *(None, (), ((), ()), (), (0, ""))[len(former) :])


def test_two_sessions_of_a_client_in_one_copy_are_no_hand_over_of_their_home() -> None:
    """One was leaving when the client came back. Once the second one was taken for what the home itself hands over behind its
    adoption: the next node left out the newest messages, which nobody else had (first_flights_are_lost 5)."""
    leaving = (DEPARTING, 1, 900, "0e" * 16, 800, "n3", (), False, None)
    station = kept_in_runs(session("c"), leaving, session("c"), (HOME, "c", 1_000, False, None))
    station.node.handle_timeout(2.0 + FederationSettings().replication.adopt_after)
    while station.node.turn_ended(40.0):
        station.commit()
    assert station.node.sessions is not None
    home = station.node.sessions.homes.by_client["c"]
    assert [(adopted[0], adopted[4]) for adopted in home.adopted] == [(LOST, 1_000)]
    assert not home.has_all_of((1_000, LOST))


def test_a_session_that_leaves_a_lost_home_knows_where_it_came_from() -> None:
    there = "0e" * 16
    leaving = (DEPARTING, 1, 2_000, there, 1_000, "n3", ("n1",), False, BEFORE, None, INCLUDED, LINEAGE)
    station = kept_in_runs(session("c"), leaving, (SUBSCRIPTION, 1, b"a/#", 1, False, False, 0, 0))
    tags = {**own_tags("127.0.0.1:8903", True), "store": there}
    member = Member("n3", "127.0.0.1", 8904, tags, MemberStatus.ALIVE)
    station.node.member_events([MemberJoin(member)], 3.0)
    station.node.handle_timeout(2.0 + FederationSettings().replication.adopt_after)
    while station.node.turn_ended(40.0):
        station.commit()
    assert station.node.sessions is not None
    (departing,) = station.node.sessions.moves.departing["c"]
    assert departing.home == "n3"
    assert departing.includes is not None
    assert INCLUDED[0] in departing.includes.items()
    assert departing.before is not None
    assert departing.before.lost == {"n2": LOST, "n4": "0a" * 16}
    assert departing.before.relayed["n4", "n5"] == (800, "0a" * 16)


@pytest.mark.parametrize("comes_back", [False, True])
def test_wills_of_a_lost_home_are_published_once(comes_back: bool) -> None:
    """When it is lost, or sooner, when one of its clients is elsewhere: before what that one publishes there."""
    station = Station(
        {
            1: (REPLICA, "n2", LOST, 1, 1, 7, True, ("n1",)),
            2: (COPY, 1, 1, will_of("c")),
            3: (COPY, 1, 2, session("d")),
            4: (COPY, 1, 3, will_of("e")),
        }
    )
    node = station.node
    tags = {**own_tags("127.0.0.1:8901", True), "store": LOST}
    member = Member("n2", "127.0.0.1", 8902, tags, MemberStatus.ALIVE)
    node.member_events([MemberJoin(member)], 0.0)
    node.member_events([MemberFailed(member)], 2.0)
    node.handle_timeout(2.0)
    if comes_back:
        assert node.sessions is not None
        assert node.sessions.lost is not None
        node.sessions.homes.starting_until = 0.0
        node.sessions.lost.wanted("c", "n1", 3.0)
        assert published(station) == [b"w/c"]
    else:
        node.handle_timeout(2.0 + FederationSettings().replication.adopt_after)
    node.turn_ended(40.0)
    assert published(station) == [b"w/c", b"w/e"]
    assert list(station.broker.sessions) == ["d"]
    assert station.broker.counters.wills_published == 2
    station.commit()
    assert WILL not in station.kinds()


@pytest.mark.parametrize("is_adopted", [False, True])
def test_a_home_that_is_back_publishes_no_will_that_its_keeper_has_published(is_adopted: bool) -> None:
    broker = Broker(MqttSettings(), random.Random(1), 0.0)
    restoring = Restoring(broker, 0.0, 0.0)
    restoring.add(1, (STORE, LOST, 1))
    restoring.add(2, will_of("c"))
    restoring.end()
    node = Node("n2", broker, FederationSettings(node_name="n2"), random.Random(1))
    node.begin(0.0, True)
    broker.handle_timeout(FederationSettings().startup_wait - 0.5)
    assert broker.counters.wills_published == 0, "others may have something to say"
    if is_adopted:
        assert node.copies is not None
        node.copies.receive("n1", SessionFrame(ADOPTED, "", (0, LOST), ("n2", (), 3)), 1.0)
    broker.handle_timeout(FederationSettings().startup_wait + 0.5)
    assert broker.counters.wills_published == (not is_adopted)
    assert broker.commits.journal is not None
    kept = broker.commits.journal.kept.values()
    assert not any(isinstance(content, StoredWill) for content in kept)


@pytest.mark.parametrize(("is_back", "is_known"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_first_keeper_that_has_lost_its_disk_too_is_not_waited_for_for_ever(is_back: bool, is_known: bool) -> None:
    """A home that is back with an empty disk is let in after ADOPTED_SECONDS_MAX: what is here for its former store has gone to
    who has adopted that by then. is_known: this node has met the keeper with its former store, and waits for nobody."""
    station = Station(
        {
            1: (REPLICA, "n2", LOST, 1, 1, 7, True, ("n3", "n1")),
            2: (COPY, 1, 1, session("c")),
            3: (COPY, 1, 2, (HOME, "c", 1_000, False, None)),
        }
    )

    def member(name: str, store_id: str) -> Member:
        tags = {**own_tags("127.0.0.1:8901", True), "store": store_id}
        return Member(name, "127.0.0.1", 8901, tags, MemberStatus.ALIVE)

    node = station.node
    home, keeper = member("n2", LOST), member("n3", "0a" * 16 if is_known else "0b" * 16)
    node.member_events([MemberJoin(home), MemberJoin(keeper)], 0.0)
    node.handle_timeout(1.0)
    node.member_events([MemberFailed(home), MemberFailed(keeper)], 2.0)
    node.member_events([MemberJoin(member("n3", "0b" * 16))], 3.0)
    if is_back:
        node.member_events([MemberJoin(member("n2", "0d" * 16))], 3.0)
    adopt_after = FederationSettings().replication.adopt_after
    found: list[int] = []
    for at in range(4, 4 + 3 * int(adopt_after)):
        node.handle_timeout(float(at))
        node.turn_ended(float(at))
        if station.broker.sessions:
            found.append(at)
    assert list(station.broker.sessions) == ["c"]
    if is_known and not is_back:
        assert 0 <= found[0] - 3 - ADOPTED_SECONDS_MAX / 2 <= 2, (
            "the home may be back before the keeper has waited so long"
        )
    elif is_back:
        assert found[0] < 3 + ADOPTED_SECONDS_MAX
    else:
        assert found[0] > adopt_after + 4, "the first one may still do it"


def test_a_keeper_that_has_started_sees_that_a_home_is_back_with_an_empty_disk() -> None:
    """It took that for the home, and adopted nothing."""
    station = Station(
        {
            1: (REPLICA, "n2", LOST, 1, 1, 7, True, ("n1",)),
            2: (COPY, 1, 1, session("c")),
            3: (COPY, 1, 2, (HOME, "c", 1_000, False, None)),
        }
    )
    tags = {**own_tags("127.0.0.1:8901", True), "store": "0d" * 16}
    station.node.member_events([MemberJoin(Member("n2", "127.0.0.1", 8901, tags, MemberStatus.ALIVE))], 1.0)
    assert not station.node.senders["n2"].is_living, "it is not let in yet"
    for at in (1.0, 2.0):
        station.node.handle_timeout(at)
        while station.node.turn_ended(at):
            station.commit()
    assert list(station.broker.sessions) == ["c"]
    assert station.node.senders["n2"].is_living


def test_a_keeper_that_has_started_adopts_the_older_one_of_two_stores_of_a_node() -> None:
    """The node had been let in with an empty disk before the sessions of its former store were adopted."""
    newer = "0d" * 16
    station = Station(
        {
            1: (REPLICA, "n2", LOST, 1, 1, 7, True, ("n1",)),
            2: (COPY, 1, 1, session("c")),
            3: (COPY, 1, 2, (HOME, "c", 1_000, False, None)),
            4: (REPLICA, "n2", newer, 1, 1, 7, True, ("n1",)),
            5: (COPY, 4, 1, session("d")),
            6: (COPY, 4, 2, (HOME, "d", 1_000, False, None)),
        }
    )
    tags = {**own_tags("127.0.0.1:8901", True), "store": newer}
    station.node.member_events([MemberJoin(Member("n2", "127.0.0.1", 8901, tags, MemberStatus.ALIVE))], 1.0)
    for at in (1.0, 2.0):
        station.node.handle_timeout(at)
        while station.node.turn_ended(at):
            station.commit()
    assert list(station.broker.sessions) == ["c"]
    assert station.node.senders["n2"].is_living


def test_a_session_from_two_copies_tells_both_stores() -> None:
    """A client had its session on one node, and the rest of it on another one: each leaves out what was adopted of its own."""
    home = Home("c", 5, 1)
    first, second = (LOST, 9, 1, 2, 3, ()), ("0d" * 16, 8, 2, 3, 0, ())
    for adopted in (first, second, (LOST, 10, 4, 5, 6, ((4, 5, 9),))):
        home.adopts(adopted)
    assert list(home.adopted) == [second, (LOST, 10, 4, 5, 6, ((4, 5, 9),))]
    assert adopted_of(home.values(0.0)[5]) == home.adopted
    told = list(told_adopted(home.adopted))
    below = [adopted_below(told, StoreIdentity(store_id, 1, True)) for store_id in (LOST, "0d" * 16, "0e" * 16)]
    assert below == [10, 8, 0]
    for number in range(2 * ADOPTED_MAX):
        home.adopts((f"{number:032x}", 9, 1, 2, 3, ()))
    assert len(list(home.adopted)) == ADOPTED_MAX
    home.adopted = (first,)
    assert home.values(0.0)[5] == first[:5], "as an earlier build reads it"
    assert adopted_of(first[:5]) == (first,)
