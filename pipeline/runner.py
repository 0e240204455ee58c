"""Runs a pipeline: checks its options, starts Spark and the queries, and reports what they do until they end."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gmqttctl.errors import CommandError
from pipeline.aside import METADATA, aside_text, kept_aside
from pipeline.delta_table import is_table
from pipeline.errors import OptionError, PipelineError
from pipeline.offsets import decode_offsets
from pipeline.options import read_stream_options
from pipeline.registry import Context, Pipeline, Query, find, stream_options
from pipeline.session import quiet_session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

MASTER: Final = "local[2]"
POLL_SECONDS: Final = 0.5  # between two looks for a batch that is done
MASTERS: Final = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[.+\]|spark://.+|yarn|k8s://.+")
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # set by spark-submit
NO_SPACE: Final = "No space left on device"
FULL_BYTES: Final = 16 << 20  # a disk with less is full: Spark has removed what it could not finish
_CAUSE: Final = re.compile(r"(?:pipeline|gmqttctl)\.\w+\.\w+: (.+)")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """options  of the pipeline and of the data source
    every     seconds between two batches; 0: once, over what there is
    """

    name: str
    folder: Path
    options: Mapping[str, str]
    every: float
    master: str | None = None
    configuration: Mapping[str, str] | None = None


def read_assignments(name: str, texts: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE texts of option `name`. Raises OptionError."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise OptionError(name, text, "is not NAME=VALUE")
        found[key] = value
    return found


def run(wanted: Run, stop: threading.Event, say: Say) -> None:
    """Run a pipeline until it is done, or until `stop` is set. Raises PipelineError."""
    pipeline = find(wanted.name)
    own, source = pipeline.read_options(wanted.options)
    check_options(source, wanted.master)
    if not wanted.every and not pipeline.runs_once:
        raise OptionError("--once", wanted.name, "waits for time to pass, so it never ends; run it with --every 10s")
    make_folder(wanted.folder)
    with locked(wanted.folder / "checkpoints", wanted.name):
        # Errors with their causes, which `check_space` looks for.
        settings = {"spark.sql.pyspark.jvmStacktrace.enabled": "true", **(wanted.configuration or {})}

        @cache
        def start_spark() -> SparkSession:
            say("Spark starts, which takes some seconds")
            return quiet_session(f"gmqttd {wanted.name}", master_of(wanted), settings)

        context = Context(start_spark, wanted.folder.resolve(), source)
        # A session that was there before belongs to the caller, who goes on with it.
        was_there = SparkSession.getActiveSession() is not None
        try:
            try:
                if pipeline.work is not None:
                    run_work(pipeline, context, own, wanted.every, stop, say)
                else:
                    run_queries(pipeline, context, own, wanted.every, stop, say)
            finally:
                if not was_there:
                    stop_spark(stop)
        except (PySparkException, Py4JError, OSError) as error:
            if stop.is_set():  # the signal reached Java, too
                say("stopped in the middle of a batch: the next run does it again")
                return
            check_space(str(error), wanted.folder, shutil.disk_usage(wanted.folder).free)
            raise PipelineError(cause_of(error)) from error


def stop_spark(stop: threading.Event) -> None:
    """End the session, if there is one."""
    spark = SparkSession.getActiveSession()
    if spark is not None:
        try:
            spark.stop()
        except (PySparkException, Py4JError, OSError):
            if not stop.is_set():  # the signal reached Java, too: it has ended already
                raise


def check_options(source: Mapping[str, str], master: str | None) -> None:
    """Raises OptionError."""
    for name, value in source.items():
        if name.lower() == "queryname":
            raise OptionError(name, value, "is not for pipelines: each of their queries has a name of its own")
    read_stream_options(stream_options(source))
    if master is not None and MASTERS.fullmatch(master) is None:
        raise OptionError(
            "--master", master, "is no Spark master; right are local[2], spark://HOST:PORT, yarn, k8s://URL"
        )


def master_of(wanted: Run) -> str | None:
    """None under spark-submit, where the master is chosen there."""
    if wanted.master is None and SUBMITTED in os.environ:
        return None
    return wanted.master or MASTER


def make_folder(folder: Path) -> None:
    """Raises OptionError."""
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError("--dir", folder, f"cannot be made: {error}") from None
    if not os.access(folder / "checkpoints", os.W_OK):
        raise OptionError("--dir", folder, "cannot be written")


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """One process runs a pipeline in a folder. Raises PipelineError."""
    with (folder / f".{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PipelineError(f"another process runs pipeline {name} in {folder.parent}") from None
        yield


def check_space(text: str, folder: Path, free_bytes: int) -> None:
    """Raise OptionError for an error that a full disk explains. Spark does not always tell of it."""
    if free_bytes < FULL_BYTES and not _CAUSE.search(text):
        raise OptionError("--dir", folder, "has no space left. Make room and run the same command again: it goes on")
    if NO_SPACE in text:
        raise OptionError(
            "--conf", "spark.local.dir", f"names a folder without space; {folder} has {free_bytes} bytes free"
        )


def cause_of(error: Exception) -> str:
    """Return what this package raised inside of Spark, or the first line of what Spark says."""
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return "Java, in which Spark runs, has ended: killed, or out of memory. Run the same command again: it goes on"
    text = str(error)
    found = _CAUSE.findall(text)
    return found[-1] if found else text.partition("\n")[0]


def run_work(pipeline: Pipeline, context: Context, own: Any, every: float, stop: threading.Event, say: Say) -> None:
    assert pipeline.work is not None
    while True:
        begin = time.monotonic()
        for line in pipeline.work(context, own):
            say(line)
        if not every or stop.wait(max(0.0, every - (time.monotonic() - begin))):
            return


def run_queries(pipeline: Pipeline, context: Context, own: Any, every: float, stop: threading.Event, say: Say) -> None:
    assert pipeline.queries is not None
    running: list[Running] = []
    try:
        for query in pipeline.queries(context, own):
            check_place(context, query)
            running.append(Running(query.name, start(context, query, every), query.options.get("path")))
        while sum(each.look(say) for each in running) and not stop.wait(POLL_SECONDS):
            pass
    finally:
        for each in running:
            each.query.stop()
    for each in running:
        say(each.summary(is_over=not every))


def start(context: Context, query: Query, every: float) -> StreamingQuery:
    writer = (
        query.rows.writeStream.format(query.format)
        .outputMode("append")
        .queryName(query.name)
        .options(**query.options)
        .option("checkpointLocation", str(context.checkpoint(query.name)))
    )
    if query.partition_by:
        writer = writer.partitionBy(*query.partition_by)
    if every:
        return writer.trigger(processingTime=f"{round(every * 1000)} milliseconds").start()
    return writer.trigger(availableNow=True).start()


def check_place(context: Context, query: Query) -> None:
    """Raise PipelineError for a table without its checkpoint, or with an older one: Spark would take batches that are new
    for those that the table has, by their numbers, and leave them out."""
    path = query.options.get("path")
    commits = context.checkpoint(query.name) / "commits"
    has_table = path and ((Path(path) / METADATA).is_dir() or is_table(Path(path)))
    if has_table and not commits.is_dir():
        raise PipelineError(
            f"{path} has a table, but its checkpoint {commits.parent} is gone. Restore the checkpoint, or move the table "
            "away to begin anew"
        )
    last, committed = (_last_batch(folder) for folder in (Path(path or "") / METADATA, commits))
    if path and last > committed + 1:  # Spark commits a batch after the table has it
        raise PipelineError(
            f"{path} has batch {last}, and its checkpoint {commits.parent} is behind it, at batch {committed + 1}. Restore the "
            "checkpoint that belongs to the table, or move both away to begin anew"
        )


def _last_batch(log: Path) -> int:
    """Of a log that Spark writes: a file for each batch, some with a suffix. -1 without one."""
    numbers = (path.name.partition(".")[0] for path in log.glob("[0-9]*"))
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)


def messages_left(end: str | None, latest: str | None) -> int:
    """Messages between two offsets of data source `mqtt`; 0 where one is not known."""
    try:
        ends, found = decode_offsets(json.loads(end or "{}")), decode_offsets(json.loads(latest or "{}"))
    except (ValueError, CommandError):
        return 0
    return sum(
        max(0, position.offset - ends[node].offset)
        for node, position in found.items()
        if node in ends and ends[node].log == position.log
    )


class Running:
    """A query and what it has done so far."""

    def __init__(self, name: str, query: StreamingQuery, table: str | None) -> None:
        self.query = query
        self._name = name
        self._table = table
        self._batch = -1
        self._messages = 0
        self._watermark = ""
        self._begin = time.monotonic()

    def look(self, say: Say) -> bool:
        """Say which batches are new; whether the query goes on. Raises the query's error."""
        is_active = self.query.isActive
        for progress in self.query.recentProgress:
            if progress.batchId <= self._batch:
                continue
            self._batch = progress.batchId
            self._messages += progress.numInputRows
            if progress.stateOperators:
                self._watermark = progress.eventTime.get("watermark", "")
            if progress.numInputRows:
                seconds = progress.batchDuration / 1000
                rate = progress.numInputRows / seconds if seconds else 0.0
                text = f"{self._name}: batch {progress.batchId}, {progress.numInputRows} messages, {rate:,.0f} a second"
                left = sum(messages_left(each.endOffset, each.latestOffset) for each in progress.sources)
                say(f"{text}; {left} to go" if left else text)
        if not is_active:
            # Raises the error of the query with all its causes; `exception()` leaves them out.
            self.query.awaitTermination()
        return is_active

    def summary(self, is_over: bool) -> str:
        """`is_over`: the query has read all that there was."""
        lines = [f"{self._name}: {self._messages} messages in {time.monotonic() - self._begin:.1f} s"]
        if aside := aside_text(kept_aside(Path(self._table)) if self._table else {}):
            lines.append(f"the table has {aside} messages aside")
        if is_over and self._watermark and not self._watermark.startswith("1970-01-01T00:00:00"):
            lines.append(f"windows that end after {self._watermark} are open: a later run writes them")
        return "; ".join(lines)
