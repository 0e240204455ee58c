"""What the sink keeps on disk: staged rows, commits that have begun, the last commit of each query. Called in one thread.

    QUERY/committed.json        the last batch that was published as a whole, and its number of rows
    QUERY/BATCH/commit.json     the commit has begun: which rows are to be published, and where the log ended before
    QUERY/BATCH/PARTITION-ATTEMPT.rows   frames of rows (broker/event_log/staged_rows.py)

Staged rows are synced when their commit begins. A batch without a commit is removed after STAGED_SECONDS_MAX.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from broker.event_log.files import FOLDER_MODE, Files
from broker.event_log.staged_rows import FRAME, is_whole_frame, read_frame_header

QUERY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
QUERY_FORM: Final = "1 to 128 letters, digits, dots, underscores and hyphens, the first a letter or digit"
STAGED_BYTES_MAX: Final = 8 * 2**30
STAGED_FILES_MAX: Final = 10_000  # one for each partition and attempt
STAGED_SECONDS_MAX: Final = 86_400.0  # without further rows
QUERIES_MAX: Final = 10_000
"""Queries whose last commit is remembered. The one that committed least recently is forgotten for a further one."""

COMMITTED_FILE: Final = "committed.json"
COMMIT_FILE: Final = "commit.json"
ROWS_SUFFIX: Final = ".rows"


class StagingFault(Exception):
    """A call that does not fit what is staged."""


class StagingFull(StagingFault):
    """As much is staged, or runs, as may be."""


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
    offset `log_offset` of the log with the id `log_id`."""

    query: str
    batch: int
    partitions: tuple[Partition, ...]
    log_offset: int
    log_id: str

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions)


@dataclass(slots=True)
class StagedFile:
    """Whole frames of a file of rows."""

    rows: int
    size: int


class Staging:
    """Every method raises OSError where the disk does not do its part."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.bytes = 0
        self._folder = folder
        self._files = files
        self._staged: dict[Path, StagedFile] = {}

    def open(self) -> list[Commit]:
        """Find what an earlier process left. Returns the commits that have begun and not ended."""
        self._folder.mkdir(FOLDER_MODE, exist_ok=True)
        self._files.sync_folder(self._folder.parent)
        for path in self._batches():  # what a crash in `finish` left
            committed = self.committed(path.parent.name)
            if committed is not None and int(path.name) <= committed.batch:
                self._remove(path)
        for path in sorted(self._folder.glob(f"*/*/*{ROWS_SUFFIX}")):
            self._staged[path] = self._whole_frames(path)
            self.bytes += self._staged[path].size
        return self.unfinished()

    # --- staged rows ---

    def stage(self, query: str, batch: int, partition: Partition, position: int, frame: bytes) -> int:
        """Append a frame of `partition.rows` rows. `position`: number of rows that the file has before them.

        Returns the number of rows of the file. A frame that the file has already changes nothing. Raises StagingFault.
        """
        path = self._path(query, batch, partition)
        staged = self._staged.get(path)
        have = 0 if staged is None else staged.rows
        if position + partition.rows <= have:
            return have
        if position != have:
            raise StagingFault(
                f"position is {position}, but {have} rows of partition {partition.partition}, attempt {partition.attempt} "
                "are staged; go on there"
            )
        if self.bytes + len(frame) > STAGED_BYTES_MAX:
            raise StagingFull(
                f"{self.bytes} bytes are staged already, at most {STAGED_BYTES_MAX}; commit or abort batches"
            )
        if staged is None:
            if len(self._staged) >= STAGED_FILES_MAX:
                raise StagingFull(f"{STAGED_FILES_MAX} partitions are staged already; commit or abort batches")
            path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            os.close(self._files.create(path, b""))
            staged = self._staged[path] = StagedFile(0, 0)
        descriptor = self._files.open(path)
        try:
            # Behind the last whole frame: a write that failed may have left a part of one.
            self._files.write(descriptor, [frame], staged.size, False)
        finally:
            os.close(descriptor)
        staged.rows += partition.rows
        staged.size += len(frame)
        self.bytes += len(frame)
        return staged.rows

    def frames(self, query: str, batch: int, partition: Partition) -> Iterator[bytes]:
        """The frames of a partition, in order."""
        if not partition.rows:
            return
        with self._path(query, batch, partition).open("rb") as file:
            while header := file.read(FRAME.size):
                frame = header + file.read(_size_of(header))
                if not is_whole_frame(frame):
                    raise StagingFault(f"{file.name} is damaged at byte {file.tell() - len(frame)}")
                yield frame

    # --- commits ---

    def committed(self, query: str) -> Committed | None:
        """The last commit of a query."""
        found = _read_json(self._folder / query / COMMITTED_FILE)
        return None if found is None else Committed(**found)

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
            staged = self._staged.get(self._path(commit.query, commit.batch, wanted))
            have = 0 if staged is None else staged.rows
            if have != wanted.rows:
                raise StagingFault(
                    f"batch {commit.batch}: {have} rows of partition {wanted.partition}, attempt {wanted.attempt} are "
                    f"staged, not {wanted.rows}; stage the batch again"
                )
        folder = self._folder / commit.query / str(commit.batch)
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)  # a batch without rows has none yet
        for partition in commit.partitions:
            if partition.rows:
                descriptor = self._files.open(self._path(commit.query, commit.batch, partition))
                try:
                    self._files.sync(descriptor)
                finally:
                    os.close(descriptor)
        self._files.sync_folder(self._folder)
        self._files.sync_folder(folder.parent)
        self._files.replace(folder / COMMIT_FILE, json.dumps(asdict(commit)).encode())

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

    def _path(self, query: str, batch: int, partition: Partition) -> Path:
        return self._folder / query / str(batch) / f"{partition.partition}-{partition.attempt}{ROWS_SUFFIX}"

    def _batches(self, query: str = "*") -> list[Path]:
        return [path for path in self._folder.glob(f"{query}/*") if path.is_dir()]

    def _remove(self, batch: Path) -> None:
        for path in [path for path in self._staged if path.parent == batch]:
            self.bytes -= self._staged.pop(path).size
        # The commit goes first: it could not go on without its rows.
        for path in sorted(batch.glob("*"), key=lambda path: path.name != COMMIT_FILE):
            path.unlink()
        if batch.exists():
            batch.rmdir()

    def _whole_frames(self, path: Path) -> StagedFile:
        staged = StagedFile(0, 0)
        with path.open("rb") as file:
            while found := read_frame_header(header := file.read(FRAME.size)):
                frame = header + file.read(found[0])
                if len(frame) < FRAME.size + found[0] or not is_whole_frame(frame):
                    break
                staged.size += len(frame)
                staged.rows += found[1]
        if staged.size < path.stat().st_size:
            os.truncate(path, staged.size)
        return staged


def _size_of(header: bytes) -> int:
    found = read_frame_header(header)
    return found[0] if found else 0


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StagingFault(f"{path} is damaged ({error}); remove its folder to give the batch up") from None
    return found


def _read_commit(batch: Path) -> Commit | None:
    found = _read_json(batch / COMMIT_FILE)
    if found is None:
        return None
    partitions = tuple(Partition(**partition) for partition in found.pop("partitions"))
    return Commit(partitions=partitions, **found)


def _changed_at(folder: Path) -> float:
    """Unix seconds of the last change of a folder's files."""
    return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
