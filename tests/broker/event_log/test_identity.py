"""When a log keeps its id over a restart, and what makes it another log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.event_log.identity import (
    Found,
    LogIdentity,
    decode_identity,
    decode_mark,
    encode_identity,
    encode_mark,
    gaps_between,
    what_is_lost,
)
from broker.event_log.index import Segment

MARKED_ID = "6e0c2f5e-5a3a-4a58-9d3e-0d7f4a1c9f10"
BOOT = "boot-1"
KILLED = LogIdentity("id", "n1", "commit", BOOT, last_segment=10)
CLEAN = replace(KILLED, clean=True, next_offset=30)
INTERVAL = replace(KILLED, sync="interval")
NONE = replace(KILLED, sync="none")


def segments(*ranges: tuple[int, int]) -> list[Segment]:
    return [Segment(first, end, 0, 0, 100) for first, end in ranges]


SOUND = Found(segments((0, 10), (10, 30)), False, 0, 25, 28)


@pytest.mark.parametrize(
    ("before", "found", "node", "boot", "lost"),
    [
        (KILLED, SOUND, "n1", BOOT, ""),
        (KILLED, SOUND, "n1", "boot-2", ""),
        (KILLED, replace(SOUND, is_torn=True), "n1", BOOT, ""),
        (KILLED, SOUND, "n2", BOOT, "the log is of node n1"),
        (KILLED, replace(SOUND, damaged=2), "n1", BOOT, "2 damaged segments were set aside"),
        (KILLED, Found([], False, 0, 0, 0), "n1", BOOT, "the segment of offset 10 is missing"),
        (KILLED, Found(segments((0, 10)), False, 0, 0, 0), "n1", BOOT, "the segment of offset 10 is missing"),
        (
            KILLED,
            Found(segments((0, 9), (10, 30)), False, 0, 0, 0),
            "n1",
            BOOT,
            "the records of offsets 9 to 9 are missing",
        ),
        (replace(KILLED, gaps=((9, 10),)), Found(segments((0, 9), (10, 30)), False, 0, 0, 0), "n1", BOOT, ""),
        (KILLED, Found(segments((10, 30)), False, 0, 0, 0), "n1", BOOT, ""),  # the retention removed the first
        (KILLED, replace(SOUND, read_to=31), "n1", BOOT, "the log ends at offset 30, and was read up to 31"),
        (KILLED, replace(SOUND, synced_to=31), "n1", "boot-2", "the log ends at offset 30, and was on disk up to 31"),
        (CLEAN, SOUND, "n1", BOOT, ""),
        (CLEAN, SOUND, "n1", "boot-2", ""),
        (replace(CLEAN, sync="none"), SOUND, "n1", "boot-2", ""),
        (replace(CLEAN, next_offset=31), SOUND, "n1", BOOT, "the log ends at offset 30, it was stopped at 31"),
        (INTERVAL, SOUND, "n1", BOOT, ""),
        (INTERVAL, replace(SOUND, is_torn=True), "n1", BOOT, "the last write was not finished, with sync interval"),
        (
            INTERVAL,
            SOUND,
            "n1",
            "boot-2",
            "the machine was restarted without a stop of this node, with sync interval",
        ),
        (NONE, SOUND, "n1", BOOT, ""),
        (NONE, SOUND, "n1", "", "the machine was restarted without a stop of this node, with sync none"),
    ],
)
def test_losses_are_recognized(before: LogIdentity, found: Found, node: str, boot: str, lost: str) -> None:
    assert what_is_lost(before, found, node, boot) == lost


def test_gaps() -> None:
    assert gaps_between(segments((0, 5), (5, 9), (12, 12), (12, 20), (30, 31))) == ((9, 12), (20, 30))
    assert gaps_between([]) == ()


@pytest.mark.parametrize("identity", [KILLED, CLEAN, replace(NONE, gaps=((1, 2), (3, 4)))])
def test_the_file(identity: LogIdentity) -> None:
    assert decode_identity(encode_identity(identity)) == identity


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        encode_identity(KILLED).replace(b'"version": 1', b'"version": 2'),
        encode_identity(KILLED).replace(b'"node"', b'"nodes"'),
        encode_identity(KILLED).replace(b'"n1"', b"5"),
        encode_identity(KILLED).replace(b"false", b"0"),
        encode_identity(KILLED)[:-5],
    ],
)
def test_a_damaged_file(data: bytes) -> None:
    assert decode_identity(data) is None


@pytest.mark.parametrize("offset", [0, 1, 2**40])
def test_the_file_of_the_mark(offset: int) -> None:
    assert decode_mark(encode_mark(MARKED_ID, offset), MARKED_ID) == offset


def test_a_mark_of_another_log_tells_nothing() -> None:
    assert decode_mark(encode_mark(MARKED_ID, 7), MARKED_ID.replace("6", "7")) == 0


def test_a_file_that_is_no_mark_tells_nothing() -> None:
    whole = encode_mark(MARKED_ID, 7)
    damaged = [whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :] for at in range(len(whole))]
    parts = [whole[:size] for size in range(len(whole))]
    assert {decode_mark(data, MARKED_ID) for data in [*damaged, *parts, whole + b"\0"]} == {0}
