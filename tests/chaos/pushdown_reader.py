"""Batch queries whose filters are pushed down to the nodes: each one has what the logs have got since the one before.

  pushdown_reader.py --servers HOST:PORT,… --dir FOLDER

A batch is read again when it failed or was killed: its rows replace those of the try before. Every batch is the union of one
query for each node and each half of the time, which filter by node, offset, time, topic and QoS. Each has a load() of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from batch_files import BatchFiles
from gmqttctl.connection import Connection
from messages import TOPIC_PREFIX
from pipeline.cluster import Cluster
from pipeline.errors import PipelineError
from pipeline.session import spark_session
from queries import MASTER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAUSE_SECONDS: Final = 1.0


def rows_between(spark: SparkSession, servers: str, begin: dict[str, int], end: dict[str, int]) -> DataFrame:
    """node, offset, topic and payload of what lies between these offsets."""
    middle = time.time_ns() - int(PAUSE_SECONDS / 2 * 1e9)
    parts = []
    for node, offset in end.items():
        for half in (F.col("time") < middle, F.col("time") >= middle):
            log = spark.read.format("mqtt").options(servers=servers, pushDownPredicate="true").load()
            ours = log.where((F.col("node") == node) & F.col("offset").between(begin.get(node, 0), offset - 1))
            parts.append(ours.where(F.col("topic").startswith(TOPIC_PREFIX) & (F.col("qos") == 1) & half))
    return reduce(lambda one, other: one.union(other), parts).select("node", "offset", "topic", "payload")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--dir", type=Path, required=True)
    options = parser.parse_args()
    spark = spark_session("pushdown", MASTER)
    batches = BatchFiles(options.dir)
    cluster = Cluster(Connection(tuple(options.servers.split(","))))
    while True:
        begin = batches.position()
        try:
            members = cluster.ask()
            end = {**begin, **{node: state.next_offset for node, state in members.nodes.items()}}
            if not members.away and end != begin:
                rows = rows_between(spark, options.servers, begin, end)
                rows.write.mode("overwrite").parquet(str(batches.place()))
                batches.commit(end)
        except (PySparkException, PipelineError) as error:  # a node is away: the batch is tried again
            print(f"batch {len(batches)}: {error}", file=sys.stderr, flush=True)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
