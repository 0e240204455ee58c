#!/usr/bin/env python3
"""Read the topic `mqtt` with confluent-kafka, whose client librdkafka is native, and drop the records.

Run by the Python of run/clients. --ranges is a JSON object: by the Kafka listener of each node, HOST:PORT, its first offset and
the one behind the last. Prints one JSON object: the seconds from the first Fetch on, and for each node the number of
records and the sum of their offsets. Exit status 1: not all records came.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from confluent_kafka import Consumer, TopicPartition  # type: ignore[import-not-found]

TOPIC = "mqtt"
BATCH = 10_000  # records of one call
PATIENCE_SECONDS = 30.0  # without a record
BACKOFF_MS = 10  # of librdkafka where its queue is full: with its 1 s this program waits for it most of the time


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--ranges", required=True, type=json.loads, metavar="JSON")
    args = ap.parse_args()
    servers = ",".join(args.ranges)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": BACKOFF_MS,
        }
    )
    known = consumer.list_topics(TOPIC, PATIENCE_SECONDS)
    leaders = {each.id: known.brokers[each.leader] for each in known.topics[TOPIC].partitions.values()}
    nodes = {partition: f"{leader.host}:{leader.port}" for partition, leader in leaders.items()}
    ranges = {partition: args.ranges[node] for partition, node in nodes.items()}
    counts, sums = dict.fromkeys(ranges, 0), dict.fromkeys(ranges, 0)
    left = sum(end - first for first, end in ranges.values())
    start = time.perf_counter()
    consumer.assign([TopicPartition(TOPIC, partition, first) for partition, (first, _) in ranges.items()])
    while left > 0:
        records = consumer.consume(BATCH, PATIENCE_SECONDS)
        if not records:
            print(f"{left} records did not come", file=sys.stderr)
            return 1
        for record in records:
            if record.error() is not None:
                print(record.error(), file=sys.stderr)
                return 1
            partition, offset = record.partition(), record.offset()
            record.key(), record.value()
            if offset < ranges[partition][1]:
                counts[partition] += 1
                sums[partition] += offset
                left -= 1
    seconds = time.perf_counter() - start
    consumer.close()
    print(json.dumps({"seconds": seconds, "found": {nodes[each]: (counts[each], sums[each]) for each in ranges}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
