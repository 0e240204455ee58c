"""Payloads: what parses, what is kept aside and why, columns and their statistics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from message_files import MessageFiles, row, run_once
from pipeline.aside import kept_aside
from pipeline.errors import OptionError
from pipeline.jobs.lateness import ARRIVAL, IN_TIME, LATE
from pipeline.jobs.payload import PayloadColumn, PayloadOptions, parse, read_columns, statistics

COLUMNS = [PayloadColumn("temperature", "$.t", "double"), PayloadColumn("unit", "$.meta['u']", "string")]


def test_columns_are_read() -> None:
    assert read_columns(("temperature=$.t:double", "unit=$.meta['u']:string")) == COLUMNS
    assert read_columns(("first=$[0]:bigint", "all=$:string"))[0] == PayloadColumn("first", "$[0]", "bigint")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("temperature", "is not NAME=PATH:TYPE"),
        ("temperature=t:double", "is not NAME=PATH:TYPE"),
        ("t=$.t:number", "has type number, which is not one of double, bigint"),
        ("t=$t:double", r"has path \$t; right are"),
        ("t=$.:double", r"has path \$\.; right are"),
        ("topic=$.t:double", "has name topic, which another column has"),
        ("fault=$.t:double", "has name fault"),
    ],
)
def test_columns_that_are_wrong_are_named(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=f'option columns: ".*" {reason}'):
        read_columns((text,))


def test_a_name_that_is_given_twice_is_named() -> None:
    for second in ("t", "T", "Topic"):
        with pytest.raises(OptionError, match=f"has name {second}, which another column has"):
            read_columns(("t=$.t:double", f"{second}=$.u:double"))


def test_payloads_that_are_no_json_are_kept_aside(spark: SparkSession, tmp_path: Path) -> None:
    messages = MessageFiles(tmp_path / "messages")
    payloads = [
        b'{"t": 21.5, "meta": {"u": "C"}, "more": [1, {"x": null}]}',
        b'{"t": "warm"}',
        b"12",
        b"null",
        b"\xff\xfe",
        b'{"t": 1',
        b"",
        b'{"t": 1, "t": 2}',
    ]
    messages.add(*(row(offset, offset, payload=payload) for offset, payload in enumerate(payloads)))
    run_once(parse(messages.stream(spark), COLUMNS), tmp_path, "outcome", "date")
    found = {each["offset"]: each for each in spark.read.parquet(str(tmp_path / "table")).collect()}
    assert {offset: each["fault"] for offset, each in found.items()} == {
        **dict.fromkeys((0, 1, 2, 3)),
        4: "not UTF-8",
        5: "not JSON",
        6: "empty",
        7: "not JSON",
    }
    assert json.loads(found[0]["value"].toJson()) == json.loads(payloads[0])
    assert (found[0]["temperature"], found[0]["unit"]) == (21.5, "C")
    assert (found[1]["temperature"], found[1]["unit"]) == (None, None)
    assert {offset: bytes(each["payload"]) for offset, each in found.items() if each["payload"] is not None} == {
        offset: payloads[offset] for offset in (4, 5, 6, 7)
    }
    assert {each["outcome"] for offset, each in found.items() if offset < 4} == {"parsed"}
    assert kept_aside(tmp_path / "table") == {"rejected": 4}


def test_statistics(spark: SparkSession, tmp_path: Path) -> None:
    messages = MessageFiles(tmp_path / "messages")
    values = [b'{"t": %d}' % each for each in (10, 20, 30)]
    messages.add(*(row(offset, offset, payload=payload) for offset, payload in enumerate([*values, b"x", b"{}"])))
    messages.add(row(9, 200))
    # Watermark 190: the window of both was written.
    messages.add(row(10, 59, payload=b'{"t": -5}'), row(11, 58, payload=b"y"), row(12, 201))
    messages.add(row(13, 400))
    options = PayloadOptions(window=60.0, delay=10.0)
    run_once(statistics(parse(messages.stream(spark), COLUMNS), COLUMNS, options), tmp_path, ARRIVAL, "date")
    rows = spark.read.parquet(str(tmp_path / "table"))
    found = {(each["start"].minute, each[ARRIVAL], each["column"]): each for each in rows.collect()}
    assert set(found) == {
        *((minute, IN_TIME, column) for minute in (0, 3) for column in ("", "temperature")),
        *((0, LATE, column) for column in ("", "temperature")),
    }
    whole = found[0, IN_TIME, ""]
    assert (whole["messages"], whole["rejected"], whole["numbers"]) == (5, 1, 0)
    numbers = found[0, IN_TIME, "temperature"]
    assert [numbers[name] for name in ("numbers", "min", "max", "mean")] == [3, 10.0, 30.0, 20.0]
    assert numbers["deviation"] == pytest.approx(8.165, abs=0.001)
    late = found[0, LATE, "temperature"]
    assert [late[name] for name in ("messages", "rejected", "numbers", "min", "max")] == [2, 1, 1, -5.0, -5.0]
    assert kept_aside(tmp_path / "table") == {"late": 2}
    merged = rows.where("column = 'temperature'").agg(F.kll_merge_agg_double("sketch").alias("all"))
    assert merged.select(F.kll_sketch_get_quantile_double("all", F.lit(0.5))).collect()[0][0] == 10.0
