"""Filters and columns in Spark: the same rows as without, and less is read from the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row

from event_log_node import SECOND, TIME, EventLogNode, event_log_nodes
from pipeline.schema import ARROW_SCHEMA
from pipeline.session import PUSHDOWN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOURS = 24
Nodes = list[EventLogNode]


@pytest.fixture
def day() -> Iterator[Nodes]:
    """Two nodes with an hour of ten records 24 times."""
    with event_log_nodes("n1", "n2") as nodes:
        for node in nodes:
            for hour in range(HOURS):
                node.append_records(
                    [
                        (
                            f"sensors/{number % 3}/{node.node}",
                            b"%d" % number,
                            "c",
                            TIME + (hour * 3600 + number) * SECOND,
                        )
                        for number in range(10)
                    ]
                )
        yield nodes


def load(spark: SparkSession, nodes: Nodes, **options: str) -> DataFrame:
    return spark.read.format("mqtt").options(servers=nodes[0].address, **options).load()


def load_pushed(spark: SparkSession, nodes: Nodes) -> DataFrame:
    return load(spark, nodes, pushDownPredicate="true")


def found(frame: DataFrame) -> list[tuple[str, int]]:
    return sorted((row.node, row.offset) for row in frame.select("node", "offset").collect())


def asked(nodes: Nodes) -> list[tuple[str, int, int, list[str]]]:
    """What was read since the last call."""
    reads = [
        (node.node, read.start_offset, read.end_offset, list(read.topics)) for node in nodes for read in node.reads
    ]
    for node in nodes:
        node.reads.clear()
    return sorted(reads)


HOUR_5 = f"timestamp_seconds({TIME // SECOND + 5 * 3600})"
HOUR_6 = f"timestamp_seconds({TIME // SECOND + 6 * 3600})"


@pytest.mark.parametrize(
    ("condition", "reads"),
    [
        (f"ts >= {HOUR_5} and ts < {HOUR_6}", [("n1", 50, 60, []), ("n2", 50, 60, [])]),
        (f"time = {TIME + 3600 * SECOND}", [("n1", 10, 11, []), ("n2", 10, 11, [])]),
        ("node = 'n2' and offset between 3 and 17", [("n2", 3, 18, [])]),
        ("topic in ('sensors/0/n1', 'sensors/1/n1')", ["sensors/0/n1", "sensors/1/n1"]),
        ("topic = 'sensors/0/n2' and node = 'n2'", [("n2", 0, 240, ["sensors/0/n2"])]),
        ("topic like 'sensors/1%'", ["sensors/#"]),
        ("qos = 1 and not retain and offset < 5", [("n1", 0, 5, []), ("n2", 0, 5, [])]),
        ("qos = 0", []),
        ("retain", []),
        ("length(payload) = 1 and offset < 3", [("n1", 0, 3, []), ("n2", 0, 3, [])]),
        ("node = 'nobody'", None),
    ],
)
def test_filters_reach_the_reader(spark: SparkSession, day: Nodes, condition: str, reads: Any) -> None:
    everything = load(spark, day).cache()
    wanted = found(everything.where(condition))
    everything.unpersist()
    asked(day)
    assert found(load_pushed(spark, day).where(condition)) == wanted
    if reads is None:
        assert asked(day) == []
    elif all(isinstance(each, str) for each in reads):
        assert {(node, tuple(topics)) for node, _, _, topics in asked(day)} == {
            ("n1", tuple(reads)),
            ("n2", tuple(reads)),
        }
    else:
        assert asked(day) == reads


@pytest.mark.parametrize("setting", ["true", "false"])
def test_queries_of_one_load_get_all_that_they_ask_for(spark: SparkSession, day: Nodes, setting: str) -> None:
    low, high = "offset < 96 and node = 'n1'", "offset >= 96 or node = 'n2'"
    spark.conf.set(PUSHDOWN, setting)
    try:
        log = load(spark, day)
        assert log.where(low).union(log.where("node = 'n2'")).union(log.where("offset >= 96")).count() == 96 + 240 + 288
        assert [log.where(low).count(), log.where(high).count(), log.count()] == [96, 384, 480]
        log.createOrReplaceTempView("seen")
        assert spark.sql(f"SELECT * FROM seen WHERE {low} UNION ALL SELECT * FROM seen WHERE {high}").count() == 480
    finally:
        spark.conf.set(PUSHDOWN, "true")


@pytest.mark.slow
def test_spark_shares_pushed_filters_among_the_queries_of_one_load(spark: SparkSession, day: Nodes) -> None:
    """The reason of the option `pushDownPredicate`. A Spark in which this fails has it mended: there filters can always be
    pushed down."""
    log = load_pushed(spark, day)
    assert log.where("offset < 96").union(log.where("offset >= 96")).count() < 480


def test_a_session_that_pushes_nothing_down_says_so(spark: SparkSession, day: Nodes) -> None:
    spark.conf.set(PUSHDOWN, "false")
    try:
        with pytest.raises(Exception, match=PUSHDOWN):
            load_pushed(spark, day).where("node = 'n1'").count()
    finally:
        spark.conf.set(PUSHDOWN, "true")


def test_columns_that_nobody_asked_for_are_not_decoded(spark: SparkSession, day: Nodes) -> None:
    frame = load(spark, day, columns="topic, offset,node")
    assert frame.columns == ["node", "offset", "topic"]
    assert found(frame.where("topic = 'sensors/0/n1'")) == found(load(spark, day).where("topic = 'sensors/0/n1'"))
    rows = load(spark, day, topics="sensors/0/n1").collect()
    for names in (ARROW_SCHEMA.names[::2], ARROW_SCHEMA.names[1::2]):
        some = load(spark, day, columns=",".join(names), topics="sensors/0/n1").collect()
        assert some == [Row(**{name: row[name] for name in names}) for row in rows]
    with pytest.raises(Exception, match=r"option columns: \"color\" is no column; there are node, log"):
        load(spark, day, columns="color")


def test_columns_of_a_stream(spark: SparkSession, day: Nodes, checkpoint: str) -> None:
    reader = spark.readStream.format("mqtt").options(
        servers=day[0].address, startingOffsets="earliest", columns="payload"
    )
    query = reader.load().writeStream.format("memory").queryName("payloads").option("checkpointLocation", checkpoint)
    running = query.trigger(availableNow=True).start()
    assert running.awaitTermination(60)
    assert spark.table("payloads").columns == ["payload"]
    assert spark.table("payloads").count() == 2 * 10 * HOURS
