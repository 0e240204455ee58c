"""Declared schemas in Spark: rows of each format, Sparkplug's births over restarts, schemas that change, both formats."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cbor2
import duckdb
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from event_log_node import EventLogNode, event_log_nodes
from message_files import MessageFiles, row, run_once
from pipeline.aside import committed_files, kept_aside
from pipeline.decoding.paths import read_path
from pipeline.decoding.schemas import DeclaredColumn, DeclaredSchema
from pipeline.errors import PipelineError
from pipeline.jobs.decode import decode
from pipeline.registry import DELTA, TABLE_FORMATS, Context, find
from pipeline.runner import make_folder, run_queries
from spark_limits import run_again
from sparkplug_messages import DOUBLE, STRING, metric, payload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a JVM starts within minutes on a busy machine
NEVER = threading.Event()
SCHEMAS = """
schemas:
  climate:
    filter: house/+/climate
    format: json
    columns:
      temperature: {{path: $.t, type: {0}}}
{1}
  door:
    filter: house/+/door
    format: cbor
    columns:
      open: {{type: boolean, required: true}}
"""
UNIT = "      unit: {path: $.u, type: string}"
NBIRTH = payload(metric("speed", 1, DOUBLE, double_value=1.0))
REBIRTH = payload(metric("mode", 1, STRING, string_value="a"))


def speed(value: float) -> bytes:
    return payload(metric(alias=1, double_value=value))


def declared(*columns: tuple[str, str, str]) -> tuple[DeclaredColumn, ...]:
    return tuple(DeclaredColumn(name, path, read_path(path), type_) for name, path, type_ in columns)


LINE = DeclaredSchema(
    "line",
    "spBv1.0/#",
    "sparkplug",
    declared(("speed", "$.metrics.speed", "double"), ("mode", "$.metrics.mode", "string")),
)


def test_births_hold_over_restarts_and_are_the_same_after_a_replay(spark: SparkSession, tmp_path: Path) -> None:
    messages = MessageFiles(tmp_path / "messages")

    def add(*rows: tuple[int, str, str, bytes]) -> None:
        messages.add(*(row(at, at, node=node, topic=topic, payload=data) for at, node, topic, data in rows))

    def found() -> list[tuple[Any, ...]]:
        run_again(lambda: run_once(decode(messages.stream(spark), LINE), tmp_path, "outcome", "date"))
        rows = spark.read.parquet(str(tmp_path / "table")).orderBy("node", "offset").collect()
        return [(each["node"], each["offset"], each["speed"], each["mode"], each["reason"]) for each in rows]

    data, birth = "spBv1.0/g/NDATA/n", "spBv1.0/g/NBIRTH/n"
    # Not in the order of offsets: tasks divide a log.
    add((1, "a", data, speed(2.0)), (0, "a", birth, NBIRTH), (0, "b", data, speed(3.0)), (0, "c", birth, NBIRTH))
    early = [("a", 0, 1.0, None, None), ("a", 1, 2.0, None, None)]
    no_birth = ("b", 0, None, None, "alias 1: no birth of the edge node comes before in this log")
    assert found() == [*early, no_birth, ("c", 0, 1.0, None, None)]
    # A birth that cannot be read ends the one before.
    add((2, "a", data, speed(4.0)), (3, "a", "spBv1.0/STATE/host", b"{}"), (1, "c", birth, b"\xff"))
    add(
        (4, "a", birth, REBIRTH),
        (5, "a", data, payload(metric(alias=1, string_value="b"))),
        (1, "b", birth, NBIRTH),
        (2, "b", data, speed(5.0)),
        (2, "c", data, speed(6.0)),
    )
    first = found()
    assert first[:3] == [*early, ("a", 2, 4.0, None, None)]
    assert first[3][:4] == ("a", 3, None, None)
    assert "topic is not" in first[3][4]
    assert first[4:10] == [
        ("a", 4, None, "a", None),
        ("a", 5, None, "b", None),
        no_birth,
        ("b", 1, 1.0, None, None),
        ("b", 2, 5.0, None, None),
        ("c", 0, 1.0, None, None),
    ]
    assert first[10][:4] == ("c", 1, None, None)
    assert "no payload" in first[10][4]
    assert first[11:] == [("c", 2, *no_birth[2:])]
    # A driver that is killed before it notes its last batch: Spark repeats it, from the state of the one before.
    for folder in (tmp_path / "checkpoint/commits", tmp_path / "table/_spark_metadata"):
        last = max(int(path.name) for path in folder.glob("[0-9]*"))
        for path in (folder / str(last), folder / f".{last}.crc"):
            path.unlink(missing_ok=True)
    assert found() == first


def run(spark: SparkSession, folder: Path, node: EventLogNode, format_: str, schemas: str) -> None:
    file = folder / "schemas.yml"
    file.write_text(schemas)
    pipeline = find("decode")
    own, source = pipeline.read_options({"servers": node.address, "schemas": str(file), "format": format_})
    make_folder(folder)
    context = Context(lambda: spark, folder, source)
    run_again(lambda: run_queries(pipeline, context, own, 0.0, NEVER, lambda _: None))


def table_of(folder: Path, name: str, format_: str) -> tuple[Path, Any]:
    """Its place, and what DuckDB reads."""
    if format_ == DELTA:
        place = folder / f"{name}-delta"
        return place, DeltaTable(place).to_pyarrow_dataset()
    place = folder / name
    files = [str(place / each) for each in committed_files(place)]
    return place, ds.dataset(files, schema=None, partitioning="hive", partition_base_dir=str(place))


def rows_of(folder: Path, name: str, format_: str, what: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.register("given", table_of(folder, name, format_)[1])
        return connection.sql(f'SELECT {what} FROM given ORDER BY "offset"').fetchall()


@pytest.mark.parametrize("format_", TABLE_FORMATS)
def test_tables_of_both_formats(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    with event_log_nodes("n1") as (node,):
        node.append(
            ("house/a/climate", b'{"t": 21.5, "u": "C"}'),
            ("house/a/climate", b'{"t": "warm"}'),
            ("house/a/door", cbor2.dumps({"open": True})),
            ("house/b/climate", b"x"),
            ("other", b"1"),
        )
        run(spark, tmp_path, node, format_, SCHEMAS.format("double", ""))
        what = '"offset", temperature, payload, outcome'
        before = rows_of(tmp_path, "decoded-climate", format_, what)
        assert before == [
            (0, 21.5, None, "decoded"),
            (1, None, b'{"t": "warm"}', "undecoded"),
            (3, None, b"x", "undecoded"),
        ]
        assert rows_of(tmp_path, "decoded-door", format_, '"offset", open') == [(2, True)]
        assert kept_aside(table_of(tmp_path, "decoded-climate", format_)[0]) == {"undecoded": 2}
        # A column is added: NULL in rows that were there.
        node.append(("house/a/climate", b'{"t": 20, "u": "C"}'), ("house/b/door", cbor2.dumps({})))
        run(spark, tmp_path, node, format_, SCHEMAS.format("double", UNIT))
        if format_ == DELTA:
            assert rows_of(tmp_path, "decoded-climate", format_, '"offset", temperature, unit') == [
                (0, 21.5, None),
                (1, None, None),
                (3, None, None),
                (5, 20.0, "C"),
            ]
        reasons = rows_of(tmp_path, "decoded-door", format_, '"offset", reason')
        assert reasons == [(2, None), (6, "column open boolean: is required and missing")]
        # A type is changed: readers would not know it.
        with pytest.raises(PipelineError, match="column temperature of type"):
            run(spark, tmp_path, node, format_, SCHEMAS.format("string", UNIT))


def test_the_archive_as_a_delta_table_after_a_kill(spark: SparkSession, tmp_path: Path) -> None:
    """The last batch is in the table, and the driver was killed before it noted that."""
    pipeline = find("archive")
    with event_log_nodes("n1", "n2") as nodes:
        own, source = pipeline.read_options(
            {"servers": nodes[0].address, "format": DELTA, "maxOffsetsPerTrigger": "30"}
        )
        context = Context(lambda: spark, tmp_path, source)
        make_folder(tmp_path)
        for _ in range(3):
            for node in nodes:
                node.append_numbers(50)
            run_again(lambda: run_queries(pipeline, context, own, 0.0, NEVER, lambda _: None))
            commits = context.checkpoint("archive-delta") / "commits"
            last = max(int(path.name) for path in commits.glob("[0-9]*"))
            (commits / str(last)).unlink()
            (commits / f".{last}.crc").unlink(missing_ok=True)
        run_again(lambda: run_queries(pipeline, context, own, 0.0, NEVER, lambda _: None))
    found = rows_of(tmp_path, "archive", DELTA, 'node, "offset", payload')
    assert Counter(found) == Counter((node, at, b"%d" % at) for node in ("n1", "n2") for at in range(150))
