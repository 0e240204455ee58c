"""Running a pipeline: options, places, errors as users see them, what a run says."""

from __future__ import annotations

import shutil
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from event_log_node import SECOND, TIME, EventLogNode, event_log_nodes
from pipeline.errors import OptionError, PipelineError
from pipeline.jobs.archive import read_archive
from pipeline.options import read_duration
from pipeline.registry import Context, Query, find
from pipeline.runner import (
    MASTER,
    SUBMITTED,
    Run,
    cause_of,
    check_options,
    check_place,
    check_space,
    locked,
    make_folder,
    master_of,
    messages_left,
    read_assignments,
    run,
    run_queries,
    stop_spark,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEVER = threading.Event()
SERVERS = {"servers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("archives", {}, 'option NAME: "archives" is no pipeline. There are archive, compact'),
        ("archive", {"compression": "lzo"}, 'option compression: "lzo" is not one of zstd, snappy'),
        ("archive", {"compresion": "zstd"}, 'option compresion: "zstd" is unknown here'),
        ("archive", {"topics": "a/#/b"}, 'option topics: "a/#/b" is not a topic filter'),
        ("archive", {"servers": ""}, 'option servers: "" is empty'),
        ("archive", {"endingOffsets": "latest"}, 'option endingOffsets: "latest" is of spark.read only'),
        ("payload", {"queryName": "x"}, 'option queryName: "x" is not for pipelines'),
        ("rollup", {"window": "60"}, 'option window: "60" is not right: "60" has no unit'),
        ("rollup", {"window": "10ms"}, 'option window: "10ms" is below 1s, the least value'),
        ("rollup", {"levels": "two"}, 'option levels: "two" is not a whole number'),
        ("rollup", {"levels": "0"}, 'option levels: "0" is below 1, the least value'),
        ("alerts", {"qos": "3"}, 'option qos: "3" is not one of 0, 1, 2'),
        ("alerts", {}, 'option --once: "alerts" waits for time to pass'),
    ],
)
def test_wrong_options_are_named_before_spark_starts(
    tmp_path: Path, name: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(OptionError) as raised:
        run(Run(name, tmp_path, {**SERVERS, **options}, every=0.0), NEVER, print)
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]", "spark://a:7077", "yarn", "k8s://https://a:1"])
def test_masters_of_spark_are_taken(master: str) -> None:
    check_options(SERVERS, master)


@pytest.mark.parametrize("master", ["", "local[", "local[x]", "a:7077", "spark:a"])
def test_other_masters_are_named(master: str) -> None:
    with pytest.raises(OptionError, match=r"option --master: .* is no Spark master"):
        check_options(SERVERS, master)


@pytest.mark.parametrize(("text", "reason"), [("10", "has no unit"), ("0s", "is not above 0"), ("-1s", "is not above")])
def test_wrong_intervals_are_named(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        read_duration("--every", text, "10s")
    assert read_duration("--every", "1m30s", "10s") == 90.0


def test_assignments_have_an_equals_sign() -> None:
    assert read_assignments("-o", ("a=b=c", "d=")) == {"a": "b=c", "d": ""}
    with pytest.raises(OptionError, match='option -o: "a" is not NAME=VALUE'):
        read_assignments("-o", ("a",))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match=r"option --dir: .* cannot be made"):
        make_folder(tmp_path / "file" / "data")


def test_a_pipeline_runs_once_in_a_folder(tmp_path: Path) -> None:
    make_folder(tmp_path)
    with (
        locked(tmp_path / "checkpoints", "archive"),
        locked(tmp_path / "checkpoints", "rollup"),
        pytest.raises(PipelineError, match="another process runs pipeline archive in"),
        locked(tmp_path / "checkpoints", "archive"),
    ):
        pass


def test_a_master_that_is_given_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SUBMITTED, raising=False)
    wanted = Run("archive", tmp_path, {}, 0.0)
    assert master_of(wanted) == MASTER
    given = Run("archive", tmp_path, {}, 0.0, "spark://host:7077")
    assert master_of(given) == "spark://host:7077"
    monkeypatch.setenv(SUBMITTED, "1234")
    assert (master_of(wanted), master_of(given)) == (None, "spark://host:7077")


