"""One Serf node, message by message."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.counters import DropReason
from federation.gossip.errors import WireError
from federation.gossip.messages import DEAD, OUR_VERSIONS, Accusation, Alive, Ping
from federation.gossip.msgpack_fields import LAMPORT_TIME_MAX, WITNESSED_TIME_MAX, encode
from federation.serf import messages
from federation.serf.config import SerfConfig
from federation.serf.events import (
    MemberStatus,
    MemberUpdate,
)
from federation.serf.leaving import SerfPhase
from federation.serf.messages import JoinIntent, LeaveIntent, QueryResponse
from federation.serf.serf import Serf
from federation.serf.state import SerfState
from federation.serf.tags import encode_tags
from gossip_node import introduce, merge_state, user_event, user_events


def lone() -> Serf:
    serf = Serf(SerfConfig("me", "10.0.0.1", 8902), Random(1), 0.0)
    serf.take_events()
    return serf


def know(serf: Serf, name: str, host: int, incarnation: int = 1) -> None:
    other = Serf(SerfConfig(name, f"10.0.0.{host}", 8902), Random(host), 0.0)
    facts = other.gossip.membership.own.facts
    introduce(serf, other)
    assert serf.member(facts.name) is not None


def test_a_buffered_leave_intent_counts_when_the_member_appears() -> None:
    serf = lone()
    serf.user_message(LeaveIntent(7, "n2", False, False).encode(), 0.0)
    know(serf, "n2", 2)
    member = serf.member("n2")
    assert member is not None
    assert member.status == MemberStatus.LEAVING
    serf.user_message(JoinIntent(7, "n2").encode(), 0.0)
    assert serf.members()[1].status == MemberStatus.LEAVING
    serf.user_message(JoinIntent(8, "n2").encode(), 0.0)
    assert serf.members()[1].status == MemberStatus.ALIVE


def test_a_dead_message_of_the_member_itself_is_a_leave_and_anothers_is_a_failure() -> None:
    serf = lone()
    know(serf, "n2", 2)
    know(serf, "n3", 3)
    for name, origin in (("n2", "n2"), ("n3", "n9")):
        accusation = Accusation(1, name, origin)
        serf.gossip.membership.receive_dead(accusation, accusation.encode(DEAD), 1.0)
    assert [member.status for member in serf.members()[1:]] == [MemberStatus.LEFT, MemberStatus.FAILED]


def test_tags_of_another_node_change() -> None:
    serf = lone()
    know(serf, "n2", 2)
    serf.take_events()
    alive = Alive(2, "n2", bytes((10, 0, 0, 2)), 8902, encode_tags({"zone": "west"}), OUR_VERSIONS)
    serf.gossip.membership.receive_alive(alive, alive.encode(), 1.0)
    member = serf.member("n2")
    assert member is not None
    assert member.tags == {"zone": "west"}
    assert serf.take_events() == [MemberUpdate(member)]


def rebroadcasts(serf: Serf) -> list[bytes]:
    return [message[1:] for message in serf.take_broadcasts(2, 1 << 20, 100)]


def test_new_messages_are_broadcast_once() -> None:
    serf = lone()
    know(serf, "n2", 2)
    for message in (
        JoinIntent(5, "n2").encode(),
        JoinIntent(5, "unknown").encode(),
        LeaveIntent(6, "n2", False, False).encode(),
        user_event(1, "event"),
    ):
        while rebroadcasts(serf):
            pass
        serf.user_message(message, 0.0)
        assert rebroadcasts(serf) == [message]
        while rebroadcasts(serf):
            pass
        serf.user_message(message, 0.0)
        assert rebroadcasts(serf) == []


def test_a_push_pull_during_a_leave_carries_the_intent() -> None:
    """With the full time of the leave the other side would ignore the intent (wire-gossip 7.2)."""
    serf, other = lone(), Serf(SerfConfig("n3", "10.0.0.3", 8902), Random(3), 0.0)
    for one in (serf, other):
        know(one, "n2", 2)
        one.user_message(JoinIntent(5, "n2").encode(), 0.0)
    serf.user_message(LeaveIntent(6, "n2", False, False).encode(), 0.0)
    merge_state(other, serf.local_state())
    member = other.member("n2")
    assert member is not None
    assert member.status == MemberStatus.LEAVING
    for _ in range(5):
        state = SerfState.decode(other.local_state()[1:])
        merge_state(serf, other.local_state())
        merge_state(other, serf.local_state())
    assert state.status_times["n2"] == 5
    assert state.left_members == ["n2"]


def test_a_leave_goes_on_when_its_broadcast_was_sent_with_acks() -> None:
    serf = lone()
    know(serf, "n2", 2)
    now = 0.0
    serf.leave(now)
    phases = [serf.phase]
    for _ in range(2):
        for _ in range(10):
            serf.receive_packet(Ping(1, "me", b"", 0, "n2").encode(), ("10.0.0.2", 8902), now)
        assert serf.next_timeout() <= now
        serf.handle_timeout(now)
        phases.append(serf.phase)
    assert phases == [SerfPhase.SPREADING_INTENT, SerfPhase.SPREADING_DEAD, SerfPhase.PROPAGATING]
    assert serf.next_timeout() > now


def test_relay_forwards_the_inner_message_unchanged() -> None:
    serf = lone()
    inner = QueryResponse(2, 5, "n9", 1, None).encode()
    header = encode({"DestAddr": {"IP": bytes((10, 0, 0, 4)), "Port": 8902, "Zone": ""}, "DestName": "n4"})
    serf.user_message(bytes((messages.RELAY,)) + header + inner, 0.0)
    ((data, destination),) = serf.packets_to_send()
    assert destination == ("10.0.0.4", 8902)
    assert b"\x08" + inner in data


def test_the_valid_entries_of_a_state_are_merged() -> None:
    serf = lone()
    know(serf, "n2", 2)
    state = {
        "EventLTime": 1 << 64 - 1,
        "Events": [{"Events": [{"Name": b"\xff", "Payload": b""}, {"Name": "good", "Payload": b"1"}], "LTime": 3}],
        "LTime": (1 << 64) - 1,
        "LeftMembers": [b"\xff\xfe", "y" * 300],
        "QueryLTime": 1,
        "StatusLTimes": {b"\xff": 4, "z" * 300: 4, "n3": 1 << 63, "n2": 4},
    }
    merge_state(serf, b"\x02" + encode(state))
    assert serf.counters.dropped[DropReason.MALFORMED_SERF] == 8
    assert serf.counters.drops == 8
    assert user_events(serf) == [(3, "good", b"1")]
    assert serf.roster.records["n2"].status_time == 4
    assert serf.roster.clock.time == 5


def test_no_clock_follows_a_forged_time() -> None:
    serf = lone()
    know(serf, "n2", 2)
    know(serf, "n3", 3)
    for time in (WITNESSED_TIME_MAX + 1, LAMPORT_TIME_MAX):
        serf.user_message(JoinIntent(time, "n2").encode(), 0.0)
        serf.user_message(user_event(time, "e"), 0.0)
    assert serf.roster.clock.time == 1
    # The highest time that clocks follow leaves room for later messages.
    serf.user_message(JoinIntent(WITNESSED_TIME_MAX, "n3").encode(), 0.0)
    serf.force_leave("n3", 0.0)
    other = lone()
    for message in serf.take_broadcasts(0, 10_000, 100):
        other.user_message(message[1:], 0.0)
    merge_state(other, serf.local_state())
    assert other.counters.dropped[DropReason.MALFORMED_SERF] == 0


def test_messages_that_fit_into_no_packet_are_not_broadcast() -> None:
    serf = lone()
    serf.user_message(user_event(1, "short", bytes(1300)), 0.0)
    serf.user_message(user_event(1, "long", bytes(1400)), 0.0)
    serf.user_message(b"\x01" + encode({"LTime": 2, "Node": "n9", "Zzz": bytes(60_000)}), 0.0)
    assert [name for _, name, _ in user_events(serf)] == ["short", "long"]
    assert len(serf.take_broadcasts(2, 1 << 20, 100)) == 1
    assert serf.counters.dropped[DropReason.MESSAGE_TOO_LARGE] == 2


def test_state_without_a_serf_type_is_refused() -> None:
    with pytest.raises(WireError):
        merge_state(lone(), b"\x05\x80")


@given(st.integers(0, 12), st.binary(max_size=80))
def test_serf_garbage_only_counts_drops(kind: int, body: bytes) -> None:
    serf = lone()
    serf.user_message(bytes((kind,)) + body, 0.0)
    serf.user_message(body, 0.0)
    assert serf.counters.drops >= 1
    assert [member.name for member in serf.members()] == ["me"]


def test_too_many_addresses_in_a_join() -> None:
    with pytest.raises(ValueError, match="at most 64"):
        lone().join([("10.0.0.1", port) for port in range(1, 100)], 0.0)
