"""Every row against real nodes with few messages: its command is valid, nothing is lost, and its figures are there."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import run_bench
from brokers import make_cluster
from cluster import Cluster, Ports
from rows import ROWS, THIS, Row
from run_bench import run_generator, value_of

pytestmark = [pytest.mark.slow]

COUNT: Final = 1_000
STALL_COUNT: Final = 100
GMQTTD: Final = Path(sys.executable).with_name("gmqttd")
STALLS: Final = [row for row in ROWS if "mqtt_stall" in row.command]
LOADS: Final = [row for row in ROWS if row not in STALLS]
Kind = tuple[int, str, bool, str]


def names(rows: list[Row]) -> list[str]:
    return [row.name for row in rows]


def kind_of(row: Row) -> Kind:
    return row.nodes, row.transport, THIS in row.secured, row.links


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Kind, Cluster]]:
    """By the number of nodes, the transport of the second listener, whether there are accounts, and the links."""
    folder = tmp_path_factory.mktemp("bench")
    ports = Ports()
    with ExitStack() as stack:
        made: dict[Kind, Cluster] = {}
        for row in LOADS:
            if (kind := kind_of(row)) not in made:
                plain = replace(row, log="", has_store=False)
                made[kind] = make_cluster(THIS, GMQTTD, folder / str(len(made)), ports, plain)
        yield {kind: stack.enter_context(cluster) for kind, cluster in made.items()}


@pytest.mark.parametrize("row", LOADS, ids=names(LOADS))
def test_load(row: Row, clusters: dict[Kind, Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_bench, "MANY_SUBSCRIPTIONS", COUNT)
    result = run_generator(row, THIS, clusters[kind_of(row)], COUNT)
    assert result.get("lost", 0) == 0
    assert result.get("delivered", result.get("connections", 0)) >= COUNT
    for figure in row.figures:
        assert math.isfinite(value_of(result, figure.key))  # memory may have been given back meanwhile
    if "cpu" in row.figures[0].key:
        assert value_of(result, row.figures[0].key) > 0


@pytest.mark.parametrize("row", STALLS, ids=names(STALLS))
def test_stall(row: Row, tmp_path: Path) -> None:
    small = replace(row, command=f"{row.command} --quiet 0.2 --seconds 1")
    with make_cluster(THIS, GMQTTD, tmp_path / "nodes", Ports(), row) as cluster:
        result = run_generator(small, THIS, cluster, STALL_COUNT)
    assert result["lost"] == 0
    assert result["pings"] > 0
    assert value_of(result, "ping_ms.max") >= value_of(result, "ping_ms.p99") > 0
    for figure in row.figures:
        assert math.isfinite(value_of(result, figure.key))  # memory may have been given back meanwhile


def test_values_of_several_processes_are_added() -> None:
    result = json.loads('{"cpu[0]": 1.5, "cpu[1]": 2, "latency": {"p50": 7}, "cpus": 9}')
    assert value_of(result, "cpu") == 3.5
    assert value_of(result, "latency.p50") == 7
