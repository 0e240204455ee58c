"""Sink `mqtt` in Spark: each row once for each (query, batch), also after a restart and a repeated batch."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from event_log_node import EventLogNode, event_log_nodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def node() -> Iterator[EventLogNode]:
    with event_log_nodes("n1") as (only,):
        yield only


def write(spark: SparkSession, node: EventLogNode, query: str, **options: Any) -> None:
    spark.sql(query).write.format("mqtt").options(servers=node.address, **options).mode("append").save()


def payloads(node: EventLogNode) -> list[bytes]:
    return sorted(row[1] for rows in node.published.values() for row in rows)


def test_a_batch_is_published_once_for_its_job(spark: SparkSession, node: EventLogNode) -> None:
    rows = """select concat('t/', id % 3) topic, cast(id as string) payload, 2 qos, true retain,
        array(named_struct('key', 'k', 'value', cast(id as string))) properties from range(1000)"""
    write(spark, node, rows, jobId="job")
    write(spark, node, rows, jobId="job")
    (published,) = node.published.values()
    assert sorted(published) == sorted((f"t/{n % 3}", str(n).encode(), 2, True, [("k", str(n))]) for n in range(1000))
    write(spark, node, rows, jobId="job", batchId=1)
    assert len(payloads(node)) == 2000


def test_a_bad_row_is_named_and_none_is_published(spark: SparkSession, node: EventLogNode) -> None:
    query = "select if(id = 77, null, 't') topic, x'00' payload from range(0, 100, 1, 1)"
    with pytest.raises(PySparkException, match="row 77 of partition 0, batch 0 of query job: topic is NULL"):
        write(spark, node, query, jobId="job")
    assert node.published == {}


def test_large_payloads_are_published(spark: SparkSession, node: EventLogNode) -> None:
    """Larger than a request."""
    query = "select 't' topic, repeat(cast(id as string), {}) payload from range(0, 3, 1, 1)"
    write(spark, node, query.format(5_000_000), jobId="job")
    assert payloads(node) == [digit * 5_000_000 for digit in (b"0", b"1", b"2")]


def test_options_of_a_write_are_checked(spark: SparkSession, node: EventLogNode) -> None:
    with pytest.raises(AnalysisException, match="option jobId"):
        write(spark, node, "select 't' topic, x'' payload")
    frame = spark.sql("select 't' topic, x'' payload")
    writer = frame.write.format("mqtt").options(servers=node.address, jobId="j").mode("overwrite")
    with pytest.raises(AnalysisException, match="cannot be overwritten"):
        writer.save()


def run(spark: SparkSession, source: EventLogNode, sink: EventLogNode, checkpoint: str, **options: Any) -> None:
    frame = spark.readStream.format("mqtt").options(
        servers=source.address, startingOffsets="earliest", maxOffsetsPerTrigger=100
    )
    query = (
        frame.load()
        .selectExpr("concat('out/', topic) topic", "payload")
        .writeStream.format("mqtt")
        .options(servers=sink.address, checkpointLocation=checkpoint, **options)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


def numbers(count: int) -> list[bytes]:
    return sorted(str(n).encode() for n in range(count))


def test_a_stream_publishes_each_row_once(spark: SparkSession, node: EventLogNode, checkpoint: str) -> None:
    with event_log_nodes("out") as (out,):
        node.append_numbers(250)
        run(spark, node, out, checkpoint)
        assert payloads(out) == numbers(250)
        assert [batch for _, batch in out.published] == [0, 1, 2]
        node.append_numbers(50)
        run(spark, node, out, checkpoint)
        assert payloads(out) == numbers(300)
        # The job dies between the node's commit and Spark's own: the batch is run again.
        (Path(checkpoint) / "commits" / "3").unlink()
        (Path(checkpoint) / "commits" / ".3.crc").unlink(missing_ok=True)
        run(spark, node, out, checkpoint)
        assert payloads(out) == numbers(300)
        assert out.staged == {}


def test_a_commit_that_fails_is_tried_with_the_next_run(
    spark: SparkSession, node: EventLogNode, checkpoint: str
) -> None:
    with event_log_nodes("out") as (out,):
        node.append_numbers(50)
        out.fail_commits = [grpc.StatusCode.INTERNAL]
        with pytest.raises(StreamingQueryException, match="node out: as the test wants it"):
            run(spark, node, out, checkpoint)
        assert out.published == {}
        run(spark, node, out, checkpoint)
        assert payloads(out) == numbers(50)


def test_a_new_checkpoint_is_a_new_query(spark: SparkSession, node: EventLogNode, checkpoint: str) -> None:
    with event_log_nodes("out") as (out,):
        node.append_numbers(50)
        run(spark, node, out, checkpoint)
        shutil.rmtree(checkpoint)
        run(spark, node, out, checkpoint)
        assert payloads(out) == sorted(2 * numbers(50))
