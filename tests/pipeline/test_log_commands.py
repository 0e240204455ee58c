"""`gmqttctl log` against nodes in this process."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker.event_log.pb import event_log_pb2 as pb
from event_log_node import SECOND, TIME, event_log_nodes
from gmqttctl.cli import main
from gmqttctl.errors import EXIT_NO_ANSWER, EXIT_USAGE
from pipeline import log_export, log_tail
from pipeline.client import NodeClient
from pipeline.errors import PipelineError
from pipeline.options import read_batch_options
from waiting import POLL_SECONDS


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["log", *arguments])


def succeeded(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_spark_is_not_needed() -> None:
    """Nothing that the commands import brings Spark or Arrow along."""
    names = (
        "gmqttctl.cli",
        "pipeline.log_commands",
        "pipeline.log_text",
        "pipeline.log_tail",
        "pipeline.log_export",
    )
    program = f"import sys\nimport {', '.join(names)}\nprint([m for m in sys.modules if m in ('pyspark', 'pyarrow', 'numpy')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_describe_shows_all_nodes_that_one_knows() -> None:
    with event_log_nodes("n1", "n2") as (first, second):
        first.append_numbers(1_200)
        second.append(("a", b"x"), time_ns=TIME + SECOND)
        first.held["reports", "q1"] = 200
        text = succeeded("describe", "--servers", first.address)
        lines = [line.split() for line in text.splitlines()]
        assert lines[0] == ["node", "log", "records", "offsets", "size", "first", "last", "state"]
        assert lines[1][:4] == ["n1", first.log_id[:8], "1,200", "0…1200"]
        assert lines[2][-3:] == ["2023-11-14T22:13:21.000Z", "2023-11-14T22:13:21.000Z", "ok"]
        assert lines[4] == ["group", "query", "node", "offset", "lag", "held"]
        assert lines[5] == ["reports", "q1", "n1", "200", "1,000", "1m", "1s", "ago"]
        found = json.loads(succeeded("describe", "--servers", second.address, "--json"))
        assert [(node["node"], node["address"], node["records"]) for node in found["nodes"]] == [
            ("n1", first.address, 1_200),
            ("n2", second.address, 1),
        ]


def test_describe_shows_records_that_were_not_logged() -> None:
    with event_log_nodes("n1") as (node,):
        assert "not logged" not in succeeded("describe", "--servers", node.address)
        node.records_lost = 1_234
        text = succeeded("describe", "--servers", node.address)
        assert "n1: 1,234 records were not logged since its start (`on_full`)" in text
        (found,) = json.loads(succeeded("describe", "--servers", node.address, "--json"))["nodes"]
        assert found["records_lost"] == 1_234


def test_describe_shows_the_missing_nodes() -> None:
    with event_log_nodes("n1", "n2") as (first, second):
        first.members.append(pb.LogMember(node="go", status="ALIVE"))
        second.stop()
        text = succeeded("describe", "--servers", first.address)
        assert "n2    -" in text
        assert "away: ALIVE, does not answer" in text
        assert "go    -" in text
        assert "keeps no log" in text
        first.stop()
        result = run("describe", "--servers", first.address)
        assert result.exit_code == EXIT_NO_ANSWER
        assert result.stderr.startswith("gmqttctl: --server:")


def test_tail_prints_the_newest_records_in_the_order_of_time() -> None:
    with event_log_nodes("n1", "n2") as (first, second):
        first.append_numbers(20)
        second.append(("b/x", b"\xff"), time_ns=TIME - SECOND)
        lines = succeeded("tail", "--servers", first.address, "-n", "3", "--no-follow").splitlines()
        assert lines == [
            "2023-11-14T22:13:19.000Z n2 0 qos 1 b/x 0xff",
            *(f"2023-11-14T22:13:20.000Z n1 {number} qos 1 t {number}" for number in (17, 18, 19)),
        ]
        found = succeeded("tail", "--servers", first.address, "-F", "--json", "--topics", "b/+")
        assert [json.loads(line)["topic"] for line in found.splitlines()] == ["b/x"]
        only = succeeded("tail", "--servers", first.address, "-F", "--node", "n2")
        assert [line.split()[1] for line in only.splitlines()] == ["n2"]
        result = run("tail", "--servers", first.address, "-F", "--node", "n3")
        assert result.exit_code == EXIT_USAGE
        assert 'option node: "n3" is unknown or keeps no log; there are n1, n2' in result.stderr


class Steps:
    """Acts between two looks of a tail, when the tail has read what the step before led to; then ends it as Ctrl-C does."""

    def __init__(self, *steps: tuple[Callable[[], None], Callable[[], bool]]) -> None:
        self.steps = list(steps)
        self.is_done: Callable[[], bool] = lambda: True
        self.poll = time.sleep

    def sleep(self, _seconds: float) -> None:
        if not self.is_done():
            self.poll(POLL_SECONDS)
        elif self.steps:
            act, self.is_done = self.steps.pop(0)
            act()
        else:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("asks_at_once")
def test_tail_follows_new_records_and_new_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    with event_log_nodes("n1", "n2") as (first, second):
        second.stop()
        second.append(("late", b"x"))
        first.append_numbers(3)
        steps = Steps(
            (lambda: first.append_numbers(2), lambda: first.reads[-1].end_offset == 5),
            (second.start, lambda: len(second.reads) > 0),
            (first.lose_log, lambda: True),
            (lambda: first.append(("anew", b"y")), lambda: first.reads[-1].end_offset == 1),
        )
        monkeypatch.setattr("pipeline.log_commands.time", SimpleNamespace(sleep=steps.sleep))  # not for threads of py4j
        result = run("tail", "--servers", first.address, "-n", "1")
        assert result.exit_code == 0, result.output
        assert [" ".join(line.split()[1:3] + line.split()[-2:]) for line in result.stdout.splitlines()] == [
            "n1 2 t 2",
            "n1 3 t 3",
            "n1 4 t 4",
            "n2 0 late x",
            "n1 0 anew y",
        ]
        assert "node n2 is away" in result.stderr
        assert f"node n1 has another log now, {first.log_id}" in result.stderr


@pytest.mark.usefixtures("asks_at_once")
def test_tail_goes_on_when_the_only_node_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with event_log_nodes("n1") as (node,):
        node.append_numbers(1)

        def go_and_return() -> None:
            node.append_numbers(1)
            node.start()

        steps = Steps(
            (node.stop, lambda: True), (lambda: None, lambda: True), (go_and_return, lambda: len(node.reads) == 2)
        )
        monkeypatch.setattr("pipeline.log_commands.time", SimpleNamespace(sleep=steps.sleep))  # not for threads of py4j
        result = run("tail", "--servers", node.address)
        assert result.exit_code == 0, result.output
        assert [line.split()[2] for line in result.stdout.splitlines()] == ["0", "1"]
        assert result.stderr.count("node n1 is away") == 1


def test_tail_reads_a_backlog_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tail, "READ_BYTES", 1)
    monkeypatch.setattr(log_tail, "LOOK_BYTES", 1)
    with event_log_nodes("n1") as (node,):
        node.append_numbers(50)
        lines = succeeded("tail", "--servers", node.address, "-n", "35", "-F").splitlines()
        assert [line.split()[-1] for line in lines] == [str(number) for number in range(15, 50)]


def exported(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    from pyarrow import parquet

    rows: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
    return rows


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_export_has_every_record_once(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"all.{suffix}"
    with event_log_nodes("n1", "n2") as (first, second):
        first.append_numbers(30)
        second.append_numbers(20)
        result = run("export", "--servers", second.address, str(file))
        assert result.exit_code == 0, result.output
        assert "50 records of 2 logs were read" in result.stderr
        rows = exported(file)
        assert [(row["node"], row["log"], row["offset"]) for row in rows] == [
            *(("n1", first.log_id, offset) for offset in range(30)),
            *(("n2", second.log_id, offset) for offset in range(20)),
        ]
        assert {(row["topic"], row["qos"], row["client_id"]) for row in rows} == {("t", 1, "c")}
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    again = run("export", "--servers", first.address, str(file))
    assert again.exit_code == EXIT_USAGE
    assert "exists; name another file, or remove it" in again.stderr


def test_an_export_of_some_topics_and_offsets(tmp_path: Path) -> None:
    file = tmp_path / "some"
    with event_log_nodes("n1") as (node,):
        for number in range(6):
            node.append((f"t/{number % 2}", b"%d" % number), time_ns=TIME + number * SECOND)
        options = ("--servers", node.address, "--format", "jsonl", "--topics", "t/1")
        succeeded("export", *options, "--from", "2023-11-14T22:13:22Z", "--to", '{"n1": 5}', str(file))
        assert [row["payload"] for row in exported(file.rename(tmp_path / "some.jsonl"))] == ["3"]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_export_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr(log_export, "PART_BYTES", 1)
    file = tmp_path / f"all.{suffix}"
    with event_log_nodes("n1", "n2") as (first, second):
        first.append_numbers(30)
        second.append_numbers(30)
        _answer_blocks_one_by_one(monkeypatch)
        write_part = log_export.Export._write_part
        written: list[tuple[int, int]] = []

        def stop_in_the_fifth(self: Any, client: Any, index: int, wanted: Any, start: int, progress: Any) -> None:
            written.append((index, start))
            if len(written) == 5:
                (tmp_path / f"all.{suffix}.parts" / "part.partial").write_bytes(b"half")
                raise KeyboardInterrupt
            write_part(self, client, index, wanted, start, progress)

        monkeypatch.setattr(log_export.Export, "_write_part", stop_in_the_fifth)
        assert run("export", "--servers", first.address, str(file)).exit_code != 0
        assert not file.exists()
        first.append_numbers(5)  # the export ends where its first run found the end
        other = run("export", "--servers", first.address, "--topics", "x", str(file))
        assert other.exit_code == 1
        assert "has an export that was begun with" in other.stderr
        result = run("export", "--servers", second.address, str(file))
        assert result.exit_code == 0, result.output
        assert "going on after 40 of 60 records" in result.stderr
        assert len(written) == len(set(written)) + 1, "only the part that was stopped is written again"
        assert [(row["node"], row["offset"]) for row in exported(file)] == [
            (node, offset) for node in ("n1", "n2") for offset in range(30)
        ]


def test_one_process_exports_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one waits for no node and writes nothing: each would cut what the other is writing."""
    file = tmp_path / "all.jsonl"
    with event_log_nodes("n1") as (node,):
        node.append_numbers(5)
        write_part = log_export.Export._write_part
        others: list[Result] = []

        def write_beside(self: Any, *arguments: Any) -> None:
            others.append(run("export", "--servers", node.address, str(file)))
            write_part(self, *arguments)

        monkeypatch.setattr(log_export.Export, "_write_part", write_beside)
        succeeded("export", "--servers", node.address, str(file))
        (other,) = others
        assert (other.exit_code, "another process exports" in other.stderr) == (1, True)
        assert [row["offset"] for row in exported(file)] == list(range(5))
        monkeypatch.setattr(log_export.Export, "_find_plan", _fail_to_ask)
        with pytest.raises(OSError, match="no node"):
            log_export.Export(tmp_path / "other.jsonl", "jsonl", {}, read_batch_options({"servers": node.address}))
    assert list(tmp_path.iterdir()) == [file]


