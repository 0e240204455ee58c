"""Staged batches on disk: restarts, the steps of a commit, what is forgotten."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from broker.event_log import staging as module
from broker.event_log.files import Files
from broker.event_log.staged_block import RowLimits
from broker.event_log.staged_files import StagingFault
from broker.event_log.staging import STAGED_SECONDS_MAX, Commit, Committed, Partition, Staging
from row_blocks import a_row, block_of

LIMITS = RowLimits(10_000, 128, True)


def blocks_of(*payloads: bytes) -> bytes:
    return block_of([a_row("t", payload, 1) for payload in payloads])


def opened(folder: Path) -> Staging:
    staging = Staging(folder, Files(), 2**30, lambda: LIMITS)
    staging.open()
    return staging


def stage(staging: Staging, query: str, batch: int, attempt: int, *payloads: bytes) -> None:
    blocks = blocks_of(*payloads)
    assert staging.stage(query, batch, 0, attempt, 0, blocks) == (len(payloads), len(blocks))


class FailingSync(Files):
    fails = False

    def sync(self, path: Path) -> None:
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "staged"


def test_a_batch_is_committed_and_its_rows_go(folder: Path) -> None:
    staging = opened(folder)
    stage(staging, "q", 1, 5, b"old")
    stage(staging, "q", 2, 5, b"1")
    stage(staging, "q", 2, 6, b"other attempt")
    stage(staging, "q", 3, 5, b"next")
    stage(staging, "other", 1, 5, b"x")
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
        assert one.staged_bytes == len(blocks_of(b"next")) + len(blocks_of(b"x"))
    staging.finish(commit)


def test_a_batch_that_was_published_is_not_begun_again_after_a_crash(folder: Path, tmp_path: Path) -> None:
    """The crash comes between the record of the commit and the removal of its rows; the log may have lost them since."""
    staging = opened(folder)
    stage(staging, "q", 1, 5, b"1")
    stage(staging, "q", 2, 5, b"next")
    commit = Commit("q", 1, (Partition(0, 5, 1),), 0, "L")
    staging.begin(commit)
    shutil.copytree(folder / "q" / "1", tmp_path / "kept")
    staging.finish(commit)
    shutil.copytree(tmp_path / "kept", folder / "q" / "1")
    again = opened(folder)
    assert again.unfinished() == []
    assert again.staged_bytes == len(blocks_of(b"next"))


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
    stage(staging, "q", 1, 5, b"1", b"2")
    with pytest.raises(StagingFault, match=r"batch 1: \d rows of partition .* stage the batch again"):
        staging.begin(Commit("q", 1, (wanted,), 0, "L"))
    assert staging.unfinished() == []


def test_rows_that_the_disk_did_not_take_are_staged_again(folder: Path) -> None:
    """A second sync of a file succeeds, though the first one has failed: the system has given up what it could not write."""
    failing = FailingSync()
    staging = Staging(folder, failing, 2**30, lambda: LIMITS)
    staging.open()
    commit = Commit("q", 1, (Partition(0, 1, 1),), 0, "L")
    stage(staging, "q", 1, 1, b"x")
    failing.fails = True
    with pytest.raises(StagingFault, match=r"0-1\.rows.*stage the batch again"):
        staging.begin(commit)
    failing.fails = False
    assert staging.staged_bytes == 0
    for one in (staging, opened(folder)):
        with pytest.raises(StagingFault, match="stage the batch again"):
            one.begin(commit)
        assert one.commit_of("q", 1) is None
    stage(staging, "q", 1, 1, b"x")
    staging.begin(commit)
    assert staging.commit_of("q", 1) == commit


def test_an_aborted_batch_is_gone(folder: Path) -> None:
    staging = opened(folder)
    stage(staging, "q", 1, 5, b"1")
    staging.abort("q", 1)
    staging.abort("q", 1)
    assert staging.staged_bytes == 0
    assert not (folder / "q" / "1").exists()
    stage(staging, "q", 1, 5, b"2")


def test_old_batches_expire_unless_their_commit_has_begun(folder: Path) -> None:
    staging = opened(folder)
    stage(staging, "q", 1, 5, b"old")
    stage(staging, "begun", 1, 5, b"1")
    staging.begin(Commit("begun", 1, (Partition(0, 5, 1),), 0, "L"))
    at = (folder / "q" / "1").stat().st_mtime
    assert staging.expire(at + STAGED_SECONDS_MAX - 1.0) == 0
    assert staging.expire(at + STAGED_SECONDS_MAX + 60.0) == 1
    assert [commit.query for commit in staging.unfinished()] == ["begun"]
    assert staging.staged_bytes == len(blocks_of(b"1"))


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
    stage(staging, "a", 2, 1, b"in use")
    staging.expire(0.0)
    assert [staging.committed(query) is not None for query in ("a", "b", "c")] == [True, True, True]
    staging.abort("a", 2)
    for path in (folder / "a", folder / "a" / "committed.json"):
        os.utime(path, (0, 0))
    staging.expire(0.0)
    assert [staging.committed(query) is not None for query in ("a", "b", "c")] == [False, True, True]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"query": "q", "of_a_newer_build": 1, "partitions": []}'])
def test_a_damaged_commit_is_named(folder: Path, text: str) -> None:
    staging = opened(folder)
    stage(staging, "q", 1, 5, b"1")
    staging.begin(Commit("q", 1, (Partition(0, 5, 1),), 0, "L"))
    (folder / "q" / "1" / "commit.json").write_text(text)
    with pytest.raises(StagingFault, match=r"commit\.json is damaged.*; to give up .* write (.*) to (.*)") as caught:
        staging.commit_of("q", 1)
    record, path = str(caught.value).partition(" write ")[2].split(" to ")
    Path(path).write_text(record)
    again = opened(folder)
    assert (again.unfinished(), again.committed("q"), again.staged_bytes) == ([], Committed(1, 0), 0)


@pytest.mark.parametrize("text", ["", '{"batch": 1}', '{"batch": 1, "rows": 1, "of_a_newer_build": 1}'])
def test_a_damaged_end_of_a_commit_is_named(folder: Path, text: str) -> None:
    """The path is that of a query, whose name is no number."""
    (folder / "q").mkdir(parents=True)
    (folder / "q" / "committed.json").write_text(text)
    with pytest.raises(StagingFault, match=r"q/committed\.json is damaged.* write (.*) to it") as caught:
        opened(folder).committed("q")
    record, _, _ = str(caught.value).partition(" write ")[2].partition(" to it")
    (folder / "q" / "committed.json").write_text(record)
    assert opened(folder).committed("q") == Committed(0, 0)


def test_rows_of_an_earlier_process_are_counted_when_they_are_committed(folder: Path) -> None:
    staging = opened(folder)
    stage(staging, "q", 1, 5, b"1", b"2")
    (path,) = folder.glob("q/1/*.rows")
    path.write_bytes(path.read_bytes() + b"torn")
    again = opened(folder)
    assert again.staged_bytes == path.stat().st_size
    with pytest.raises(StagingFault, match="2 rows of partition 0, attempt 5 are staged, not 3"):
        again.begin(Commit("q", 1, (Partition(0, 5, 3),), 0, "L"))
    commit = Commit("q", 1, (Partition(0, 5, 2),), 0, "L")
    again.begin(commit)
    (block,) = again.blocks(commit, Partition(0, 5, 2))
    assert (block.records, block.topics) == (2, [b"t"])
