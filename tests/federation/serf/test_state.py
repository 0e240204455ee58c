"""Serf's state in a push-pull: entries that are wrong are left out, and no state costs much more than its bytes."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from federation.gossip.addresses import pack_ip
from federation.gossip.body_reader import SLICE_STEPS
from federation.gossip.counters import DropReason
from federation.gossip.errors import WireError
from federation.gossip.members import STATE_ALIVE, Node, NodeFacts
from federation.gossip.merging import SLICE_NODES
from federation.gossip.messages import OUR_VERSIONS, PushPull
from federation.gossip.msgpack_fields import encode
from federation.serf.config import SerfConfig
from federation.serf.events import JoinResult, MemberStatus
from federation.serf.messages import EVENTS_MAX
from federation.serf.roster import MemberRecord
from federation.serf.serf import MERGE_SLICE_ENTRIES, Serf
from federation.serf.state import NAMES_MAX, SLOT_ENTRIES_MAX, SLOT_EVENTS_MAX, SerfState
from federation.serf.tags import encode_tags
from gossip_node import merge_all


@pytest.mark.parametrize(
    ("fields", "kept", "refused"),
    [
        ({"StatusLTimes": {"a": 1, b"\xff": 2, "b": -1, "c": 1.5, 5: 1}}, {"a": 1}, 4),
        ({"LTime": b"1", "EventLTime": -1, "QueryLTime": "x"}, {}, 3),
        ({"LeftMembers": ["a", 1, None]}, {}, 2),
        ({"Unknown": {"StatusLTimes": {"b": 1}}, "StatusLTimes": {"a": None}}, {"a": 0}, 0),
        ({"StatusLTimes": None, "LeftMembers": None, "Events": None}, {}, 0),
    ],
)
def test_entries_that_are_wrong_are_left_out(fields: dict[str, object], kept: dict[str, int], refused: int) -> None:
    state = SerfState.decode(encode(fields))
    assert (state.status_times, state.refused) == (kept, refused)


@pytest.mark.parametrize(
    "fields",
    [
        {"StatusLTimes": {"a": [3]}},
        {"StatusLTimes": {"a": {}}},
        {"LTime": [1]},
        {"LeftMembers": ["a", ["b"]]},
        {"Events": [{"Events": [{"Name": {}}], "LTime": 1}]},
        {"Events": [{"Events": [], "LTime": [1]}]},
    ],
)
def test_a_map_or_array_in_place_of_a_name_or_number_refuses_the_state(fields: dict[str, object]) -> None:
    """So it does in Go. To pass over it would be no small step: it may have millions of elements."""
    with pytest.raises(WireError, match="belongs"):
        SerfState.decode(encode(fields))


def test_slots() -> None:
    event = {"Name": "n", "Payload": b"p", "More": [1]}
    slots: list[object] = [
        None,
        {"Events": [event, event], "LTime": 5},
        {"LTime": 6, "Events": [event]},
        {"Events": [event, {"Name": 1}], "LTime": None, "Other": {}},
        {"Events": [event], "LTime": "x"},
        {"Events": [event] * (SLOT_EVENTS_MAX + 2), "LTime": 9},
    ]
    state = SerfState.decode(encode({"Events": slots}))
    assert [time for time, _, _ in state.events] == [5, 5, 6, 0, *[9] * SLOT_EVENTS_MAX]
    assert {(name, payload) for _, name, payload in state.events} == {("n", b"p")}
    assert state.refused == 1 + 1 + 2


def counted(kind: bytes, count: int) -> bytes:
    return kind + count.to_bytes(4, "big")


MILLION = 1_000_000
LONG = {
    "names": b"\x81\xacStatusLTimes" + counted(b"\xdf", MILLION) + b"\xa1x\x01" * MILLION,
    "left": b"\x81\xabLeftMembers" + counted(b"\xdd", MILLION) + b"\xa1x" * MILLION,
    "fields": counted(b"\xdf", MILLION) + b"\xa1x\x01" * MILLION,
    "slots": b"\x81\xa6Events" + counted(b"\xdd", MILLION) + b"\xc0" * MILLION,
    "events": b"\x81\xa6Events\x91\x81\xa6Events" + counted(b"\xdd", MILLION) + b"\x80" * MILLION,
    "event": b"\x81\xa6Events\x91\x81\xa6Events\x91" + counted(b"\xdf", MILLION) + b"\xa1x\x01" * MILLION,
    "nested": b"\x81\xa6Events" + b"\x91" * MILLION + b"\xc0",
    "nested maps": b"\x81\xa1x" * MILLION + b"\xc0",
}


@pytest.mark.parametrize("name", LONG)
def test_a_million_entries_are_refused_before_they_are_built(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            SerfState.decode(LONG[name])
        assert tracemalloc.get_traced_memory()[1] < 2 * len(LONG[name]) + (1 << 20)
    finally:
        tracemalloc.stop()


def test_a_value_of_a_million_entries_is_passed_over_in_slices() -> None:
    body = b"\x82\xa7Unknown" + counted(b"\xdd", MILLION) + b"\x80" * MILLION + b"\xacStatusLTimes\x81\xa1x\x07"
    state = SerfState()
    assert len(list(state.read(body))) == MILLION // 64 // SLICE_STEPS
    assert state.status_times == {"x": 7}


def test_a_state_is_merged_in_slices_and_events_follow_each_of_them() -> None:
    serf = Serf(SerfConfig("me", "10.0.0.1", 8902), Random(1), 0.0)
    names = {f"{number:05}": number + 1 for number in range(20_000)}
    for name in names:
        serf.roster.records[name] = MemberRecord(serf.roster.own.facts, MemberStatus.FAILED, 0)
    serf.take_events()
    events = [(number, "e", bytes([number & 255, other])) for number in range(EVENTS_MAX) for other in range(20)]
    state = SerfState(1, 1, 1, names, list(names)[::2], events)
    stream = serf.open_incoming_stream()
    assert stream is not None
    assert stream.receive_data(PushPull(False, [], state.encode()).encode(), 1.0) == b""
    while stream.is_behind:
        stream.receive_data(b"", 1.0)
    stream.abandon()
    exchanges = serf.gossip.exchanges
    counts = [len(serf.take_events())]
    while serf.next_timeout() <= 1.0:
        assert (exchanges.incoming_streams, exchanges.incoming_bytes > 0) == (1, True)
        serf.handle_timeout(1.0)
        counts.append(len(serf.take_events()))
    assert (exchanges.incoming_streams, exchanges.incoming_bytes) == (0, 0)
    assert sum(counts) == len(names) // 2 + len(events)
    assert max(counts) <= MERGE_SLICE_ENTRIES
    assert serf.roster.records["00000"].status == MemberStatus.LEFT
    assert serf.roster.records["19999"].status_time == 20_000


def test_a_node_that_gets_such_a_state_goes_on() -> None:
    serf = Serf(SerfConfig("me", "10.0.0.1", 8902), Random(1), 0.0)
    for body in LONG.values():
        stream = serf.open_incoming_stream()
        assert stream is not None
        answer = stream.receive_data(PushPull(False, [], b"\x02" + body).encode(), 1.0)
        while stream.is_behind:
            answer = stream.receive_data(b"", 1.0)
        assert answer[0] == 6
        stream.abandon()
    assert serf.counters.dropped[DropReason.MALFORMED_SERF] == len(LONG)
    assert serf.gossip.exchanges.incoming_bytes == 0


def test_the_most_that_is_read() -> None:
    names = {f"{number:05}": number for number in range(NAMES_MAX)}
    events = [{"Events": [{}] * SLOT_ENTRIES_MAX, "LTime": number} for number in range(EVENTS_MAX)]
    state = SerfState.decode(encode({"Events": events, "LeftMembers": list(names), "StatusLTimes": names}))
    assert (len(state.status_times), len(state.left_members)) == (NAMES_MAX, NAMES_MAX)
    assert len(state.events) == EVENTS_MAX * SLOT_EVENTS_MAX


@pytest.mark.parametrize("keys", [(), (b"k" * 32,)])
def test_a_large_cluster_of_long_names_fits_into_a_push_pull(keys: tuple[bytes, ...]) -> None:
    """10,000 members with the longest names and tags have 11 MB."""
    count = 10_000
    knowing, joining = (
        Serf(SerfConfig(name, f"10.0.0.{number}", 8902, encrypt_keys=keys), Random(number), 0.0)
        for number, name in enumerate(("me", "joins"), 1)
    )
    meta = encode_tags({"t": "x" * 500})
    for number in range(count):
        facts = NodeFacts(f"n{number:0254}", pack_ip(f"10.1.{number >> 8}.{number & 255}"), 7946, meta, OUR_VERSIONS)
        knowing.gossip.table.add(Node(facts, 0.0, 1, STATE_ALIVE))
        knowing.roster.records[facts.name] = MemberRecord(facts, MemberStatus.ALIVE, 1)
    joining.join([("10.0.0.1", 8902)], 1.0)
    (request,) = joining.take_stream_requests()
    stream = knowing.open_incoming_stream()
    assert stream is not None
    answer = stream.receive_data(request.data, 1.0)
    assert len(answer) > 10 << 20
    for at in range(0, len(answer), 1 << 18):
        is_over = joining.receive_stream_reply(request.request_id, answer[at : at + (1 << 18)], "", 1.0)
        while joining.stream_is_behind(request.request_id):
            is_over = joining.receive_stream_reply(request.request_id, b"", "", 1.0)
    assert is_over
    assert not [event for event in joining.take_events() if isinstance(event, JoinResult)]
    assert merge_all(joining.gossip, 1.0) >= count // SLICE_NODES
    (result,) = [event for event in joining.take_events() if isinstance(event, JoinResult)]
    assert (result.joined, result.errors) == (1, {})
    assert len(joining.members()) == count + 2
    assert joining.counters.drops == 0
