"""`gmqttctl pipeline` and `gmqttctl replay` as commands: what they print, and errors in one line. No Spark starts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from event_log_node import event_log_nodes
from gmqttctl.cli import main
from gmqttctl.errors import EXIT_FAILED, EXIT_USAGE
from pipeline.delta_table import TableSpec, commit, prepare, write_files
from pipeline.registry import JOBS
from spark_tables import write_batch, write_rows
from sparkplug_messages import DOUBLE, metric, payload


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_pipelines_are_listed() -> None:
    shown = run("pipeline", "list")
    assert [line.partition(":")[0] for line in shown.output.splitlines() if not line.startswith(" ")] == list(JOBS)
    assert "    window=1m  length of a window" in shown.output.splitlines()
    found = json.loads(run("pipeline", "list", "--json").output)
    assert found["rollup"]["options"]["window"] == {"default": "1m", "meaning": "length of a window"}


SCHEMAS = """
schemas:
  climate:
    filter: house/+/climate
    format: json
    columns:
      temperature: {path: $.t, type: double}
      at: {type: timestamp}
  line:
    filter: spBv1.0/#
    format: sparkplug
    columns:
      speed: {path: $.metrics.speed, type: double}
"""


def test_schemas_are_shown_and_tried(tmp_path: Path) -> None:
    file, message = tmp_path / "plant.yml", tmp_path / "message"
    file.write_text(SCHEMAS)
    lines = run("pipeline", "schemas", str(file)).output.splitlines()
    assert lines[:2] == ["decoded-climate: json, house/+/climate", "    temperature double  $.t"]
    message.write_bytes(b'{"t": 21, "at": "2026-11-22T12:00:00Z"}')
    tried = ("pipeline", "schemas", str(file), "--payload", str(message), "--topic")
    assert "    temperature double  $.t = 21.0" in run(*tried, "house/a/climate").output.splitlines()
    assert run(*tried, "other").output == "no schema has this topic\n"
    (found,) = json.loads(run(*tried, "house/a/climate", "--json").output)["schemas"]
    assert (found["row"], found["reason"]) == ({"temperature": 21.0, "at": "2026-11-22T12:00:00+00:00"}, None)
    message.write_bytes(payload(metric("speed", 1, DOUBLE, double_value=2.5)))
    assert "    speed double  $.metrics.speed = 2.5" in run(*tried, "spBv1.0/g/NBIRTH/n").output.splitlines()
    message.write_bytes(payload(metric(alias=1, double_value=2.5)))
    assert "does not decode: alias 1: no birth" in run(*tried, "spBv1.0/g/NDATA/n").output


def undecoded_rows(count: int) -> dict[str, list[object]]:
    """The first third has another reason than the others."""
    reasons = ["not JSON" if at < count // 3 else "no number" for at in range(count)]
    numbers = list(range(count))
    return {
        "reason": [*reasons],
        "node": ["n"] * count,
        "log": ["l"] * count,
        "offset": [*numbers],
        "topic": ["t"] * count,
    }


@pytest.mark.parametrize("is_delta", [False, True])
def test_reasons_are_counted(tmp_path: Path, is_delta: bool) -> None:
    place, rows = tmp_path / "decoded-x", undecoded_rows(9)
    if is_delta:
        table = pa.table({**rows, "outcome": ["undecoded"] * 9})
        spec = TableSpec(place, table.schema, ("outcome",))
        prepare(spec)
        commit(spec, "q", 0, write_files(spec, table.to_batches()))
    else:
        names = [
            write_rows(place, "outcome=undecoded/date=2026-11-22/a.parquet", rows),
            write_rows(place, "outcome=decoded/date=2026-11-22/a.parquet", undecoded_rows(3)),
        ]
        write_batch(place, "0", *names)
        write_rows(place, "outcome=undecoded/date=2026-11-22/uncommitted.parquet", rows)
    found = json.loads(run("pipeline", "undecoded", "decoded-x", "--dir", str(tmp_path), "--json").output)
    assert [(each["reason"], each["messages"], each["first"]["offset"]) for each in found["reasons"]] == [
        ("no number", 6, 3),
        ("not JSON", 3, 0),
    ]
    lines = run("pipeline", "undecoded", "decoded-x", "--dir", str(tmp_path)).output.splitlines()
    assert lines[1].split() == ["6", "n", "3", "t", "no", "number"]


def test_a_table_of_another_job_is_named(tmp_path: Path) -> None:
    table = pa.table({"offset": [1]})
    prepare(TableSpec(tmp_path / "archive-delta", table.schema, ()))
    result = run("pipeline", "undecoded", "archive-delta", "--dir", str(tmp_path))
    assert result.exit_code == EXIT_USAGE
    assert "archive-delta" in result.stderr
    assert "outcome" in result.stderr
    assert len(result.stderr.splitlines()) == 1


EXTRA = ["pyspark", "py4j", "pyarrow", "pandas", "numpy", "rich", "matplotlib"]
INSTANTS = ("--from", "2026-11-22T10:00:00Z", "--to", "2026-11-22T11:00:00Z")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("pipeline", "run", "archive", "--once", "--every", "5s"), 'option --every: "5s" is given beside --once'),
        (("pipeline", "run", "archive", "--every", "5"), 'option --every: "5" is not right: "5" has no unit'),
        (("pipeline", "run", "archive", "-o", "x"), 'option -o: "x" is not NAME=VALUE'),
        (("pipeline", "run", "nothing"), 'option NAME: "nothing" is no pipeline'),
        (("pipeline", "status"), "pipeline-data has no checkpoints"),
        (("pipeline", "plot"), "pipeline-data has no rollup: run the pipeline `rollup` first"),
        (("pipeline", "plot", "rollup-1-1m"), 'option TABLE: "rollup-1-1m" is no rollup in pipeline-data'),
        (("pipeline", "run", "decode"), 'option schemas: "" cannot be read'),
        (("pipeline", "schemas", "nothing.yml"), 'option schemas: "nothing.yml" cannot be read'),
        (("pipeline", "schemas", "x", "--topic", "a"), 'option --topic: "a" belongs to --payload'),
        (("pipeline", "undecoded", "decoded-x"), 'option TABLE: "decoded-x" is no folder of pipeline-data'),
        (("replay", *INSTANTS[:3], "noon"), 'option --to: "noon" is not an instant'),
        (("replay", *INSTANTS[:3], "2026-11-22T09:00:00Z"), "is not after --from"),
        (("replay", *INSTANTS, "--topic-map", "a/#=b"), 'option --topic-map: "a/#=b" is not OLD=NEW'),
        (("replay", *INSTANTS, "--job", "../x"), 'option --job: "../x" is no name'),
        (("replay", *INSTANTS, "--topics", "a/#", "--source", "archive"), 'option --topics: "a/#" is of --source log'),
    ],
)
def test_errors_are_one_line(
    arguments: tuple[str, ...], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code in (EXIT_FAILED, EXIT_USAGE)
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("gmqttctl: ")
    assert text in lines[0]


def test_the_status_is_shown(tmp_path: Path) -> None:
    with event_log_nodes("n1") as (node,):
        node.append_numbers(10)
        (tmp_path / "checkpoints" / "archive" / "commits").mkdir(parents=True)
        result = run("pipeline", "status", "--servers", node.address, "--dir", str(tmp_path), "--json")
    found: dict[str, Any] = json.loads(result.output)
    assert found["queries"][0]["nodes"][0]["messages"] == 10


def test_a_rollup_without_a_window_is_named_before_spark_starts(tmp_path: Path) -> None:
    write_batch(tmp_path / "rollup-2-1m", "0")
    result = run("pipeline", "plot", "--dir", str(tmp_path))
    assert result.exit_code == 1
    assert "rollup-2-1m has no window yet" in result.stderr


@pytest.mark.parametrize(
    "arguments", [("pipeline", "list"), ("pipeline", "run", "archive"), ("pipeline", "status"), ("replay", *INSTANTS)]
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(arguments: tuple[str, ...]) -> None:
    """As after `pip install gmqttd` without the extra: the commands of logs work, the others say what they need."""
    program = (
        "import sys\n"
        f"for name in {EXTRA}: sys.modules[name] = None\n"
        "from gmqttctl.cli import main\n"
        f"main({list(arguments)})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    found = re.fullmatch(r"gmqttctl: this command needs the package (\w+), which is not installed\. .*: pip .*", line)
    assert found is not None
    assert found[1] in EXTRA
