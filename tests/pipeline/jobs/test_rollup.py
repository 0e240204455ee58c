"""Rollups: gaps, sketches, windows that stay open, late messages, devices that are forgotten."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from message_files import TEN, MessageFiles, row, run_once
from pipeline.aside import kept_aside
from pipeline.jobs.lateness import ARRIVAL, IN_TIME, LATE
from pipeline.jobs.rollup import NO_GAP, RollupOptions, gaps, merge, rollup

OPTIONS = RollupOptions(window=10.0, delay=5.0, forget=1000.0)


@pytest.mark.parametrize(
    ("times", "last", "expected"),
    [
        ([5, 7, 10], None, [NO_GAP, 2, 3]),
        ([5, 7, 10], 3, [2, 2, 3]),
        ([5, 7, 10], 6, [NO_GAP, 1, 3]),
        ([5, 7, 10], 10, [NO_GAP, NO_GAP, 0]),
        ([5, 7, 10], 11, [NO_GAP, NO_GAP, NO_GAP]),
        ([5, 5], 5, [0, 0]),
    ],
)
def test_gaps(times: list[int], last: int | None, expected: list[int]) -> None:
    assert gaps(np.array(times, np.int64), last).tolist() == expected


def test_windows_gaps_and_late_messages(spark: SparkSession, tmp_path: Path) -> None:
    message_files = MessageFiles(tmp_path / "messages")
    message_files.add(
        row(0, 0, payload=b"12345"),
        row(1, 2),
        row(2, 3, client_id="other", topic="house/kitchen/deep/er"),
        row(3, 4, client_id=None, topic="house/hall"),
    )
    message_files.add(row(4, 12), row(5, 40))
    # Watermark 35: the window of the first one was written, that of the second one was not.
    message_files.add(row(6, 7, payload=b"late"), row(7, 41), row(8, 32, client_id="other"))
    message_files.add(row(9, 100))
    run_once(rollup(message_files.stream(spark), OPTIONS), tmp_path, ARRIVAL, "date")

    found = spark.read.parquet(str(tmp_path / "table"))
    counts = {
        (round(each["start"].timestamp() - TEN / 1e9), each["prefix"], each[ARRIVAL]): (
            each["messages"],
            each["bytes"],
            each["publishers"],
            each["gaps"],
        )
        for each in found.collect()
    }
    # The window of the last message is open.
    assert counts == {
        (0, "house/kitchen", IN_TIME): (3, 7, 2, 1),
        (0, "house/hall", IN_TIME): (1, 1, 0, 0),
        (10, "house/kitchen", IN_TIME): (1, 1, 1, 1),
        (30, "house/kitchen", IN_TIME): (1, 1, 1, 1),
        (40, "house/kitchen", IN_TIME): (2, 2, 1, 2),
        (0, "house/kitchen", LATE): (1, 4, 1, 0),
    }
    merged = {
        (round(each["start"].timestamp() - TEN / 1e9), each["prefix"]): each for each in merge(found, 1, 60.0).collect()
    }
    assert kept_aside(tmp_path / "table") == {"late": 1}
    assert set(merged) == {(0, "house")}
    whole = merged[0, "house"]
    assert (whole["messages"], whole["bytes"], whole["late_messages"], whole["publishers"]) == (9, 16, 1, 2)
    assert (whole["size_median"], whole["size_p99"], whole["gap_p99_us"]) == (1, 5, 29_000_000)

    # A second run goes on where the first one ended: the gap across both, and the window that was open.
    message_files.add(row(10, 101))
    message_files.add(row(11, 500))
    # Older than the watermark of the batch before, too.
    message_files.add(row(12, 8), row(13, 501))
    message_files.add(row(14, 600))
    run_once(rollup(message_files.stream(spark), OPTIONS), tmp_path, ARRIVAL, "date")
    again = spark.read.parquet(str(tmp_path / "table")).where("start > timestamp '2026-11-22 10:01:00'").collect()
    assert sorted((each["messages"], each["gaps"]) for each in again) == [(2, 2), (2, 2)]
    assert kept_aside(tmp_path / "table") == {"late": 2}


def test_a_device_that_was_silent_for_long_begins_anew(spark: SparkSession, tmp_path: Path) -> None:
    message_files = MessageFiles(tmp_path / "messages")
    options = RollupOptions(window=10.0, delay=5.0, forget=60.0)
    message_files.add(row(0, 0))
    message_files.add(row(1, 50))
    message_files.add(row(2, 150, client_id="other"))
    message_files.add(row(3, 160, client_id="other"))
    message_files.add(row(4, 170))
    message_files.add(row(5, 400, client_id="other"))
    run_once(rollup(message_files.stream(spark), options), tmp_path, ARRIVAL, "date")
    found = spark.read.parquet(str(tmp_path / "table")).orderBy("start").collect()
    assert [(each["start"].minute * 60 + each["start"].second, each["gaps"]) for each in found] == [
        (0, 0),
        (50, 1),
        (150, 0),
        (160, 1),
        (170, 0),
    ]
