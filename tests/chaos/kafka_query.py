"""A streaming query over Spark's Kafka source: the rows of the topic, to Parquet.

  kafka_query.py --servers HOST:PORT,… --topic NAME --dir FOLDER

It takes a batch every second until it is told to stop.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from client_library import kafka_jars
from pipeline.session import spark_session
from queries import CHECKPOINT, MASTER, ROWS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--dir", type=Path, required=True)
    options = parser.parse_args()
    spark = spark_session("kafka", MASTER, {"spark.jars": ",".join(kafka_jars())})
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", options.servers)
    reader = reader.option("subscribe", options.topic).option("startingOffsets", "earliest")
    rows = reader.load().selectExpr("partition", "offset", "string(key) AS topic", "value AS payload")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(options.dir / CHECKPOINT))
    writer.trigger(processingTime="1 second").start(str(options.dir / ROWS)).awaitTermination()


if __name__ == "__main__":
    main()
