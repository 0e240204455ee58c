"""Serf nodes on virtual time: joins, leaves, intents, events, queries, conflicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip import counters as reasons
from federation.gossip.addresses import Address
from federation.gossip.config import LAN
from federation.gossip.errors import WireError
from federation.gossip.messages import DEAD, Accusation
from federation.gossip.msgpack_fields import encode
from federation.serf import messages
from federation.serf.config import SerfConfig
from federation.serf.events import (
    Event,
    JoinResult,
    Left,
    MemberEvent,
    MemberFailed,
    MemberJoin,
    MemberLeave,
    MemberReap,
    MemberStatus,
    MemberUpdate,
    NameConflict,
    QueryFinished,
    QueryReceived,
    UserEvent,
)
from federation.serf.lamport import LamportClock
from federation.serf.messages import JoinIntent, LeaveIntent, QueryResponse, SerfState, UserEventMessage
from federation.serf.serf import Serf
from federation.simulator.network import Faults
from federation.simulator.serf_process import SerfProcess
from federation.simulator.world import Host, World


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


def test_lamport_clock() -> None:
    clock = LamportClock()
    assert clock.increment() == 1
    clock.witness(1)
    assert clock.time == 2
    clock.witness(2)
    assert clock.time == 3
    clock.witness(9)
    assert clock.time == 10


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


def test_return_on_another_address_after_the_reclaim_time() -> None:
    profile = replace(LAN, dead_node_reclaim_time=5.0)
    cluster = Cluster(3, change=lambda config: replace(config, profile=profile))
    cluster.hosts[2].crash()
    cluster.world.run_until(lambda: cluster.statuses(1)["n3"] == cluster.statuses(2)["n3"] == "FAILED", 20.0, "failed")
    cluster.run(5.5)
    cluster.add(7, "n3")
    cluster.run(3.0)
    member = cluster.serf(1).member("n3")
    assert member is not None
    assert (member.ip, member.status) == ("10.0.0.7", MemberStatus.ALIVE)


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


def test_tags_change_everywhere() -> None:
    cluster = Cluster(3)
    cluster.take(1)
    cluster.do(2, lambda serf: serf.set_tags({"zone": "west"}, cluster.world.now))
    cluster.run(2.0)
    assert told(cluster.take(1)) == ["MemberUpdate n2"]
    for number in (1, 2, 3):
        member = cluster.serf(number).member("n2")
        assert member is not None
        assert member.tags == {"zone": "west"}
    with pytest.raises(ValueError, match="512"):
        cluster.serf(1).set_tags({"big": "x" * 512}, cluster.world.now)


def test_a_user_event_reaches_each_member_once() -> None:
    cluster = Cluster(5, faults=Faults(duplication=0.5))
    cluster.do(2, lambda serf: serf.user_event("deploy", b"now", cluster.world.now))
    cluster.run(100.0)  # exchanges repeat it
    for number in range(1, 6):
        events = [event for event in cluster.take(number) if isinstance(event, UserEvent)]
        assert [(event.name, event.payload) for event in events] == [("deploy", b"now")]
    with pytest.raises(ValueError, match="at most 512"):
        cluster.serf(1).user_event("big", bytes(512), cluster.world.now)


def test_a_query_is_acked_and_answered() -> None:
    cluster = Cluster(3)
    cluster.do(1, lambda serf: serf.query("load", b"cpu", cluster.world.now, want_acks=True))
    cluster.run(1.0)
    for number in (1, 2, 3):
        (query,) = [event for event in cluster.take(number) if isinstance(event, QueryReceived)]
        assert (query.name, query.payload) == ("load", b"cpu")
        if number < 3:
            answer = b"%d" % number
            cluster.do(number, lambda serf, q=query, a=answer: serf.respond(q, a, cluster.world.now))  # type: ignore[misc]
    cluster.run(3.0)
    (finished,) = [event for event in cluster.take(1) if isinstance(event, QueryFinished)]
    assert sorted(finished.acks) == ["n1", "n2", "n3"]
    assert finished.responses == {"n1": b"1", "n2": b"2"}


def test_internal_queries_are_answered_not_delivered() -> None:
    cluster = Cluster(2)
    for name in ("_serf_ping", "_serf_list-keys", "_serf_new"):
        cluster.do(1, lambda serf, name=name: serf.query(name, b"", cluster.world.now, want_acks=True))  # type: ignore[misc]
    cluster.run(5.0)
    assert not any(isinstance(event, QueryReceived) for event in cluster.take(2))
    finished = [event for event in cluster.take(1) if isinstance(event, QueryFinished)]
    assert [sorted(event.acks) for event in finished] == [["n1", "n2"]] * 3
    assert b"not encrypted" in finished[1].responses["n2"]
    assert finished[2].responses == {}
    assert cluster.serf(2).counters.dropped[reasons.UNKNOWN_QUERY] == 1


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
    # nobody took it in, and the older one stays
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
    cluster.world.run_until(  # the next exchanges show it
        lambda: any(isinstance(event, NameConflict) and event.ours and event.lost for event in loser.events),
        120.0,
        "the smaller side loses",
    )
    assert not any(isinstance(event, NameConflict) and event.lost for event in cluster.take(2))


def test_failed_and_left_members_are_reaped() -> None:
    def short(config: SerfConfig) -> SerfConfig:
        return replace(config, reconnect_timeout=60.0, tombstone_timeout=30.0)

    cluster = Cluster(3, change=short)
    cluster.do(2, lambda serf: serf.leave(cluster.world.now))
    cluster.hosts[2].crash()
    cluster.run(10.0)
    cluster.hosts[1].crash()
    cluster.take(1)
    cluster.run(90.0)
    events = cluster.take(1)
    assert told(events)[-2:] == ["MemberReap n2", "MemberReap n3"]
    assert [type(event) for event in events if isinstance(event, MemberFailed)] in ([], [MemberFailed])
    assert cluster.statuses(1) == {"n1": "ALIVE"}


# --- one node, told message by message


def lone() -> Serf:
    serf = Serf(SerfConfig("me", "10.0.0.1", 8902), Random(1), 0.0)
    serf.take_events()
    return serf


def know(serf: Serf, name: str, host: int, incarnation: int = 1) -> None:
    other = Serf(SerfConfig(name, f"10.0.0.{host}", 8902), Random(host), 0.0)
    facts = other.gossip.membership.own.facts
    serf.gossip.membership.merge(other.gossip.membership.encode_nodes(), 0.0)
    assert serf.member(facts.name) is not None


def test_a_buffered_leave_intent_counts_when_the_member_appears() -> None:
    serf = lone()
    serf.user_message(LeaveIntent(7, "n2", False).encode(), 0.0)
    know(serf, "n2", 2)
    member = serf.member("n2")
    assert member is not None
    assert member.status == MemberStatus.LEAVING
    serf.user_message(JoinIntent(7, "n2").encode(), 0.0)
    assert serf.members()[1].status == MemberStatus.LEAVING
    serf.user_message(JoinIntent(8, "n2").encode(), 0.0)
    assert serf.members()[1].status == MemberStatus.ALIVE


def test_a_members_own_word_of_its_death_is_a_leave_and_anothers_is_a_failure() -> None:
    serf = lone()
    know(serf, "n2", 2)
    know(serf, "n3", 3)
    for name, origin in (("n2", "n2"), ("n3", "n9")):
        accusation = Accusation(1, name, origin)
        serf.gossip.membership.receive_dead(accusation, accusation.encode(DEAD), 1.0)
    assert [member.status for member in serf.members()[1:]] == [MemberStatus.LEFT, MemberStatus.FAILED]


def rebroadcasts(serf: Serf) -> list[bytes]:
    return [message[1:] for message in serf.take_broadcasts(2, 1 << 20, 100)]


def test_news_is_passed_on_once() -> None:
    serf = lone()
    know(serf, "n2", 2)
    for message in (
        JoinIntent(5, "n2").encode(),
        JoinIntent(5, "unknown").encode(),
        LeaveIntent(6, "n2", False).encode(),
        UserEventMessage(1, "event", b"", False).encode(),
    ):
        while rebroadcasts(serf):
            pass
        serf.user_message(message, 0.0)
        assert rebroadcasts(serf) == [message]
        while rebroadcasts(serf):
            pass
        serf.user_message(message, 0.0)
        assert rebroadcasts(serf) == []


def test_an_exchange_during_a_leave_spreads_the_intent_itself() -> None:
    """Reporting the full time of a leave that is under way would make the other side ignore the intent (section 8.5)."""
    serf, other = lone(), Serf(SerfConfig("n3", "10.0.0.3", 8902), Random(3), 0.0)
    for one in (serf, other):
        know(one, "n2", 2)
        one.user_message(JoinIntent(5, "n2").encode(), 0.0)
    serf.user_message(LeaveIntent(6, "n2", False).encode(), 0.0)
    other.merge_remote_state(serf.local_state(False), False, 0.0)
    member = other.member("n2")
    assert member is not None
    assert member.status == MemberStatus.LEAVING
    for _ in range(5):
        state = SerfState.decode(other.local_state(False)[1:])
        serf.merge_remote_state(other.local_state(False), False, 0.0)
        other.merge_remote_state(serf.local_state(False), False, 0.0)
    assert state.status_times["n2"] == 5
    assert state.left_members == ["n2"]


def test_relay_forwards_the_inner_message_unchanged() -> None:
    serf = lone()
    inner = QueryResponse(2, 5, "n9", 1, None).encode()
    header = encode({"DestAddr": {"IP": bytes((10, 0, 0, 4)), "Port": 8902, "Zone": ""}, "DestName": "n4"})
    serf.user_message(bytes((messages.RELAY,)) + header + inner, 0.0)
    ((data, destination),) = serf.packets_to_send()
    assert destination == ("10.0.0.4", 8902)
    assert b"\x08" + inner in data


def test_state_without_a_serf_type_is_refused() -> None:
    with pytest.raises(WireError):
        lone().merge_remote_state(b"\x05\x80", False, 0.0)


@given(st.integers(0, 12), st.binary(max_size=80))
def test_serf_garbage_only_counts_drops(kind: int, body: bytes) -> None:
    serf = lone()
    serf.user_message(bytes((kind,)) + body, 0.0)
    serf.user_message(body, 0.0)
    assert serf.counters.dropped_total() >= 1
    assert [member.name for member in serf.members()] == ["me"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("", "10.0.0.1", 8902), "node_name is empty"),
        (("x" * 256, "10.0.0.1", 8902), "255"),
        (("a", "somewhere", 8902), "'somewhere' is not an IP address"),
        (("a", "10.0.0.1", 0), "port 0"),
        (("a", "10.0.0.1", 1, {"t": "x" * 600}), "512"),
    ],
)
def test_bad_configuration(arguments: tuple[str, str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SerfConfig(*arguments)


def test_too_many_addresses_in_a_join() -> None:
    with pytest.raises(ValueError, match="at most 64"):
        lone().join([("10.0.0.1", port) for port in range(1, 100)], 0.0)


def test_all_event_types_name_their_member() -> None:
    member = lone().local_member
    for kind in (MemberJoin, MemberLeave, MemberFailed, MemberUpdate, MemberReap):
        assert kind(member).member is member
