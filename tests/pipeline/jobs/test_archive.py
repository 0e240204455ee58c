"""The archive: partitions, columns, each message once also when files of a batch that was cut off lie beside."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from message_files import MessageFiles, row, run_once
from pipeline.jobs.archive import COLUMNS, archive, read_archive

DAY = 86_400.0


def test_messages_come_back_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    message_files = MessageFiles(tmp_path / "messages")
    properties = [{"key": "k", "value": "1"}, {"key": "k", "value": "2"}]
    rows = [
        row(0, 0, node="17", payload=b"\xff\0", user_properties=properties, client_id=None),
        row(1, DAY, node="17", expiry=5, retain=True, qos=2, correlation_data=b"\0", origin="other/cluster"),
        row(0, 1, node="b/c=d", log="log-b", topic="x"),
    ]
    message_files.add(*rows)
    run_once(archive(message_files.stream(spark)), tmp_path, "date", "node")
    found = read_archive(spark, str(tmp_path / "table"))
    assert tuple(found.columns) == COLUMNS
    got = {(each["node"], each["offset"]): each for each in found.collect()}
    assert set(got) == {("17", 0), ("17", 1), ("b/c=d", 0)}
    first, second = got["17", 0], got["17", 1]
    assert bytes(first["payload"]) == b"\xff\0"
    assert [(each["key"], each["value"]) for each in first["user_properties"]] == [("k", "1"), ("k", "2")]
    assert first["client_id"] is None
    assert str(first["date"]) == "2026-11-22"
    assert str(second["date"]) == "2026-11-23"
    assert (second["expiry"], second["retain"], second["qos"], second["origin"]) == (5, True, 2, "other/cluster")
    assert {(each["node"], each["time"]) for each in found.collect()} == {(each["node"], each["time"]) for each in rows}
    folders = {str(path.parent.relative_to(tmp_path / "table")) for path in (tmp_path / "table").rglob("*.parquet")}
    assert folders == {"date=2026-11-22/node=17", "date=2026-11-23/node=17", "date=2026-11-22/node=b%2Fc%3Dd"}


def test_files_that_no_batch_committed_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    message_files = MessageFiles(tmp_path / "messages")
    message_files.add(row(0, 0), row(1, 1))
    run_once(archive(message_files.stream(spark)), tmp_path, "date", "node")
    written = next((tmp_path / "table").rglob("*.parquet"))
    written.with_name("part-99999.snappy.parquet").write_bytes(written.read_bytes())
    written.with_name("part-99998.snappy.parquet").write_bytes(b"")
    message_files.add(row(2, 2))
    run_once(archive(message_files.stream(spark)), tmp_path, "date", "node")
    found = read_archive(spark, str(tmp_path / "table"))
    assert sorted(each["offset"] for each in found.collect()) == [0, 1, 2]
