"""Data source `mqtt` in SQL: tables and views with options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from event_log_node import event_log_nodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a JVM starts within minutes on a busy machine
QUERY = "SELECT string(payload) AS payload FROM seen WHERE offset >= 0 ORDER BY offset"


def test_a_temporary_view_reads_what_the_logs_have_at_each_query(spark: SparkSession) -> None:
    """Where it has a condition. Spark 4.3 plans the others once for a view."""
    with event_log_nodes("n1") as (node,):
        node.append(("a/1", b"1"), ("b", b"2"))
        spark.sql(f"CREATE TEMPORARY VIEW seen USING mqtt OPTIONS (servers '{node.address}', topics 'a/#')")
        try:
            assert [row.payload for row in spark.sql(QUERY).collect()] == ["1"]
            node.append(("a/2", b"3"))
            assert [row.payload for row in spark.sql(QUERY).collect()] == ["1", "3"]
        finally:
            spark.catalog.dropTempView("seen")


def test_a_table_takes_its_options_at_each_query(spark: SparkSession) -> None:
    """Spark 4.3 hands those of CREATE TABLE to no Python source. A view over the table keeps them."""
    with event_log_nodes("n1") as (node,):
        node.append(("a/1", b"1"), ("b", b"2"))
        options = f"servers = '{node.address}', topics = 'a/#'"
        spark.sql("CREATE TABLE messages USING mqtt")
        try:
            spark.sql(f"CREATE VIEW seen AS SELECT * FROM messages WITH ({options})")
            assert [row.payload for row in spark.sql(QUERY).collect()] == ["1"]
            assert spark.table("seen").count() == 1
            node.append(("a/2", b"3"))
            assert spark.table("seen").count() == 2
            assert spark.read.option("servers", node.address).table("messages").count() == 3
            with pytest.raises(AnalysisException, match='option servers: "" is empty'):
                spark.table("messages").count()
        finally:
            spark.sql("DROP VIEW IF EXISTS seen")
            spark.sql("DROP TABLE messages")
