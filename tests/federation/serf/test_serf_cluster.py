"""Serf nodes on virtual time: joins, leaves, intents, events, queries, conflicts."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest

from federation.gossip.addresses import Address
from federation.gossip.counters import DropReason
from federation.gossip.msgpack_fields import LAMPORT_TIME_MAX, LEAVE_TIME_MAX, WITNESSED_TIME_MAX
from federation.serf.asked_queries import AskedQuery, QueryParameters
from federation.serf.config import SerfConfig
from federation.serf.events import (
    Event,
    JoinResult,
    Left,
    MemberEvent,
    MemberStatus,
    NameConflict,
    QueryReceived,
    UserEventReceived,
)
from federation.serf.messages import LeaveIntent
from federation.serf.serf import Serf
from federation.serf.state import SerfState
from gossip_node import merge_state, user_event, user_events
from simulator.network import Faults
from simulator.serf_process import SerfProcess
from simulator.world import Host, World


class Cluster:
    """Hosts n1, n2, ... at 10.0.0.1, 10.0.0.2, ...; all but the first join it."""

    def __init__(
        self,
        count: int,
        seed: int = 1,
        change: Callable[[SerfConfig], SerfConfig] = lambda config: config,
        faults: Faults | None = None,
    ) -> None:
        self.world = World(seed, faults)
        self._change = change
        self.hosts = [self.add(number) for number in range(1, count + 1)]
        self.run(5.0)

    def add(self, number: int, name: str = "", seeds: list[Address] | None = None) -> Host:
        ip = f"10.0.0.{number}"
        if seeds is None:
            seeds = [("10.0.0.1", 8902)] if number > 1 else []
        config = self._change(SerfConfig(name or f"n{number}", ip, 8902, {"fed_addr": f"{ip}:8901"}))
        host = self.world.add_host(f"host{number}", ip, lambda host: SerfProcess(host, config, seeds))
        host.start()
        return host

    def process(self, number: int) -> SerfProcess:
        process = self.hosts[number - 1].process
        assert isinstance(process, SerfProcess)
        return process

    def serf(self, number: int) -> Serf:
        return self.process(number).serf

    def run(self, seconds: float) -> None:
        self.world.run(seconds)

    def do(self, number: int, action: Callable[[Serf], object]) -> None:
        action(self.serf(number))
        self.hosts[number - 1].settle()

    def statuses(self, number: int) -> dict[str, str]:
        return {member.name: member.status.name for member in self.serf(number).members()}

    def take(self, number: int) -> list[Event]:
        events = self.process(number).events
        self.process(number).events = []
        return events


def told(events: list[Event]) -> list[str]:
    return [f"{type(event).__name__} {event.member.name}" for event in events if isinstance(event, MemberEvent)]


def test_all_see_all_with_tags() -> None:
    cluster = Cluster(4)
    for number in range(1, 5):
        members = cluster.serf(number).members()
        assert [member.name for member in members] == ["n1", "n2", "n3", "n4"]
        assert all(member.status == MemberStatus.ALIVE for member in members)
        assert members[2].tags == {"fed_addr": "10.0.0.3:8901"}
        assert (members[2].ip, members[2].port) == ("10.0.0.3", 8902)
    first = cluster.take(2)
    assert told(first)[0] == "MemberJoin n2"
    assert sorted(told(first)) == [f"MemberJoin n{number}" for number in (1, 2, 3, 4)]
    assert JoinResult(1, 1, {}) in first


def test_an_encrypted_cluster() -> None:
    key, other = b"k" * 32, b"o" * 16
    cluster = Cluster(4, change=lambda config: replace(config, encrypt_keys=(key, other), label="cluster"))
    cluster.run(40.0)
    cluster.hosts.append(cluster.add(5))
    cluster.run(5.0)
    assert cluster.statuses(5) == dict.fromkeys(["n1", "n2", "n3", "n4", "n5"], "ALIVE")
    cluster._change = lambda config: config
    cluster.add(6, "plain")
    cluster.hosts.append(cluster.add(7, "plain too"))
    cluster.run(40.0)
    for number in range(1, 6):
        serf = cluster.serf(number)
        assert cluster.statuses(number) == dict.fromkeys(["n1", "n2", "n3", "n4", "n5"], "ALIVE")
        assert serf.counters.drops == serf.counters.dropped[DropReason.WRONG_LABEL]
    assert cluster.serf(1).counters.drops > 0
    assert cluster.statuses(6) == {"plain too": "ALIVE"}


def test_graceful_leave_is_left_and_comes_back() -> None:
    cluster = Cluster(3)
    cluster.take(1)
    cluster.do(3, lambda serf: serf.leave(cluster.world.now))
    assert cluster.serf(3).local_member.status == MemberStatus.LEAVING
    cluster.run(4.0)
    assert Left() in cluster.take(3)
    assert told(cluster.take(1)) == ["MemberLeave n3"]
    assert cluster.statuses(1)["n3"] == cluster.statuses(3)["n3"] == "LEFT"
    cluster.do(3, lambda serf: serf.join([("10.0.0.1", 8902)], cluster.world.now))
    cluster.run(3.0)
    for number in (1, 2, 3):
        assert set(cluster.statuses(number).values()) == {"ALIVE"}
    assert told(cluster.take(1)) == ["MemberJoin n3"]
    # the second leave must count as newer than everything before it
    cluster.do(3, lambda serf: serf.leave(cluster.world.now))
    cluster.run(4.0)
    assert cluster.statuses(1)["n3"] == cluster.statuses(2)["n3"] == "LEFT"


def test_many_leaves_and_returns_with_exchanges_between() -> None:
    cluster = Cluster(3)
    for _ in range(4):
        cluster.do(2, lambda serf: serf.leave(cluster.world.now))
        cluster.run(100.0)
        assert cluster.statuses(1)["n2"] == cluster.statuses(3)["n2"] == "LEFT"
        cluster.do(2, lambda serf: serf.rejoin(cluster.world.now))
        cluster.run(100.0)
        assert cluster.statuses(1)["n2"] == cluster.statuses(3)["n2"] == "ALIVE"


@pytest.mark.parametrize("moved", [False, True])
def test_a_process_that_left_and_was_started_again_is_taken_back_at_once(moved: bool) -> None:
    cluster = Cluster(3)
    cluster.do(3, lambda serf: serf.leave(cluster.world.now))
    cluster.run(4.0)
    cluster.hosts[2].crash()
    cluster.take(1)
    cluster.run(10.0)
    if moved:
        cluster.hosts[2] = cluster.add(7, "n3")
    else:
        cluster.hosts[2].start()
    cluster.run(3.0)
    assert told(cluster.take(1)) == ["MemberJoin n3"]
    assert cluster.statuses(2)["n3"] == cluster.statuses(3)["n3"] == "ALIVE"
    cluster.do(3, lambda serf: serf.leave(cluster.world.now))
    cluster.run(4.0)
    assert cluster.statuses(1)["n3"] == cluster.statuses(2)["n3"] == "LEFT"


def test_leaving_alone_is_immediate() -> None:
    cluster = Cluster(1)
    cluster.take(1)
    cluster.do(1, lambda serf: serf.leave(cluster.world.now))
    assert Left() in cluster.take(1)


def test_join_while_leaving_is_refused_and_leave_twice_is_one() -> None:
    cluster = Cluster(2)
    cluster.do(2, lambda serf: serf.leave(cluster.world.now))
    cluster.do(2, lambda serf: serf.leave(cluster.world.now))
    cluster.take(2)
    cluster.do(2, lambda serf: serf.join([("10.0.0.1", 8902)], cluster.world.now))
    assert JoinResult(2, 0, {("10.0.0.1", 8902): "this node is leaving"}) in cluster.take(2)
    cluster.run(5.0)
    assert cluster.take(2).count(Left()) == 1


def test_crash_fails_and_return_on_the_same_address_is_taken_back() -> None:
    cluster = Cluster(3)
    cluster.take(1)
    cluster.hosts[2].crash()
    cluster.run(15.0)
    assert told(cluster.take(1)) == ["MemberFailed n3"]
    assert cluster.statuses(2)["n3"] == "FAILED"
    cluster.hosts[2].start()
    cluster.run(3.0)
    assert told(cluster.take(1)) == ["MemberJoin n3"]


def test_a_failed_member_without_seeds_is_pulled_back_in() -> None:
    cluster = Cluster(3)
    cluster.hosts[0].crash()
    cluster.run(15.0)
    assert cluster.statuses(2)["n1"] == "FAILED"
    cluster.hosts[0].start()  # n1 has no seeds: the others must find it
    took = cluster.world.run_until(
        lambda: cluster.statuses(2)["n1"] == cluster.statuses(1).get("n3") == "ALIVE", 120.0, "reconnected"
    )
    assert took < 120.0


def test_return_on_another_address_after_the_table_forgot() -> None:
    cluster = Cluster(3)
    cluster.hosts[2].crash()
    cluster.run(50.0)
    cluster.take(1)
    moved = cluster.add(7, "n3")
    cluster.run(5.0)
    assert told(cluster.take(1)) == ["MemberJoin n3"]
    member = cluster.serf(1).member("n3")
    assert member is not None
    assert (member.ip, member.status) == ("10.0.0.7", MemberStatus.ALIVE)
    assert isinstance(moved.process, SerfProcess)
    assert not any(isinstance(event, NameConflict) for event in moved.process.events)


def test_force_leave_makes_failed_left_and_prune_forgets() -> None:
    cluster = Cluster(4)
    for number in (3, 4):
        cluster.hosts[number - 1].crash()
    cluster.run(40.0)
    cluster.take(2)
    cluster.do(1, lambda serf: serf.force_leave("n3", cluster.world.now))
    cluster.do(1, lambda serf: serf.force_leave("n4", cluster.world.now, prune=True))
    cluster.do(1, lambda serf: serf.force_leave("nobody", cluster.world.now))
    cluster.run(2.0)
    assert cluster.statuses(2) == {"n1": "ALIVE", "n2": "ALIVE", "n3": "LEFT"}
    assert sorted(told(cluster.take(2))) == ["MemberLeave n3", "MemberLeave n4", "MemberReap n4"]


def test_force_leave_of_a_living_member_is_refuted_and_of_ourselves_refused() -> None:
    cluster = Cluster(3)
    cluster.do(1, lambda serf: serf.force_leave("n3", cluster.world.now))
    assert cluster.statuses(1)["n3"] == "LEAVING"
    cluster.run(3.0)
    for number in (1, 2, 3):
        assert cluster.statuses(number)["n3"] == "ALIVE"
    with pytest.raises(ValueError, match="use leave"):
        cluster.serf(1).force_leave("n1", cluster.world.now)


def test_a_user_event_reaches_each_member_once() -> None:
    """A node that joins later gets it by push-pull."""
    cluster = Cluster(5, faults=Faults(duplication=0.5))
    cluster.do(2, lambda serf: serf.user_message(user_event(1, "deploy", b"now"), cluster.world.now))
    cluster.run(100.0)
    cluster.hosts.append(cluster.add(6))
    cluster.run(5.0)
    for number in range(1, 7):
        assert user_events(cluster.serf(number)) == [(1, "deploy", b"now")]


def test_a_user_event_of_a_node_is_delivered_once_everywhere() -> None:
    cluster = Cluster(6, faults=Faults(loss=0.2, duplication=0.3))
    cluster.do(3, lambda serf: serf.user_event("deploy", b"now"))
    cluster.run(60.0)
    for number in range(1, 7):
        events = [event for event in cluster.take(number) if isinstance(event, UserEventReceived)]
        assert events == [UserEventReceived(1, "deploy", b"now", False)]


@pytest.mark.parametrize("relay_factor", [0, 3])
def test_a_query_collects_the_answers_of_all_that_its_filters_name(relay_factor: int) -> None:
    cluster = Cluster(8)
    parameters = QueryParameters(tuple(f"n{n}" for n in range(2, 7)), {"fed_addr": "8901$"}, True, relay_factor)
    found: list[AskedQuery] = []
    cluster.do(1, lambda serf: found.append(serf.query("load", b"1m", cluster.world.now, parameters)))
    answered: list[int] = []
    for _ in range(20):
        cluster.run(0.1)
        for number in range(1, 9):
            for event in cluster.take(number):
                if isinstance(event, QueryReceived):
                    answered.append(number)
                    payload = b"%d" % number
                    cluster.do(number, lambda serf: serf.answer(event, payload, cluster.world.now))  # noqa: B023
    cluster.run(5.0)
    assert sorted(answered) == [2, 3, 4, 5, 6]
    (asked,) = found
    assert asked.is_over
    assert sorted(asked.acks) == ["n2", "n3", "n4", "n5", "n6"]
    assert asked.responses == {f"n{n}": b"%d" % n for n in range(2, 7)}
    repeated = cluster.serf(1).counters.query_responses_repeated
    assert (repeated > 0) == (relay_factor > 0)


def test_relays_bring_answers_where_the_direct_way_is_cut() -> None:
    cluster = Cluster(6, seed=2)  # the few broadcasts of the query reach all members
    answers: list[int] = []
    for relay_factor in (0, 4):
        found: list[AskedQuery] = []
        parameters = QueryParameters(request_ack=True, relay_factor=relay_factor)
        cluster.do(1, lambda serf: found.append(serf.query("_serf_ping", b"", cluster.world.now, parameters)))  # noqa: B023
        cluster.world.cut([cluster.hosts[5]], [cluster.hosts[0]])
        cluster.run(4.0)
        cluster.world.heal()
        answers.append(len(found[0].acks))
    assert answers == [5, 6]


def test_members_estimate_their_round_trips() -> None:
    delays = Faults(delay_min=0.019, delay_max=0.021)
    cluster = Cluster(5, seed=2, faults=delays)
    cluster.run(300.0)
    estimates: list[float] = []
    for number in range(1, 6):
        coordinates = cluster.serf(number).coordinates
        assert sorted(coordinates.known) == [f"n{n}" for n in range(1, 6) if n != number]
        estimates += [coordinates.round_trip(name) or 0.0 for name in coordinates.known]
        assert cluster.serf(number).counters.drops == 0
    assert statistics.median(estimates) == pytest.approx(0.040, rel=0.1)
    assert min(estimates) > 0.030
    assert max(estimates) < 0.050
    cluster.hosts[4].crash()
    cluster.run(15.0)
    cluster.do(1, lambda serf: serf.force_leave("n5", cluster.world.now, prune=True))
    cluster.run(20.0)
    assert "n5" not in cluster.serf(1).coordinates.known


@pytest.mark.parametrize("through", [1, 2])
def test_a_second_node_of_one_name_is_told_to_stop(through: int) -> None:
    cluster = Cluster(3)
    double = cluster.add(9, "n1", [(f"10.0.0.{through}", 8902)])
    cluster.run(10.0)
    process = double.process
    assert isinstance(process, SerfProcess)
    assert NameConflict("n1", "10.0.0.1", 8902, True, True) in process.events
    (result,) = [event for event in process.events if isinstance(event, JoinResult)]
    assert result.joined == 0
    assert "is taken by 10.0.0.1:8902" in result.errors[f"10.0.0.{through}", 8902]
    # no node took it in, and the older node stays
    for number in (1, 2, 3):
        events = cluster.take(number)
        assert not any(isinstance(event, NameConflict) and event.lost for event in events)
        member = cluster.serf(number).member("n1")
        assert member is not None
        assert member.ip == "10.0.0.1"
    assert [member.name for member in process.serf.members()] == ["n1"]


def test_the_smaller_side_of_a_healed_partition_loses_the_name() -> None:
    cluster = Cluster(3)
    outside = cluster.add(9, "n2", [])
    other = cluster.add(8, "n8", [("10.0.0.9", 8902)])
    cluster.run(2.0)
    assert isinstance(other.process, SerfProcess)
    other.process.serf.join([("10.0.0.1", 8902)], cluster.world.now)
    other.settle()
    loser = outside.process
    assert isinstance(loser, SerfProcess)
    cluster.world.run_until(  # the next push-pulls show it
        lambda: any(isinstance(event, NameConflict) and event.ours and event.lost for event in loser.events),
        120.0,
        "the smaller side loses",
    )
    assert not any(isinstance(event, NameConflict) and event.lost for event in cluster.take(2))


@pytest.mark.parametrize("seed", [1, 2])
def test_leaves_on_one_side_of_a_partition_hold_after_it(seed: int) -> None:
    cluster = Cluster(5, seed)
    world = cluster.world
    world.partition(cluster.hosts[:3], cluster.hosts[3:])
    one_side = {"n1": "ALIVE", "n2": "ALIVE", "n3": "ALIVE", "n4": "FAILED", "n5": "FAILED"}
    other_side = {"n1": "FAILED", "n2": "FAILED", "n3": "FAILED", "n4": "ALIVE", "n5": "ALIVE"}
    world.run_until(
        lambda: all(cluster.statuses(n) == (one_side if n < 4 else other_side) for n in range(1, 6)), 90.0, "two sides"
    )
    cluster.do(3, lambda serf: serf.leave(world.now))  # the other side does not get it
    cluster.run(5.0)
    cluster.hosts[2].crash()
    cluster.do(4, lambda serf: serf.force_leave("n2", world.now))  # wrong, and this side does not get it
    # A push-pull brings it where the few broadcasts went to members on the other side.
    world.run_until(lambda: cluster.statuses(5)["n2"] == "LEFT", 60.0, "this side knows it")
    world.heal()
    whole = {"n1": "ALIVE", "n2": "ALIVE", "n3": "LEFT", "n4": "ALIVE", "n5": "ALIVE"}
    world.run_until(lambda: all(cluster.statuses(n) == whole for n in (1, 2, 4, 5)), 300.0, "one view")
    cluster.run(100.0)
    assert all(cluster.statuses(n) == whole for n in (1, 2, 4, 5))


@pytest.mark.parametrize("time", [WITNESSED_TIME_MAX, WITNESSED_TIME_MAX + 1, LEAVE_TIME_MAX, LAMPORT_TIME_MAX])
@pytest.mark.parametrize("by_exchange", [False, True])
def test_a_forged_leave_at_any_time_is_refuted(time: int, by_exchange: bool) -> None:
    cluster = Cluster(3)
    world = cluster.world
    if by_exchange:
        state = SerfState(1, 1, 1, {"n2": time - 1}, ["n2"], []).encode()
        cluster.do(1, lambda serf: merge_state(serf, state, world.now))
    else:
        cluster.do(1, lambda serf: serf.user_message(LeaveIntent(time, "n2", False, False).encode(), world.now))
    assert cluster.statuses(1)["n2"] == ("ALIVE" if time > LEAVE_TIME_MAX and not by_exchange else "LEAVING")
    cluster.run(60.0)
    assert all(cluster.statuses(n)["n2"] == "ALIVE" for n in (1, 2, 3))
    # The member can still leave and come back.
    cluster.do(2, lambda serf: serf.leave(world.now))
    cluster.run(5.0)
    assert all(cluster.statuses(n)["n2"] == "LEFT" for n in (1, 2, 3))
    cluster.do(2, lambda serf: serf.join([("10.0.0.1", 8902)], world.now))
    cluster.run(5.0)
    assert all(cluster.statuses(n)["n2"] == "ALIVE" for n in (1, 2, 3))


def test_a_join_through_a_node_that_leaves_is_refused() -> None:
    cluster = Cluster(2)
    cluster.do(1, lambda serf: serf.leave(cluster.world.now))
    cluster.run(4.0)
    late = cluster.add(5)
    cluster.run(1.0)
    assert isinstance(late.process, SerfProcess)
    (result,) = [event for event in late.process.events if isinstance(event, JoinResult)]
    assert result.errors == {("10.0.0.1", 8902): "refused: node 'n1' has left"}
