"""What a replay reader knows of its sessions, and which of them were lost without a reason."""

from __future__ import annotations

import pytest

from replay_sessions import Entry, NodeKill, Sessions, begun_faults

A, B, C = 1, 2, 3


def connects(*lines: tuple[int, bool | None] | tuple[int, bool | None, str]) -> list[Entry]:
    """CONNECT at 10, 20, 30, …, each with a CONNACK one second later, unless the session is None: no answer."""
    entries = []
    for number, (port, has_session, *start) in enumerate(lines, 1):
        entries.append(Entry(port, number * 10))
        if has_session is not None:
            entries.append(Entry(port, number * 10 + 1, has_session, start[0] if start else "earliest"))
    return entries


def known(*lines: tuple[int, bool | None] | tuple[int, bool | None, str]) -> Sessions:
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


def test_all_may_come_again_until_the_former_session_can_come() -> None:
    assert not known(FIRST, (B, True)).excuses_all
    assert known(FIRST, (B, False)).excuses_all
    assert known(FIRST, (B, False), (C, True)).lost == {A}
    assert not known(FIRST, (B, False), (C, True), (A, True)).excuses_all
    own = known(FIRST, (B, False, "own"))
    assert (own.excuses_all, own.lost) == (False, {A})
