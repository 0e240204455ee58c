"""What a keeper makes of the copy of a lost store."""

from __future__ import annotations

import pytest

from broker.store.kinds import COPY, HOME, REPLICA, SESSION, SUBSCRIPTION
from federation.replication.copies import ADOPTED_SECONDS_MAX
from federation.serf.events import Member, MemberFailed, MemberJoin, MemberStatus
from federation.settings import FederationSettings
from federation.stream.receiver import OpenStream
from federation.tags import own_tags
from stored_node import Station

LOST = "0c" * 16


def session(client_id: str) -> tuple[object, ...]:
    times = (0.0, 0.0, 3600, 0.0, None, 0.0)
    return SESSION, client_id, "", None, 5, 60, "127.0.0.1:1", "127.0.0.1:2", *times


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
    station.node.sessions.starting_until = 5.0
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
    node.turn_ended(2.0)
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


@pytest.mark.parametrize("is_back", [False, True])
def test_a_first_keeper_that_has_lost_its_disk_too_is_not_waited_for_for_ever(is_back: bool) -> None:
    """A home that is back with an empty disk is let in after ADOPTED_SECONDS_MAX: what is here for its former store has gone to
    who has adopted that by then."""
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
    home, keeper = member("n2", LOST), member("n3", "0a" * 16)
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
    if is_back:
        assert found[0] < 3 + ADOPTED_SECONDS_MAX
    else:
        assert found[0] > adopt_after + 4, "the first one may still do it"
