"""Alerts as queries: silence also when nobody speaks, ranges, one message at each end of an episode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from message_files import MessageFiles, row
from pipeline.errors import OptionError
from pipeline.jobs.alerts import AlertOptions, check, silent_devices, unusual_values

Alert = tuple[str, dict[str, Any]]
ARRIVES_SECONDS = 90


@contextmanager
def published(rows: DataFrame, checkpoint: Path) -> Iterator[Queue[Alert]]:
    """Run a query; the queue gets its alerts as (topic, payload)."""
    alerts: Queue[Alert] = Queue()

    def take(batch: DataFrame, _number: int) -> None:
        for each in batch.collect():
            alerts.put((each["topic"], json.loads(each["payload"])))

    query = (
        rows.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        yield alerts
    finally:
        query.stop()


def test_silence_is_told_also_when_every_device_is_silent(spark: SparkSession, tmp_path: Path) -> None:
    messages = MessageFiles(tmp_path / "messages")
    messages.add(row(0, 0, client_id="one"), row(1, 5, client_id="two+", topic="b"), row(2, 5, client_id=None))
    rows = silent_devices(messages.stream(spark), AlertOptions(silent_after=1.0))
    with published(rows, tmp_path / "checkpoint") as alerts:
        first = dict(alerts.get(timeout=ARRIVES_SECONDS) for _ in range(2))
        assert set(first) == {"alerts/silent/one", "alerts/silent/two%2B"}
        assert first["alerts/silent/one"] == {
            "alert": "silent",
            "state": "began",
            "device": "one",
            "episode": 1,
            "since": 1795341600.0,
            "topic": "house/kitchen/t",
        }
        messages.add(row(3, 7, client_id="one"))
        topic, back = alerts.get(timeout=ARRIVES_SECONDS)
        assert (topic, back["state"], back["episode"]) == ("alerts/silent/one", "ended", 1)
        topic, again = alerts.get(timeout=ARRIVES_SECONDS)
        assert (topic, again["state"], again["episode"], again["since"]) == (
            "alerts/silent/one",
            "began",
            2,
            1795341607.0,
        )
        assert alerts.empty()


def test_values_outside_of_their_range_are_told_once(spark: SparkSession, tmp_path: Path) -> None:
    messages = MessageFiles(tmp_path / "messages")
    usual = [20.0 + (each % 5) / 10 for each in range(40)]
    values = [*usual, 90.0, 91.0, 92.0, 93.0, *usual]
    messages.add(*(row(each, each, payload=json.dumps({"t": value}).encode()) for each, value in enumerate(values)))
    messages.add(*(row(each, each, topic="other", payload=b"{}") for each in range(99)))
    rows = unusual_values(messages.stream(spark), AlertOptions(value="$.t"))
    with published(rows, tmp_path / "checkpoint") as alerts:
        (topic, began), (_, ended) = (alerts.get(timeout=ARRIVES_SECONDS) for _ in range(2))
        assert (topic, began["state"], began["value"], began["at"]) == (
            "alerts/range/house/kitchen/t",
            "began",
            92.0,
            1795341642.0,
        )
        assert 18.0 < began["usual"][0] < 20.0 < began["usual"][1] < 22.0
        assert (ended["state"], ended["episode"]) == ("ended", 1)
        assert alerts.empty()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (AlertOptions(topic="a/#"), 'option topic: "a/#" is no topic name'),
        (AlertOptions(value="t"), 'option value: "t" is no path'),
        (AlertOptions(silent_after=0.0), 'option silent_after: "0" and no value: there is nothing to watch'),
    ],
)
def test_wrong_options_are_named(options: AlertOptions, text: str) -> None:
    with pytest.raises(OptionError) as raised:
        check(options)
    assert str(raised.value).startswith(text)
