"""When a log keeps its id over a restart, and what makes it another log."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from broker.event_log.identity import (
    Found,
    LogIdentity,
    decode_identity,
    decode_mark,
    encode_identity,
    encode_mark,
    gaps_between,
    go_on,
)
from broker.event_log.index import Segment
from broker.event_log.lineage import Lineage, Parent

MARKED_ID = "6e0c2f5e-5a3a-4a58-9d3e-0d7f4a1c9f10"
BOOT = "boot-1"
KILLED = LogIdentity("id", "n1", "commit", BOOT, last_segment=10)
CLEAN = replace(KILLED, clean=True, next_offset=30)
INTERVAL = replace(KILLED, sync="interval")
NONE = replace(KILLED, sync="none")


def segments(*ranges: tuple[int, int]) -> list[Segment]:
    return [Segment(first, end, 0, 0, 100) for first, end in ranges]


def found(*ranges: tuple[int, int], **fields: Any) -> Found:
    return replace(Found(segments(*ranges), ranges[-1][1] if ranges else 0, synced_to=28), **fields)


SOUND = found((0, 10), (10, 30), read_to=25)
CUT = found((0, 10), (10, 20))
HEADLESS = found((0, 10), is_damaged=True)


@pytest.mark.parametrize(
    ("before", "there", "boot", "next_offset", "reason"),
    [
        (KILLED, SOUND, BOOT, 30, ""),
        (KILLED, SOUND, "boot-2", 30, ""),
        (KILLED, replace(SOUND, is_torn=True), BOOT, 30, ""),
        (KILLED, found((10, 30)), BOOT, 30, ""),  # the retention removed the first
        (KILLED, found((0, 9), (10, 30)), BOOT, 30, ""),  # a gap
        # The mark tells of all that could be read: what is missing before it is a gap.
        (KILLED, CUT, BOOT, 28, ""),
        (KILLED, replace(CUT, read_to=29), BOOT, 29, ""),
        (KILLED, replace(CUT, is_torn=True), BOOT, 28, ""),
        (KILLED, HEADLESS, BOOT, 28, ""),
        (KILLED, found((0, 10)), BOOT, 28, ""),
        (KILLED, found(), BOOT, 28, ""),
        (INTERVAL, CUT, BOOT, 28, ""),
        # It may tell less after a crash of the machine, and nothing where it is missing.
        (KILLED, CUT, "boot-2", 28, "the log ends at offset 20, and had records up to 28"),
        (KILLED, replace(SOUND, is_torn=True), "boot-2", 30, "the last write was not finished"),
        (KILLED, replace(HEADLESS, end_offset=29), "boot-2", 29, "the newest segment is damaged"),
        (KILLED, found((0, 10)), "boot-2", 28, "the segment of offset 10 is missing"),
        (KILLED, replace(SOUND, synced_to=None), BOOT, 30, "the file synced is missing"),
        (KILLED, replace(CUT, read_to=25, synced_to=None), BOOT, 25, "the file synced is missing"),
        (replace(KILLED, next_offset=17), found(), "boot-2", 28, "the segment of offset 10 is missing"),
        (INTERVAL, CUT, "boot-2", 28, "the log ends at offset 20"),
        # A stop tells as well.
        (CLEAN, SOUND, BOOT, 30, ""),
        (CLEAN, SOUND, "boot-2", 30, ""),
        (CLEAN, CUT, "boot-2", 30, ""),
        (CLEAN, replace(HEADLESS, synced_to=None), "boot-2", 30, ""),
        (CLEAN, found(), BOOT, 30, ""),
        (replace(CLEAN, sync="none"), CUT, "boot-2", 30, ""),
        # Without syncing there is no mark.
        (NONE, SOUND, BOOT, 30, ""),
        (NONE, replace(SOUND, is_torn=True), BOOT, 30, "the last write was not finished, with sync none"),
        (NONE, replace(CUT, read_to=25), BOOT, 28, "the log ends at offset 20"),
        (NONE, SOUND, "", 30, "the machine was restarted without a stop of this node, with sync none"),
        (NONE, SOUND, "boot-2", 30, "the machine was restarted"),
        (INTERVAL, SOUND, "boot-2", 30, ""),  # what readers had was on disk
    ],
)
def test_offsets_that_may_have_been_read_are_not_given_out_again_under_the_same_id(
    before: LogIdentity, there: Found, boot: str, next_offset: int, reason: str
) -> None:
    found_next, why = go_on(before, there, boot)
    assert found_next == next_offset
    assert reason in why
    assert bool(why) is bool(reason)


def test_gaps() -> None:
    assert gaps_between(segments((0, 5), (5, 9), (12, 12), (12, 20), (30, 31))) == [(9, 12), (20, 30)]
    assert gaps_between([]) == []


@pytest.mark.parametrize(
    "identity", [KILLED, CLEAN, replace(NONE, parents=(Parent("a", 2), Parent("b", 4, 7)), number=9)]
)
def test_the_file(identity: LogIdentity) -> None:
    assert decode_identity(encode_identity(identity)) == identity


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        encode_identity(KILLED).replace(b'"version": 3', b'"version": 4'),
        encode_identity(KILLED).replace(b'"parents": []', b'"parents": [1]'),
        encode_identity(KILLED).replace(b'"node"', b'"nodes"'),
        encode_identity(KILLED).replace(b'"n1"', b"5"),
        encode_identity(KILLED).replace(b"false", b"0"),
        encode_identity(KILLED)[:-5],
    ],
)
def test_a_damaged_file(data: bytes) -> None:
    assert decode_identity(data) is None


def test_the_ids_of_the_version_before_are_numbered_one_by_one() -> None:
    former = {"log_id": "c", "node": "n1", "sync": "none", "boot_id": BOOT, "parents": [["a", 2], ["b", 4]]}
    found = decode_identity(json.dumps({"version": 2, **former}).encode())
    assert found is not None
    assert found.lineage == Lineage("a").child("b", 2).child("c", 4)


def test_the_file_of_the_version_before_is_read() -> None:
    former = {"version": 1, "log_id": "id", "node": "n1", "sync": "none", "boot_id": BOOT, "clean": True}
    data = json.dumps({**former, "next_offset": 30, "last_segment": 10, "gaps": [[3, 5]]}).encode()
    assert decode_identity(data) == replace(NONE, clean=True, next_offset=30)


@pytest.mark.parametrize("offset", [0, 1, 2**40])
def test_the_file_of_the_mark(offset: int) -> None:
    assert decode_mark(encode_mark(MARKED_ID, offset), MARKED_ID) == offset


def test_a_mark_of_another_log_tells_nothing() -> None:
    assert decode_mark(encode_mark(MARKED_ID, 7), MARKED_ID.replace("6", "7")) is None


def test_a_file_that_is_no_mark_tells_nothing() -> None:
    whole = encode_mark(MARKED_ID, 7)
    damaged = [whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :] for at in range(len(whole))]
    parts = [whole[:size] for size in range(len(whole))]
    assert {decode_mark(data, MARKED_ID) for data in [*damaged, *parts, whole + b"\0"]} == {None}
