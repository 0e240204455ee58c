"""A user's program: run by spark-submit, or as a client of Spark Connect, which SPARK_REMOTE names.

  submitted_job.py HOST:PORT

It reads the event logs of the node as a batch and as a stream and publishes through the sink. Prints as JSON what it read, and
where the Pythons of the executors found the source.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pipeline.source

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"place": [pipeline.source.__file__]})


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    (server,) = sys.argv[1:]
    spark.sql(f"CREATE TEMPORARY VIEW messages USING mqtt OPTIONS (servers '{server}', topics 'sensors/#')")
    read = [row.payload for row in spark.sql("SELECT string(payload) AS payload FROM messages").collect()]
    stream = spark.readStream.format("mqtt").options(servers=server, topics="sensors/#", startingOffsets="earliest")
    copies = stream.load().selectExpr("concat('copy/', topic) AS topic", "payload")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = copies.writeStream.format("mqtt").options(servers=server, checkpointLocation=checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    frame = spark.read.format("mqtt").options(servers=server, topics="copy/#", includePipeline="true").load()
    copied = [bytes(row.payload).decode() for row in frame.collect()]
    found = spark.range(0, 8, 1, 8).mapInArrow(places, "place string").distinct().collect()
    print(json.dumps({"read": sorted(read), "copied": sorted(copied), "places": sorted(row.place for row in found)}))


if __name__ == "__main__":
    main()
