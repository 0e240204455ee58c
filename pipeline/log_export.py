"""The event logs of all nodes into one file: `gmqttctl log export`.

While it is made, parts and a plan stand in the folder FILE.parts. An export that is run again with the same options goes on
behind the last part. Records stand in the order of nodes and offsets.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from broker.event_log.records import records
from broker.event_log.selection import Selection
from pipeline.client import NodeClient
from pipeline.cluster import Cluster, Members, find_position
from pipeline.durable import publish_file, replace_text
from pipeline.errors import HOW_TO_INSTALL, OptionError, PipelineError
from pipeline.log_text import record_fields
from pipeline.options import ReadOptions
from pipeline.planning import Range, ranges

PARQUET: Final = "parquet"
PLAN_FILE: Final = "plan.json"
PLAN_VERSION: Final = 1
LOCK_FILE: Final = "lock"  # in the folder of parts: NFS locks no folders
LOCK_TRIES: Final = 10  # while other exports into the same file end
PART_BYTES: Final = 64 << 20  # of blocks; a part is what an export that is stopped does again
READ_PATIENCE_SECONDS: Final = 60.0  # a node may be restarted meanwhile
MERGED_ROWS: Final = 131_072  # of a row group of Parquet

_log: Final = logging.getLogger(__name__)


class JsonLinesWriter:
    """Writes the records of one part as JSON objects, one a line."""

    def __init__(self, path: Path, wanted: Range, topics: Sequence[str]) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._range = wanted
        self._selection = Selection([topic.encode() for topic in topics]) if topics else None

    def write(self, blocks: bytes, start: int, end: int) -> None:
        """Add the wanted records of start <= offset < end."""
        for record in records(blocks):
            if start <= record.offset < end and (self._selection is None or self._selection.has(record.topic.encode())):
                fields = record_fields(self._range.node, self._range.log_id, record)
                self._file.write(json.dumps(fields, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._file.close()


class ParquetWriter:
    """Writes them as the columns of the data source, compressed with zstd."""

    def __init__(self, path: Path, wanted: Range, topics: Sequence[str]) -> None:
        from pyarrow import parquet

        from pipeline.frames import Frames
        from pipeline.schema import ARROW_SCHEMA

        self._frames = Frames(wanted.node, wanted.log_id, topics, include_pipeline=True)
        self._writer = parquet.ParquetWriter(path, ARROW_SCHEMA, compression="zstd")

    def write(self, blocks: bytes, start: int, end: int) -> None:
        for batch in self._frames.decode(blocks, start, end):
            self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


def merge_json_lines(parts: Sequence[Path], path: Path) -> None:
    with path.open("wb") as merged:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, merged, 1 << 20)


def merge_parquet(parts: Sequence[Path], path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    from pipeline.schema import ARROW_SCHEMA

    with parquet.ParquetWriter(path, ARROW_SCHEMA, compression="zstd") as merged:
        waiting: list[Any] = []
        rows = 0
        for part in parts:
            for batch in parquet.ParquetFile(part).iter_batches(MERGED_ROWS):
                waiting.append(batch)
                rows += len(batch)
                if rows >= MERGED_ROWS:
                    merged.write_table(pyarrow.Table.from_batches(waiting, ARROW_SCHEMA))
                    waiting, rows = [], 0
        if waiting:
            merged.write_table(pyarrow.Table.from_batches(waiting, ARROW_SCHEMA))


class Export:
    """`ranges` is the plan, one of each log; `records` is the number of offsets to read, those of left-out topics too; `done`
    of them are in parts already. One process writes a file: `close` lets the next one do so."""

    def __init__(self, file: Path, file_format: str, request: Mapping[str, Any], options: ReadOptions) -> None:
        """`request`: the options as the user gave them. Raises PipelineError."""
        if file.exists():
            raise OptionError("FILE", file, "exists; name another file, or remove it")
        if file_format == PARQUET:
            _check_parquet()
        self._file = file
        self._format = file_format
        self._options = options
        self._parts = file.with_name(file.name + ".parts")
        self._lock = _locked(self._parts)
        try:
            with closing(Cluster(options.connection)) as cluster:
                self.ranges = self._find_plan({**request, "format": file_format}, cluster)
            self.records = sum(len(wanted) for wanted in self.ranges)
            self.done = sum(self._end_of_parts(index) - wanted.start for index, wanted in enumerate(self.ranges))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        # In this order: NFS keeps a file in its folder until it is closed, and the next process takes no lock without its name.
        with suppress(OSError):
            (self._parts / LOCK_FILE).unlink()
        os.close(self._lock)
        with suppress(OSError):  # it has parts, or the lock of the next process
            self._parts.rmdir()

    def run(self, progress: Callable[[int], None]) -> None:
        """Write the file. `progress` is told numbers of records that were read. Raises PipelineError, OSError."""
        for index, wanted in enumerate(self.ranges):
            with NodeClient(wanted.address, self._options.connection, wanted.node, READ_PATIENCE_SECONDS) as client:
                while (start := self._end_of_parts(index)) < wanted.end:
                    self._write_part(client, index, wanted, start, progress)
        partial = self._file.with_name(self._file.name + ".partial")
        merge = merge_parquet if self._format == PARQUET else merge_json_lines
        merge([path for index in range(len(self.ranges)) for path, _ in self._parts_of(index)], partial)
        publish_file(partial, self._file)
        for path in self._parts.iterdir():
            if path.name != LOCK_FILE:
                path.unlink()

    # --- the plan ---

    def _find_plan(self, request: Mapping[str, Any], cluster: Cluster) -> list[Range]:
        members = cluster.ask()
        path = self._parts / PLAN_FILE
        if not path.exists():
            members.check(self._options.allow_partial, needs_all=True)
            start = find_position("starting", self._options.start, cluster, members)
            end = find_position("ending", self._options.end, cluster, members)
            plan = ranges(start, end, members.nodes)
            content = {"version": PLAN_VERSION, "request": request, "ranges": [asdict(one) for one in plan]}
            replace_text(path, json.dumps(content, indent=1))
            return plan
        content = json.loads(path.read_text())
        if content["version"] != PLAN_VERSION or content["request"] != request:
            begun = " ".join(f"{name}={value}" for name, value in content["request"].items() if value)
            raise PipelineError(
                f"{self._parts} has an export that was begun with {begun}; give the same options, or remove the folder"
            )
        return [self._known_range(found, members) for found in content["ranges"]]

    def _known_range(self, found: Mapping[str, Any], members: Members) -> Range:
        """A range of the plan, at the address that its node has now."""
        wanted = Range(**found)
        state = members.nodes.get(wanted.node)
        if state is None:
            raise PipelineError(f"node {wanted.node} does not answer; run the export again when it does")
        if state.part_of(wanted.log_id, wanted.start, wanted.end)[1] < wanted.end:
            raise PipelineError(
                f"node {wanted.node} has log {state.log_id} now, the export was begun with {wanted.log_id}: "
                f"remove {self._parts} to begin anew"
            )
        return Range(wanted.node, state.address, wanted.log_id, wanted.start, wanted.end)

    # --- parts ---

    def _parts_of(self, index: int) -> list[tuple[Path, int]]:
        """The parts of a range in order, and the offset behind each."""
        found = []
        at = self.ranges[index].start
        for path in sorted(self._parts.glob(f"{index:06d}-*.{self._format}")):
            _, start, end = path.stem.split("-")
            if int(start) == at:
                at = int(end)
                found.append((path, at))
        return found

    def _end_of_parts(self, index: int) -> int:
        parts = self._parts_of(index)
        return parts[-1][1] if parts else self.ranges[index].start

    def _write_part(
        self, client: NodeClient, index: int, wanted: Range, start: int, progress: Callable[[int], None]
    ) -> None:
        kind = ParquetWriter if self._format == PARQUET else JsonLinesWriter
        partial = self._parts / "part.partial"
        writer = kind(partial, wanted, self._options.topics)
        end = start
        size = 0
        try:
            answers = client.read(
                wanted.log_id,
                start,
                wanted.end,
                self._options.topics,
                lost=lambda *lost: _warn_of_lost(wanted.node, *lost),
            )
            for asked, following, blocks in answers:
                end = min(following, wanted.end)
                writer.write(blocks, asked, end)
                progress(end - asked)
                size += len(blocks)
                if size >= PART_BYTES:
                    break
        finally:
            writer.close()
        publish_file(partial, self._parts / f"{index:06d}-{start:020d}-{end:020d}.{self._format}")


def _locked(parts: Path) -> int:
    """Make the folder if it is not there, and lock it for this process. Returns the descriptor of the lock. Raises
    PipelineError, OSError."""
    path = parts / LOCK_FILE
    for _ in range(LOCK_TRIES):
        parts.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # the process before has just removed it
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                _lock_file(lock, path)
                if os.path.samestat(os.fstat(lock), path.stat()):
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)
    raise _another_process(parts)


def _lock_file(lock: int, path: Path) -> None:
    """Raises PipelineError where another process has the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the latter from CIFS
        raise _another_process(path.parent) from None
    except OSError as error:
        _log.warning("%s cannot be locked (%s): see that no other process exports into it", path.parent, error.strerror)


def _another_process(parts: Path) -> PipelineError:
    return PipelineError(f"another process exports into {parts}; wait for it, or name another file")


def _warn_of_lost(node: str, first: int, end: int) -> None:
    _log.warning("node %s lost the records of offsets %d to %d: the file goes without them", node, first, end - 1)


def _check_parquet() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise PipelineError(f"Parquet needs pyarrow, which is not installed: {HOW_TO_INSTALL}") from None
