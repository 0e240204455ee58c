"""A streaming query that copies each record of the logs through the sink: the payload of a copy names its record.

  sink_query.py --servers HOST:PORT,… --node NAME --checkpoint FOLDER

It takes a batch every second until it is told to stop.
"""

from __future__ import annotations

import argparse
from typing import Final

from pyspark.sql import functions as F

from messages import TOPIC_PREFIX
from pipeline.session import spark_session

COPIES: Final = "copies"
MASTER: Final = "local[2,4]"  # a task is tried four times: the kill of a Python worker ends no query


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--checkpoint", required=True)
    options = parser.parse_args()
    spark = spark_session("copies", MASTER)
    reader = spark.readStream.format("mqtt").option("servers", options.servers)
    reader = reader.option("topics", f"{TOPIC_PREFIX}#").option("startingOffsets", "earliest")
    place = F.format_string("%s %s %d", "node", "log", "offset")
    copies = reader.load().select(F.lit(COPIES).alias("topic"), F.encode(place, "utf-8").alias("payload"))
    writer = copies.withColumn("qos", F.lit(1)).writeStream.format("mqtt")
    writer = writer.option("servers", options.servers).option("node", options.node)
    writer = writer.option("checkpointLocation", options.checkpoint)
    writer.trigger(processingTime="1 second").start().awaitTermination()


if __name__ == "__main__":
    main()
