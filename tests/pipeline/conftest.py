"""One Spark session for all tests of this folder. Workers find the packages of tests/support by their path."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from client_library import kafka_jars
from mqtt_client import Clients
from node_process import Nodes, nodes_in
from pipeline.session import prepare_environment, spark_session
from waiting import DEADLINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One retry of a task; small enough for two cores.
MASTER = "local[2,2]"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session. Log lines of Spark below ERROR are left out."""
    folder = tmp_path_factory.mktemp("spark")
    prepare_environment()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pyspark's own start
        session = spark_session(
            "tests",
            MASTER,
            {
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.local.dir": str(folder),
                "spark.driver.memory": "1g",
                "spark.log.level": "ERROR",
                "spark.jars": ",".join(kafka_jars()),
            },
        )
    yield session
    java: Any = session.sparkContext._gateway
    session.stop()
    # The lane tells the CPU time of Java, too, because it has been waited for.
    java.shutdown()
    java.proc.stdin.close()
    java.proc.wait(DEADLINE)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    """Nodes as processes."""
    async with nodes_in(tmp_path) as made:
        yield made


@pytest.fixture
async def clients(nodes: Nodes) -> AsyncIterator[Clients]:
    opened = Clients()
    yield opened
    await opened.close()


@pytest.fixture
def asks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens to a node is seen by the next call."""
    monkeypatch.setattr("pipeline.cluster.ASK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("pipeline.cluster.AWAY_AGAIN_SECONDS", 0.0)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
