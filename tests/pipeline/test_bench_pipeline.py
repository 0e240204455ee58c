"""Each row of `scripts/bench pipeline` on two real nodes with few messages: it runs, and a wrong count does not pass."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cluster import Ports
from pipeline_nodes import QOS_0, QOS_1, LoggingNodes
from pipeline_rows import FILES, NODES, Place, WrongRows, aggregate, publish_by_sink, write_files
from run_pipeline import MEMORY, SPARK_ROWS, Bench, SparkRow, reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow]

MESSAGES = 600
GMQTTD = Path(sys.executable).with_name("gmqttd")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggingNodes]:
    with LoggingNodes(GMQTTD, tmp_path_factory.mktemp("bench") / "nodes", Ports()) as found:
        yield found


@pytest.fixture(scope="module")
def place(spark: SparkSession, nodes: LoggingNodes, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Messages of both data sets, the second one behind the first one."""
    folder = tmp_path_factory.mktemp("bench-files")
    nodes.publish(QOS_0, MESSAGES)
    found = Place(spark, ",".join(nodes.api), nodes.publish(QOS_1, MESSAGES), folder / "files", folder)
    write_files(found)
    return found


@pytest.mark.parametrize("row", SPARK_ROWS, ids=[row.name for row in SPARK_ROWS])
def test_spark_row(row: SparkRow, place: Place) -> None:
    assert place.rows == MESSAGES
    for participant in (NODES, FILES):
        assert row.work(place, participant) > 0


def test_a_lost_row_is_an_error(place: Place) -> None:
    node, extent = next(iter(place.extents.items()))
    longer = replace(place, extents={**place.extents, node: replace(extent, end=extent.end + 1)})
    with pytest.raises(WrongRows):
        aggregate(longer, FILES)


def test_sink(place: Place) -> None:
    assert publish_by_sink(place, "few", MESSAGES // 2) > 0


def test_full_speed_reader(nodes: LoggingNodes) -> None:
    before = nodes.extents()
    with reader(nodes.api[0]):
        nodes.publish(QOS_0, MESSAGES)
    after = nodes.extents()
    assert sum(after[name].end - before[name].end for name in nodes.names) == MESSAGES


def test_memory(tmp_path: Path) -> None:
    bench = Bench(GMQTTD, tmp_path, MESSAGES, rounds=1, log_gb=0.01, rows=[MEMORY])
    bench.measure_memory()
    assert [(line.fault, len(line.ours)) for line in bench.lines] == [("", 1), ("", 1)]
