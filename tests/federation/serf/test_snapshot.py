"""Serf's snapshot: what the lines mean, and that a file says what happened, wherever it was torn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.addresses import Address
from federation.serf.events import Event, Member, MemberFailed, MemberJoin, MemberLeave, MemberReap, MemberStatus
from federation.serf.snapshot import (
    COMPACT_BYTES_MIN,
    COMPACT_BYTES_PER_MEMBER,
    LINES_MAX,
    SNAPSHOT_BYTES_MAX,
    NotASnapshot,
    SnapshotContents,
    SnapshotLog,
    read_snapshot,
)

# The lines that agents write (tests/integration/test_snapshots.py reads real files), and those of old releases.
OF_SERF = b"""clock: 1
alive: agent1 127.0.0.1:20101
clock: 2
alive: agent 2 127.0.0.1:20102
alive: agent3 [fd00::3]:20103
clock: 4
event-clock: 7
query-clock: 9
not-alive: agent3
coordinate: {"Vec":[0]}
# a comment
"""


def test_a_file_of_serf() -> None:
    found = read_snapshot(OF_SERF, False)
    assert found.members == {"agent1": ("127.0.0.1", 20101), "agent 2": ("127.0.0.1", 20102)}
    assert found.clocks == [4, 7, 9]
    assert (found.whole, found.unknown) == (len(OF_SERF), 0)


@pytest.mark.parametrize(
    ("rejoin", "members", "clocks"), [(False, {"b": ("10.0.0.2", 2)}, [0, 0, 3]), (True, None, [7, 0, 3])]
)
def test_a_leave_forgets_all_before_it(rejoin: bool, members: dict[str, Address] | None, clocks: list[int]) -> None:
    data = b"alive: a 10.0.0.1:1\nclock: 7\nleave\nquery-clock: 3\nalive: b 10.0.0.2:2\n"
    found = read_snapshot(data, rejoin)
    assert found.members == (members or {"a": ("10.0.0.1", 1), "b": ("10.0.0.2", 2)})
    assert found.clocks == clocks


@pytest.mark.parametrize(
    "line",
    [
        b"alive: a",
        b"alive: a 10.0.0.1",
        b"alive: a 10.0.0.1:0",
        b"alive: a 10.0.0.1:65536",
        b"alive: a 10.0.0.1:99999999999999999999",
        b"alive: a 10.0.0.256:1",
        b"alive:  10.0.0.1:1",
        b"alive: \x07 10.0.0.1:1",
        b"alive: \xff 10.0.0.1:1",
        b"alive: " + b"n" * 256 + b" 10.0.0.1:1",
        b"clock: -1",
        b"clock: 99999999999999999999999",
        b"clock: 9223372036854775807",
        b"clock: one",
        b"clock 1",
        b"hello",
        b"",
    ],
)
def test_lines_that_say_nothing_known_are_skipped_and_counted(line: bytes) -> None:
    found = read_snapshot(b"clock: 5\n" + line + b"\nalive: b 10.0.0.2:2\n", False)
    assert found.members == {"b": ("10.0.0.2", 2)}
    assert (found.clocks, found.unknown) == ([5, 0, 0], 1)


@pytest.mark.parametrize("data", [b"mqtt:\n  max_inflight: 100\n", b"\x00\x01\n", bytes(SNAPSHOT_BYTES_MAX + 1)])
def test_another_file_is_no_snapshot(data: bytes) -> None:
    with pytest.raises(NotASnapshot, match="snapshot"):
        read_snapshot(data, False)


def test_an_empty_file_and_one_with_a_torn_line_alone_say_nothing() -> None:
    assert read_snapshot(b"", False) == SnapshotContents()
    assert read_snapshot(b"alive: a 10.0", False) == SnapshotContents()


NAMES = st.sampled_from(["a", "b b", "cé", "own"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), NAMES, st.integers(1, 3)),
        st.tuples(st.sampled_from(["leave", "fail", "reap"]), NAMES, st.just(1)),
        st.tuples(st.just("clocks"), st.integers(0, 50), st.integers(0, 50)),
        st.tuples(st.just("compact"), st.just(""), st.just(0)),
        st.tuples(st.just("own leave"), st.just(""), st.just(0)),
    ),
    max_size=30,
)


def event_of(kind: str, name: str, number: int) -> Event:
    status = {"join": MemberStatus.ALIVE, "fail": MemberStatus.FAILED}.get(kind, MemberStatus.LEFT)
    member = Member(name, f"10.0.0.{number}", 8902, {}, status)
    kinds: dict[str, type[MemberJoin | MemberLeave | MemberFailed | MemberReap]] = {
        "join": MemberJoin,
        "leave": MemberLeave,
        "fail": MemberFailed,
        "reap": MemberReap,
    }
    return kinds[kind](member)


@given(STEPS, st.data())
def test_a_file_says_what_happened_wherever_it_was_torn(steps: list[tuple[str, str, int]], data: st.DataObject) -> None:
    """Beside a naive model: the members and clocks after each line of the file."""
    log = SnapshotLog(SnapshotContents(), "own")
    file = b""
    members: dict[str, Address] = {}
    clocks = [0, 0, 0]
    has_left = False
    after: dict[int, tuple[dict[str, Address], list[int]]] = {
        0: ({}, [0, 0, 0])
    }  # by length of the file, while it is appended
    for kind, first, second in steps:
        if kind == "compact":
            log.fail()
        elif kind == "own leave":
            log.leave()
            has_left = True
            members, clocks = {}, [0, 0, 0]
        elif kind == "clocks":
            log.note_clocks(int(first), second, 0)
            if not has_left:
                clocks = [max(clocks[0], int(first)), max(clocks[1], second), 0]
        else:
            log.note_events([event_of(kind, str(first), second)])
            if kind == "join" and first != "own" and not has_left:
                members = members | {str(first): (f"10.0.0.{second}", 8902)}
            elif kind in ("leave", "reap"):
                members = {name: at for name, at in members.items() if name != first}
        lines, is_whole = log.take()
        if is_whole:
            file, after = b"", {}
        file += lines
        after[len(file)] = (dict(members), list(clocks))
    if not has_left:
        found = read_snapshot(file, False)
        assert (found.members, found.clocks) == (members, clocks)
        assert log.members == members
    else:
        assert read_snapshot(file, False).members == {}
    torn_at = data.draw(st.integers(0, len(file)))
    torn = read_snapshot(file[:torn_at], False)
    assert torn.whole <= torn_at
    if torn.whole in after and not has_left:
        assert (torn.members, torn.clocks) == after[torn.whole]


def test_a_file_is_written_anew_before_it_grows_without_bound() -> None:
    log = SnapshotLog(SnapshotContents(), "own")
    size, most, replaced = 0, 0, 0
    for number in range(20_000):
        log.note_events([event_of("join", f"n{number % 100}", 1 + number // 100 % 2)])
        log.note_clocks(number, 0, 0)
        lines, is_whole = log.take()
        size = len(lines) if is_whole else size + len(lines)
        replaced += is_whole
        most = max(most, size)
    limit = max(COMPACT_BYTES_MIN, COMPACT_BYTES_PER_MEMBER * 100)
    assert most <= limit
    assert 1 <= replaced <= 20


def test_a_disk_that_takes_nothing_for_long_gets_the_whole_file() -> None:
    log = SnapshotLog(SnapshotContents(), "own")
    log.note_events([event_of("join", "a", 1)])
    for time in range(1, LINES_MAX + 10):
        log.note_clocks(time, 0, 0)
    whole, is_whole = log.take()
    assert is_whole
    assert whole.splitlines() == [
        b"alive: a 10.0.0.1:8902",
        b"clock: %d" % (LINES_MAX + 9),
        b"event-clock: 0",
        b"query-clock: 0",
    ]


def test_a_failed_member_stays_until_it_is_forgotten() -> None:
    log = SnapshotLog(SnapshotContents(), "own")
    log.note_events([event_of("join", "a", 1), event_of("fail", "a", 1)])
    assert read_snapshot(log.take()[0], False).members == {"a": ("10.0.0.1", 8902)}
    log.note_events([event_of("reap", "a", 1)])
    assert log.take() == (b"not-alive: a\n", False)


def test_a_node_that_joins_again_after_its_leave_has_its_members_in_the_file() -> None:
    log = SnapshotLog(SnapshotContents(), "own")
    log.note_events([event_of("join", "a", 1)])
    log.leave()
    log.note_events([event_of("join", "b", 2)])  # the others are no longer its members
    left, _ = log.take()
    assert read_snapshot(left, False).members == {}
    assert read_snapshot(left, True).members == {"a": ("10.0.0.1", 8902)}
    log.rejoin(
        [Member("own", "10.0.0.9", 8902, {}, MemberStatus.ALIVE), Member("c", "10.0.0.3", 1, {}, MemberStatus.ALIVE)]
    )
    whole, is_whole = log.take()
    assert is_whole
    assert read_snapshot(whole, False).members == {"c": ("10.0.0.3", 1)}


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(OF_SERF.split(b"\n")))), st.booleans())
def test_any_bytes_are_read_or_are_no_snapshot(lines: list[bytes], rejoin: bool) -> None:
    data = b"\n".join(lines)
    try:
        found = read_snapshot(data, rejoin)
    except NotASnapshot:
        return
    assert found.whole == data.rfind(b"\n") + 1
    log = SnapshotLog(found, "own")
    log.fail()
    whole, _ = log.take()
    again = read_snapshot(whole, rejoin)
    assert (again.members, again.clocks, again.unknown) == (log.members, found.clocks, 0)
