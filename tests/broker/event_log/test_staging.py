"""Staged rows on disk: repeated calls, restarts, torn writes, bounds, and the steps of a commit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from broker.event_log import staging as module
from broker.event_log.files import Files
from broker.event_log.staged_rows import RowLimits, encode_frame, encode_row, rows_of
from broker.event_log.staging import (
    STAGED_SECONDS_MAX,
    Commit,
    Committed,
    Partition,
    Staging,
    StagingFault,
    StagingFull,
)

LIMITS = RowLimits(10_000, 128, True)


def frame_of(*payloads: bytes) -> bytes:
    return encode_frame([encode_row("q", "t", payload, 1, False, [], LIMITS) for payload in payloads])


def opened(folder: Path) -> Staging:
    staging = Staging(folder, Files())
    staging.open()
    return staging


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "staged"


def payloads(staging: Staging, partition: Partition, batch: int = 1) -> list[bytes]:
    return [row.payload for frame in staging.frames("q", batch, partition) for row in rows_of(frame)]


def test_a_call_that_is_repeated_changes_nothing(folder: Path) -> None:
    staging = opened(folder)
    first, second = frame_of(b"1", b"2"), frame_of(b"3")
    assert staging.stage("q", 1, Partition(0, 5, 2), 0, first) == 2
    assert staging.stage("q", 1, Partition(0, 5, 2), 0, first) == 2
    assert staging.stage("q", 1, Partition(0, 5, 1), 2, second) == 3
    assert staging.stage("q", 1, Partition(0, 5, 2), 0, first) == 3
    assert staging.stage("q", 1, Partition(0, 6, 1), 0, second) == 1, "another attempt is another file"
    assert payloads(staging, Partition(0, 5, 3)) == [b"1", b"2", b"3"]
    assert staging.bytes == len(first) + 2 * len(second)


@pytest.mark.parametrize("position", [1, 3])
def test_rows_that_do_not_follow_the_staged_ones_are_refused(folder: Path, position: int) -> None:
    staging = opened(folder)
    staging.stage("q", 1, Partition(0, 5, 2), 0, frame_of(b"1", b"2"))
    with pytest.raises(StagingFault, match=f"position is {position}, but 2 rows of partition 0, attempt 5 are staged"):
        staging.stage("q", 1, Partition(0, 5, 2), position, frame_of(b"2", b"3"))


@pytest.mark.parametrize("left", [1, 10, 17])
def test_a_torn_frame_is_cut_at_the_next_start(folder: Path, left: int) -> None:
    staging = opened(folder)
    whole, torn = frame_of(b"1"), frame_of(b"2")
    staging.stage("q", 1, Partition(0, 5, 1), 0, whole)
    staging.stage("q", 1, Partition(0, 5, 1), 1, torn)
    (path,) = folder.glob("q/1/*.rows")
    os.truncate(path, len(whole) + left)
    again = opened(folder)
    assert again.bytes == len(whole) == path.stat().st_size
    assert again.stage("q", 1, Partition(0, 5, 1), 1, torn) == 2
    assert payloads(again, Partition(0, 5, 2)) == [b"1", b"2"]


def test_a_batch_is_committed_and_its_rows_go(folder: Path) -> None:
    staging = opened(folder)
    staging.stage("q", 1, Partition(0, 5, 1), 0, frame_of(b"old"))
    staging.stage("q", 2, Partition(0, 5, 1), 0, frame_of(b"1"))
    staging.stage("q", 2, Partition(0, 6, 1), 0, frame_of(b"other attempt"))
    staging.stage("q", 3, Partition(0, 5, 1), 0, frame_of(b"next"))
    staging.stage("other", 1, Partition(0, 5, 1), 0, frame_of(b"x"))
    wanted = (Partition(0, 6, 1), Partition(1, 9, 0))
    commit = Commit("q", 2, wanted, 40, "L")
    assert staging.commit_of("q", 2) is None
    staging.begin(commit)
    with pytest.raises(StagingFault, match="the commit of batch 2 of query q has begun"):
        staging.abort("q", 2)
    assert opened(folder).unfinished() == [commit], "the next start knows it"
    assert staging.committed("q") is None
    staging.finish(commit)
    for one in (staging, opened(folder)):
        assert one.committed("q") == Committed(2, 1)
        assert one.unfinished() == []
        assert one.bytes == len(frame_of(b"next")) + len(frame_of(b"x"))
    staging.finish(commit)


def test_a_batch_that_was_published_is_not_begun_again_after_a_crash(folder: Path, tmp_path: Path) -> None:
    """The crash comes between the record of the commit and the removal of its rows; the log may have lost them since."""
    staging = opened(folder)
    staging.stage("q", 1, Partition(0, 5, 1), 0, frame_of(b"1"))
    staging.stage("q", 2, Partition(0, 5, 1), 0, frame_of(b"next"))
    commit = Commit("q", 1, (Partition(0, 5, 1),), 0, "L")
    staging.begin(commit)
    shutil.copytree(folder / "q" / "1", tmp_path / "kept")
    staging.finish(commit)
    shutil.copytree(tmp_path / "kept", folder / "q" / "1")
    again = opened(folder)
    assert again.unfinished() == []
    assert again.bytes == len(frame_of(b"next"))


def test_a_batch_without_rows_can_be_committed(folder: Path) -> None:
    staging = opened(folder)
    commit = Commit("q", 7, (), 0, "L")
    staging.begin(commit)
    assert opened(folder).unfinished() == [commit]
    staging.finish(commit)
    assert staging.committed("q") == Committed(7, 0)


@pytest.mark.parametrize("wanted", [Partition(0, 5, 1), Partition(0, 5, 3), Partition(0, 6, 2), Partition(1, 5, 2)])
def test_a_commit_of_other_rows_than_the_staged_ones_is_refused(folder: Path, wanted: Partition) -> None:
    staging = opened(folder)
    staging.stage("q", 1, Partition(0, 5, 2), 0, frame_of(b"1", b"2"))
    with pytest.raises(StagingFault, match=r"batch 1: \d rows of partition .* stage the batch again"):
        staging.begin(Commit("q", 1, (wanted,), 0, "L"))
    assert staging.unfinished() == []


def test_an_aborted_batch_is_gone(folder: Path) -> None:
    staging = opened(folder)
    staging.stage("q", 1, Partition(0, 5, 1), 0, frame_of(b"1"))
    staging.abort("q", 1)
    staging.abort("q", 1)
    assert staging.bytes == 0
    assert not (folder / "q" / "1").exists()
    assert staging.stage("q", 1, Partition(0, 5, 1), 0, frame_of(b"2")) == 1


def test_old_batches_expire_unless_their_commit_has_begun(folder: Path) -> None:
    staging = opened(folder)
    staging.stage("q", 1, Partition(0, 5, 1), 0, frame_of(b"old"))
    staging.stage("begun", 1, Partition(0, 5, 1), 0, frame_of(b"1"))
    staging.begin(Commit("begun", 1, (Partition(0, 5, 1),), 0, "L"))
    at = (folder / "q" / "1").stat().st_mtime
    assert staging.expire(at + STAGED_SECONDS_MAX - 1.0) == 0
    assert staging.expire(at + STAGED_SECONDS_MAX + 60.0) == 1
    assert [commit.query for commit in staging.unfinished()] == ["begun"]
    assert staging.bytes == len(frame_of(b"1"))


@pytest.mark.interpreted
def test_staged_rows_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = opened(folder)
    size = len(frame_of(b"1"))
    monkeypatch.setattr(module, "STAGED_BYTES_MAX", 2 * size)
    monkeypatch.setattr(module, "STAGED_FILES_MAX", 2)
    staging.stage("q", 1, Partition(0, 1, 1), 0, frame_of(b"1"))
    with pytest.raises(StagingFull, match="bytes are staged already"):
        staging.stage("q", 1, Partition(0, 1, 2), 1, frame_of(b"2", b"3"))
    staging.stage("q", 1, Partition(0, 2, 1), 0, frame_of(b"1"))
    monkeypatch.setattr(module, "STAGED_BYTES_MAX", 20 * size)
    with pytest.raises(StagingFull, match="2 partitions are staged already"):
        staging.stage("q", 1, Partition(0, 3, 1), 0, frame_of(b"1"))
    staging.abort("q", 1)
    assert staging.stage("q", 2, Partition(0, 3, 1), 0, frame_of(b"1")) == 1


@pytest.mark.interpreted
def test_the_query_that_committed_least_recently_is_forgotten(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERIES_MAX", 2)
    staging = opened(folder)
    for number, query in enumerate(("a", "b", "c")):
        commit = Commit(query, 1, (), 0, "L")
        staging.begin(commit)
        staging.finish(commit)
        for path in (folder / query, folder / query / "committed.json"):
            os.utime(path, (number, number))
    staging.stage("a", 2, Partition(0, 1, 1), 0, frame_of(b"in use"))
    staging.expire(0.0)
    assert [staging.committed(query) is not None for query in ("a", "b", "c")] == [True, True, True]
    staging.abort("a", 2)
    for path in (folder / "a", folder / "a" / "committed.json"):
        os.utime(path, (0, 0))
    staging.expire(0.0)
    assert [staging.committed(query) is not None for query in ("a", "b", "c")] == [False, True, True]


def test_a_damaged_file_is_named(folder: Path) -> None:
    staging = opened(folder)
    staging.stage("q", 1, Partition(0, 5, 1), 0, frame_of(b"1"))
    staging.begin(Commit("q", 1, (Partition(0, 5, 1),), 0, "L"))
    (rows,) = folder.glob("q/1/*.rows")
    rows.write_bytes(rows.read_bytes()[:-1] + b"x")
    with pytest.raises(StagingFault, match=r"0-5\.rows is damaged at byte 0"):
        payloads(staging, Partition(0, 5, 1))
    (folder / "q" / "1" / "commit.json").write_text("{")
    with pytest.raises(StagingFault, match=r"commit\.json is damaged"):
        staging.commit_of("q", 1)
