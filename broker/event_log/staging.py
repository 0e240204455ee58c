"""The sink's files: staged rows, commits that have begun, the last commit of each query. Called in one thread.

    QUERY/committed.json        the last batch that was published as a whole, and its number of rows
    QUERY/BATCH/commit.json     the commit has begun: which rows are to be published, and where the log ended before
    QUERY/BATCH/PARTITION-ATTEMPT.rows   blocks of rows (broker/event_log/staged_block.py)

Staged rows are synced when their commit begins. A batch without a commit is removed after STAGED_SECONDS_MAX. The files of an
earlier process are read when they are used.
"""

# not a core: reads and writes files
from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from broker.event_log.files import FOLDER_MODE, Files
from broker.event_log.staged_block import RowLimits, StagedBlock
from broker.event_log.staged_files import StagedFiles, StagingFault

QUERY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
QUERY_FORM: Final = "1 to 128 letters, digits, dots, underscores and hyphens, the first a letter or digit"
STAGED_SECONDS_MAX: Final = 86_400.0  # without further rows
QUERIES_MAX: Final = 10_000
"""Queries whose last commit is remembered. The one that committed least recently is forgotten for a further one."""

COMMITTED_FILE: Final = "committed.json"
COMMIT_FILE: Final = "commit.json"
ROWS_SUFFIX: Final = ".rows"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Committed:
    """The last batch of a query that was published as a whole."""

    batch: int
    rows: int


