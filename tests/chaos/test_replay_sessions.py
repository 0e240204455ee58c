"""What a replay reader knows of its sessions, and which of them were lost without a reason."""

from __future__ import annotations

import pytest

from replay_sessions import Entry, Kind, NodeKill, Sessions, begun_faults

A, B, C = 1, 2, 3


Line = tuple[int, bool | None] | tuple[int, bool | None, str]


def connects(*lines: Line) -> list[Entry]:
    """CONNECT at 10, 20, 30, …, with a CONNACK a second later, unless Session Present is None: no answer. The client is served
    until 8 seconds later where a text is there."""
    entries = []
    for number, (port, has_session, *start) in enumerate(lines, 1):
        entries.append(Entry(Kind.CONNECT, port, number * 10))
        if has_session is not None:
            kind = Kind.PRESENT if has_session else Kind.ANEW
            entries.append(Entry(kind, port, number * 10 + 1, start[0] if start else "earliest"))
        if start:
            entries.append(Entry(Kind.SERVED, port, number * 10 + 8))
    return entries


def known(*lines: Line) -> Sessions:
    sessions = Sessions()
    for entry in connects(*lines):
        sessions.note(entry)
    return sessions


FIRST = (A, False)


@pytest.mark.parametrize(
    ("lines", "kills", "faults"),
    [
        ([FIRST, (B, True)], [], 0),
        ([FIRST, (B, False)], [], 1),
        ([FIRST, (B, False)], [(A, 15)], 0),
        ([FIRST, (B, False)], [(C, 15)], 1),
        ([FIRST, (B, False)], [(A, 25)], 1),  # afterwards
        ([FIRST, (A, False)], [(A, 15)], 1),  # its store had it
        ([FIRST, (B, True), (C, False)], [(A, 15)], 1),  # it had left that node
        ([FIRST, (B, None), (C, False)], [(B, 25)], 0),  # it may have come to that node
        ([FIRST, (B, False), (C, False)], [(A, 15)], 1),  # one kill does not excuse two
        ([FIRST, (B, False), (C, False)], [(A, 15), (B, 25)], 0),
        ([FIRST, (B, None), (A, True), (C, False)], [(A, 5)], 1),
    ],
)
def test_a_session_is_not_there_only_after_the_kill_of_its_node(
    lines: list[tuple[int, bool | None]], kills: list[tuple[int, float]], faults: int
) -> None:
    found = begun_faults(connects(*lines), [NodeKill(port, at, at + 0.5) for port, at in kills])
    assert sum(fault.count for fault in found) == faults


def test_every_other_session_begins_with_the_start_of_the_one_before() -> None:
    assert Sessions().start_without_session("own") == "own"
    assert known(FIRST).start_without_session("own") == "earliest"
    assert known(FIRST, (B, False)).start_without_session("own") == "own"
    assert known(FIRST, (B, False), (C, False, "own")).start_without_session("later") == "own"


def test_records_may_come_again_until_the_node_of_the_former_session_has_served_the_client() -> None:
    assert known(FIRST, (B, True)).lost == set()
    assert known(FIRST, (B, False), (C, True)).lost == {A}
    assert known(FIRST, (B, False), (A, True)).lost == {A}, "it does not know the new session yet"
    assert known(FIRST, (B, False), (A, True, "earliest")).lost == set()
    assert known(FIRST, (B, False, "own"), (C, False)).lost == {A, B}