def test_an_error_of_this_package_is_told_without_those_of_spark() -> None:
    text = "[STREAM_FAILED] Query terminated\n at x\npipeline.errors.DataLoss: node a lost records. Set it\n at y"
    assert cause_of(PySparkException(text)) == "node a lost records. Set it"
    assert cause_of(PySparkException("[FAILED] x\ngmqttctl.errors.NodeError: node a: gone\n at y")) == "node a: gone"
    assert cause_of(PySparkException("[OTHER] first\nsecond")) == "[OTHER] first"


def test_the_end_of_java_is_told() -> None:
    for error in (ConnectionRefusedError("refused"), Py4JNetworkError("Answer from Java side is empty")):
        assert cause_of(error).startswith("Java, in which Spark runs, has ended: ")


@pytest.mark.parametrize(
    "text",
    [
        "[STREAM_FAILED] Query terminated with exception: java.io.IOException: No space left on device",
        "[STREAM_FAILED] terminated with exception: [TASK_WRITE_FAILED] Task failed while writing rows to file:/data.",
    ],
)
def test_a_full_disk_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"option --dir: .* has no space left"):
        check_space(text, tmp_path, 4096)


def test_a_full_disk_of_sparks_own_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r'option --conf: "spark\.local\.dir" names a folder without space'):
        check_space("java.io.IOException: No space left on device", tmp_path, 10**9)


def test_other_errors_have_nothing_to_do_with_the_disk(tmp_path: Path) -> None:
    check_space("[STREAM_FAILED] other", tmp_path, 10**9)
    check_space("[STREAM_FAILED] x\npipeline.errors.DataLoss: node a lost records", tmp_path, 4096)


def test_messages_that_are_left_are_counted() -> None:
    end = '{"n1": {"log": "x", "offset": 5}, "n2": {"log": "y", "offset": 5}}'
    latest = '{"n1": {"log": "x", "offset": 9}, "n2": {"log": "z", "offset": 9}, "n3": {"log": "w", "offset": 9}}'
    assert messages_left(end, latest) == 4
    assert messages_left(None, latest) == messages_left(end, "[]") == messages_left(end, "{") == 0


def run_once(spark: SparkSession, folder: Path, node: EventLogNode, name: str, **options: str) -> list[str]:
    pipeline = find(name)
    own, source = pipeline.read_options({"servers": node.address, **options})
    lines: list[str] = []
    make_folder(folder)
    run_queries(pipeline, Context(lambda: spark, folder, source), own, 0.0, NEVER, lines.append)
    return lines


def test_runs_go_on_where_the_last_one_ended(spark: SparkSession, tmp_path: Path) -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        a.append_numbers(20)
        b.append_numbers(10)
        first = run_once(spark, tmp_path, a, "archive")
        assert first[0].startswith("archive: batch 0, 30 messages, ")
        assert first[-1].startswith("archive: 30 messages in ")
        a.append_numbers(5)
        lines = run_once(spark, tmp_path, a, "archive", maxOffsetsPerTrigger="4")
        assert lines[0].startswith("archive: batch 1, 4 messages, ")
        assert lines[0].endswith(" a second; 1 to go")
        assert lines[1].endswith(" a second")
        found = read_archive(spark, str(tmp_path / "archive"))
        assert found.count() == found.select("node", "log", "offset").distinct().count() == 35
        assert a.held[("pipeline", "archive")] > 0

        for batch in (2, 1):
            (tmp_path / "checkpoints" / "archive" / "commits" / str(batch)).unlink()
        with pytest.raises(PipelineError, match=r"archive has batch 2, and its checkpoint .* is behind it, at batch 1"):
            run_once(spark, tmp_path, a, "archive")

        shutil.rmtree(tmp_path / "checkpoints")
        with pytest.raises(PipelineError, match=r"archive has a table, but its checkpoint .* is gone"):
            run_once(spark, tmp_path, a, "archive")