def _fail_to_ask(*_: Any) -> None:
    raise OSError("no node")


@pytest.mark.parametrize(("fault", "warned"), [(None, False), (errno.ENOLCK, True)])
def test_an_export_goes_to_nfs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: int | None,
    warned: bool,
) -> None:
    """There flock(2) locks files only that are open for writing, and nothing without a daemon."""

    def flock(descriptor: int, operation: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if fault is not None:
            raise OSError(fault, os.strerror(fault))
        locked(descriptor, operation)

    locked = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(log_export.Export, "_find_plan", lambda *_: [])
    file = tmp_path / "all.jsonl"
    with closing(_export(file)) as export:
        export.run(lambda _: None)
    assert list(tmp_path.iterdir()) == [file]
    assert ("cannot be locked" in caplog.text) == warned


def test_an_export_that_ends_lets_one_other_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that has the lock's file open already, which is removed."""
    monkeypatch.setattr(log_export.Export, "_find_plan", lambda *_: [])
    file = tmp_path / "all.jsonl"
    first = _export(file)

    def flock(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", locked)
        first.close()
        locked(descriptor, operation)

    locked = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)
    with closing(_export(file)), pytest.raises(PipelineError, match="another process exports"):
        _export(file)
    assert not list(tmp_path.iterdir())


def _export(file: Path) -> log_export.Export:
    return log_export.Export(file, "jsonl", {}, read_batch_options({"servers": "127.0.0.1:1"}))


def test_an_export_does_not_go_on_with_another_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "all.jsonl"
    with event_log_nodes("n1") as (node,):
        node.append_numbers(5)
        with monkeypatch.context() as patch:
            patch.setattr(log_export.Export, "_write_part", _interrupt)
            assert run("export", "--servers", node.address, str(file)).exit_code != 0
        node.lose_log()
        result = run("export", "--servers", node.address, str(file))
        assert result.exit_code == 1
        assert "remove" in result.stderr
        assert "to begin anew" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("export", "all.csv"), '"all.csv" ends in neither .jsonl nor .parquet; give --format'),
        (("export", "--topics", "a/#/b", "all.jsonl"), 'option topics: "a/#/b" is not a topic filter'),
        (("export", "--from", "yesterday", "all.jsonl"), 'option startingTimestamp: "yesterday" is not an instant'),
        (("tail", "--servers", "nowhere"), '--server: "nowhere" is not HOST:PORT of a gRPC API'),
    ],
)
def test_wrong_options_are_named(arguments: tuple[str, ...], text: str) -> None:
    result = run(*arguments)
    assert result.exit_code in (1, 2)
    assert text in result.stderr


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _answer_blocks_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read = NodeClient.read

    def one_by_one(self: Any, log_id: str, start: int, end: int, topics: Any = (), **others: Any) -> Any:
        return read(self, log_id, start, end, topics, 1, **others)

    monkeypatch.setattr(NodeClient, "read", one_by_one)
