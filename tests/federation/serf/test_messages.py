"""Messages of Serf: what is written is read; invalid entries of a push-pull are left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.errors import WireError
from federation.gossip.msgpack_fields import LEAVE_TIME_MAX, encode
from federation.serf.messages import (
    EVENTS_MAX,
    ConflictResponse,
    JoinIntent,
    LeaveIntent,
    Query,
    RelayMessage,
)
from federation.serf.messages import encode_unknown_name as unknown
from federation.serf.state import SerfState

NAMES = st.text(max_size=20)
TIMES = st.integers(0, LEAVE_TIME_MAX)


@given(TIMES, NAMES, st.booleans(), st.booleans())
def test_intents_come_back(time: int, name: str, prune: bool, forced: bool) -> None:
    leave = LeaveIntent.decode(LeaveIntent(time, name, prune, forced).encode()[1:])
    assert (leave.lamport_time, leave.node, leave.prune, leave.forced) == (time, name, prune, forced)
    join = JoinIntent.decode(JoinIntent(time, name).encode()[1:])
    assert (join.lamport_time, join.node) == (time, name)


@given(
    TIMES,
    TIMES,
    TIMES,
    st.dictionaries(NAMES, TIMES, max_size=5),
    st.lists(NAMES, max_size=5),
    st.lists(st.tuples(st.integers(0, 600), NAMES, st.binary(max_size=20)), max_size=10),
)
def test_the_state_of_a_push_pull_comes_back(
    time: int,
    event_time: int,
    query_time: int,
    status_times: dict[str, int],
    left: list[str],
    events: list[tuple[int, str, bytes]],
) -> None:
    encoded = SerfState(time, event_time, query_time, status_times, left, events).encode()
    found = SerfState.decode(encoded[1:])
    assert (found.lamport_time, found.event_time, found.query_time) == (time, event_time, query_time)
    assert (found.status_times, found.left_members, found.refused) == (status_times, left, 0)
    assert sorted(found.events) == sorted(events)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (encode({"LTime": LEAVE_TIME_MAX + 1, "Node": "n"}), "out of range"),
        (encode({"LTime": 1, "Node": 5}), "not a string"),
        (encode([1]), "not a map"),
        (b"\xc1", "not msgpack"),
    ],
)
def test_bad_leave_intents(body: bytes, text: str) -> None:
    with pytest.raises(WireError, match=text):
        LeaveIntent.decode(body)


def test_bounds() -> None:
    with pytest.raises(WireError, match="Events has 513"):
        SerfState.decode(encode({"Events": [None] * (EVENTS_MAX + 1)}))
    with pytest.raises(WireError, match="filter is not binary"):
        Query.decode(encode({"Filters": [1]}))
    with pytest.raises(WireError, match="without an address"):
        RelayMessage.decode(encode({"DestAddr": {"IP": bytes(3), "Port": 1}}))


def test_a_conflict_response_may_be_without_a_member() -> None:
    assert ConflictResponse.decode(unknown()[1:]) is None