@pytest.mark.parametrize(
    ("table", "commits", "is_refused"),
    [
        ((), (), False),
        (("0",), (), False),
        (("0", "1"), (), True),
        (("8", "9.compact", ".9.compact.crc"), ("7", "8", ".8.crc"), False),
        (("8", "9.compact", ".9.compact.crc"), ("6", "7", ".7.crc"), True),
        (("9.compact", "10"), ("8", "9", "10"), False),
        (("9.compact", "10", "11"), ("8", "9"), True),
    ],
)
def test_a_checkpoint_that_is_behind_its_table_is_refused(
    tmp_path: Path, table: tuple[str, ...], commits: tuple[str, ...], is_refused: bool
) -> None:
    """Spark has a batch in the table before it is in the checkpoint."""
    context = Context(lambda: cast("SparkSession", None), tmp_path, {})
    for folder, names in (
        (tmp_path / "table" / "_spark_metadata", table),
        (context.checkpoint("q") / "commits", commits),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    query = Query("q", cast("DataFrame", None), options={"path": str(tmp_path / "table")})
    with pytest.raises(PipelineError, match="is behind it") if is_refused else nullcontext():
        check_place(context, query)


def test_a_session_that_was_there_before_stays(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="schemas"):
        run(Run("decode", tmp_path, SERVERS, 0.0), NEVER, print)
    with event_log_nodes("n1") as (node,):
        node.append_numbers(2)
        run(Run("archive", tmp_path, {"servers": node.address}, 0.0), NEVER, print)
    assert read_archive(spark, str(tmp_path / "archive")).count() == 2


def test_open_windows_are_told(spark: SparkSession, tmp_path: Path) -> None:
    with event_log_nodes("n1") as (node,):
        for second in range(0, 200, 20):
            node.append(("house/kitchen/t", b"1"), time_ns=TIME + second * SECOND)
        lines = run_once(spark, tmp_path, node, "rollup", window="30s", delay="10s")
    assert lines[-1].startswith("rollup-2-30s: 10 messages in ")
    # The newest message is of 22:16:20.
    assert lines[-1].endswith("; windows that end after 2023-11-14T22:16:10.000Z are open: a later run writes them")
    assert spark.read.parquet(str(tmp_path / "rollup-2-30s")).count() == 6


def test_messages_that_are_kept_aside_are_told(spark: SparkSession, tmp_path: Path) -> None:
    options = {"window": "30s", "delay": "10s"}
    with event_log_nodes("n1", "n2") as (a, b):
        a.append(("house/kitchen/t", b"{}"), time_ns=TIME + 60 * SECOND)
        run_once(spark, tmp_path, a, "payload", **options)
        b.append(("house/cellar/t", b"off"), ("house/cellar/t", b"{}"), time_ns=TIME)
        a.append(("house/kitchen/t", b"{}"), time_ns=TIME + 600 * SECOND)
        lines = run_once(spark, tmp_path, a, "payload", **options)
    assert [line.split("; ")[1] for line in lines[-2:]] == [
        "the table has 1 rejected messages aside",
        "the table has 2 late messages aside",
    ]


def test_lost_data_is_told_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with event_log_nodes("n1") as (node,):
        node.append_numbers(20)
        run_once(spark, tmp_path, node, "archive")
        node.lose_log()
        node.append_numbers(5)
        with pytest.raises(PySparkException) as raised:
            run_once(spark, tmp_path, node, "archive")
        assert cause_of(raised.value).startswith("node n1 has log ")
        run_once(spark, tmp_path, node, "archive", failOnDataLoss="false")
        assert read_archive(spark, str(tmp_path / "archive")).count() == 25


@pytest.mark.parametrize("is_stopping", [True, False])
def test_java_that_the_signal_has_ended_is_no_error(is_stopping: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        def stop(self) -> None:
            raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr("pipeline.runner.SparkSession.getActiveSession", Ended)
    stop = threading.Event()
    if is_stopping:
        stop.set()
    with nullcontext() if is_stopping else pytest.raises(Py4JNetworkError):
        stop_spark(stop)
