"""Kafka clients of `scripts/bench pipeline`: what reads over Kafka's protocol, and what does not behave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cluster import ROOT, BenchFailed
from pipeline_nodes import LoggingNodes, result_of, start_program
from pipeline_rows import KAFKA, Place, WrongRows, aggregate_messages

CLIENTS: Final = ROOT / "run" / "clients"
JARS: Final = CLIENTS / "jars"  # Spark's Kafka source: scripts/setup --jars
PYTHON: Final = CLIENTS / "venv" / "bin" / "python"  # with confluent-kafka: scripts/setup --clients


@contextmanager
def bad_clients(kafka: str) -> Iterator[None]:
    """A process whose clients do all that is wrong meanwhile."""
    program = start_program("kafka_bad.py", "--to", kafka)
    assert program.stdout is not None
    program.stdout.readline()  # the first ones have sent their requests, or it failed
    try:
        yield
    finally:
        result_of(program)


def fetch_by_spark(place: Place, nodes: LoggingNodes) -> float:
    if not list(JARS.glob("*.jar")):
        raise BenchFailed(f"{JARS.relative_to(ROOT)} has no Kafka source of Spark: scripts/setup --jars fetches it")
    return aggregate_messages(place, KAFKA, ",".join(nodes.kafka))


def fetch_natively(place: Place, nodes: LoggingNodes) -> float:
    if not PYTHON.exists():
        raise BenchFailed(f"{PYTHON.relative_to(ROOT)} is missing: scripts/setup --clients makes it")
    extents = [place.extents[name] for name in nodes.names]
    ranges = {kafka: (each.start, each.end) for kafka, each in zip(nodes.kafka, extents, strict=True)}
    result = result_of(start_program("kafka_read.py", "--ranges", json.dumps(ranges), python=PYTHON))
    wanted = {kafka: [end - start, (start + end - 1) * (end - start) // 2] for kafka, (start, end) in ranges.items()}
    if result["found"] != wanted:
        raise WrongRows(f"records and sums of their offsets are {result['found']}, should be {wanted}")
    return float(result["seconds"])