@dataclass(frozen=True, order=True, slots=True)
class Partition:
    """The attempt of a partition that counts, and its number of rows."""

    partition: int
    attempt: int
    rows: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that has begun. `partitions` are in the order of their publication; no row of them was logged before the
    offset `log_offset` of the log with the id `log_id`. The subscribers have the first `delivered` rows, also after a crash."""

    query: str
    batch: int
    partitions: tuple[Partition, ...]
    log_offset: int
    log_id: str
    delivered: int = 0

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions)


class Staging:
    """Every method raises OSError where the disk does not do its part.

    bytes_max  of all staged rows
    limits     what rows may be now
    """

    def __init__(self, folder: Path, files: Files, bytes_max: int, limits: Callable[[], RowLimits]) -> None:
        self._folder = folder
        self._files = files
        self._rows = StagedFiles(folder, files, bytes_max, limits)

    @property
    def staged_bytes(self) -> int:
        """Of all staged rows."""
        return self._rows.bytes

    def open(self) -> list[Commit]:
        """Find what an earlier process left. Returns the commits that have begun and not ended."""
        self._folder.mkdir(FOLDER_MODE, exist_ok=True)
        self._files.sync_folder(self._folder.parent)
        for path in self._batches():  # what a crash in `finish` left
            committed = self.committed(path.parent.name)
            if committed is not None and int(path.name) <= committed.batch:
                self._remove(path)
        for path in sorted(self._folder.glob(f"*/*/*{ROWS_SUFFIX}")):
            self._rows.add(path)
        return self.unfinished()

    # --- staged rows ---

    def stage(
        self, query: str, batch: int, partition: int, attempt: int, position: int, blocks: bytes
    ) -> tuple[int, int]:
        """As StagedFiles.stage, for a partition and attempt. Rows of a batch whose commit has begun are not staged again: they
        would not be published."""
        committed = self.committed(query)
        if (committed and batch <= committed.batch) or self.commit_of(query, batch):
            return 0, position + len(blocks)
        return self._rows.stage(self._path(query, batch, partition, attempt), query, position, blocks)

    def blocks(self, commit: Commit, partition: Partition) -> Iterator[StagedBlock]:
        """The rows of a partition, in order. Raises StagingFault for a file that is damaged."""
        path = self._path(commit.query, commit.batch, partition.partition, partition.attempt)
        try:
            yield from self._rows.blocks(path, partition.rows)
        except StagingFault as fault:
            raise StagingFault(f"{fault}; {self.give_up(commit)}") from None

    # --- commits ---

    def committed(self, query: str) -> Committed | None:
        """The last commit of a query."""
        return _read(self._folder / query / COMMITTED_FILE, Committed)

    def commit_of(self, query: str, batch: int) -> Commit | None:
        """The commit of this batch that has begun; None when it has not, or has ended."""
        return _read_commit(self._folder / query / str(batch))

    def unfinished(self, query: str = "*") -> list[Commit]:
        """The commits of a query, or of all, that have begun and not ended, in the order of their batches."""
        found = [commit for path in self._batches(query) if (commit := _read_commit(path)) is not None]
        return sorted(found, key=lambda commit: commit.batch)

    def begin(self, commit: Commit) -> None:
        """Sync the staged rows; the commit has begun when the call returns. Raises StagingFault when they are not there."""
        for wanted in commit.partitions:
            have = self._rows.rows(
                self._path(commit.query, commit.batch, wanted.partition, wanted.attempt), commit.query
            )
            if have != wanted.rows:
                raise StagingFault(
                    f"batch {commit.batch}: {have} rows of partition {wanted.partition}, attempt {wanted.attempt} are "
                    f"staged, not {wanted.rows}; stage the batch again"
                )
        folder = self._folder / commit.query / str(commit.batch)
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)  # a batch without rows has none yet
        for partition in commit.partitions:
            if partition.rows:
                self._rows.sync(self._path(commit.query, commit.batch, partition.partition, partition.attempt))
        self._files.sync_folder(self._folder)
        self._files.sync_folder(folder.parent)
        self.keep(commit)

    def keep(self, commit: Commit) -> None:
        """Write a commit that has begun to its file."""
        path = self._folder / commit.query / str(commit.batch) / COMMIT_FILE
        self._files.replace(path, json.dumps(asdict(commit)).encode())

    def give_up(self, commit: Commit) -> str:
        """Return how an operator gives up the rows of a commit that cannot go on."""
        return give_up_text(self._folder / commit.query / str(commit.batch))

    def finish(self, commit: Commit) -> None:
        """All rows of the commit are in the log. Remove its rows, and those of earlier batches of the query."""
        folder = self._folder / commit.query
        committed = Committed(commit.batch, commit.rows)
        self._files.replace(folder / COMMITTED_FILE, json.dumps(asdict(committed)).encode())
        for path in self._batches(commit.query):
            if int(path.name) <= commit.batch:
                self._remove(path)

    def abort(self, query: str, batch: int) -> None:
        """Remove the rows of a batch. Raises StagingFault when its commit has begun."""
        if self.commit_of(query, batch) is not None:
            raise StagingFault(f"the commit of batch {batch} of query {query} has begun; it goes on")
        self._remove(self._folder / query / str(batch))

    def expire(self, wall_time: float) -> int:
        """Remove batches that got no rows for STAGED_SECONDS_MAX, and queries beyond QUERIES_MAX. `wall_time`: Unix
        seconds. Returns the number of batches that were removed."""
        expired = [
            path
            for path in self._batches()
            if not (path / COMMIT_FILE).exists() and _changed_at(path) < wall_time - STAGED_SECONDS_MAX
        ]
        for path in expired:
            self._remove(path)
        ended = [path for path in self._folder.iterdir() if path.is_dir() and not any(self._batches(path.name))]
        ended.sort(key=_changed_at)
        for path in ended[: max(0, len(ended) - QUERIES_MAX)]:
            shutil.rmtree(path)
        return len(expired)

    # --- files ---

    def _path(self, query: str, batch: int, partition: int, attempt: int) -> Path:
        return self._folder / query / str(batch) / f"{partition}-{attempt}{ROWS_SUFFIX}"

    def _batches(self, query: str = "*") -> list[Path]:
        return [path for path in self._folder.glob(f"{query}/*") if path.is_dir()]

    def _remove(self, batch: Path) -> None:
        self._rows.forget(batch)
        # The commit goes first: it could not go on without its rows.
        for path in sorted(batch.glob("*"), key=lambda path: path.name != COMMIT_FILE):
            path.unlink()
        if batch.exists():
            batch.rmdir()


def give_up_text(batch: Path) -> str:
    """The next start removes a batch that is recorded as committed."""
    record = json.dumps({"batch": int(batch.name), "rows": 0})
    return f"to give up its rows that are not published, stop the node and write {record} to {batch.parent / COMMITTED_FILE}"


def _read(path: Path, make: Callable[..., T]) -> T | None:
    """What a file has; None where there is none. Raises StagingFault."""
    try:
        return make(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        record = json.dumps({"batch": 0, "rows": 0})
        advice = f"write {record} to it, with the number of the last batch in the query's checkpoint (commits)"
        if path.name == COMMIT_FILE:
            advice = give_up_text(path.parent)
        raise StagingFault(f"{path} is damaged, or a newer build has written it ({error}); {advice}") from None


def _read_commit(batch: Path) -> Commit | None:
    return _read(batch / COMMIT_FILE, _commit)


def _commit(partitions: list[dict[str, int]], **others: Any) -> Commit:
    return Commit(partitions=tuple(Partition(**partition) for partition in partitions), **others)


def _changed_at(folder: Path) -> float:
    """Unix seconds of the last change of a folder's files."""
    return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
