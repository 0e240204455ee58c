"""`spark-submit` on a standalone cluster whose Pythons have not got this project: it comes with the application, as
docs/pipeline-jobs.md shows."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import Ports
from spark_cluster import SparkCluster, spark_cluster

from mqtt_client import Clients
from node_process import Nodes
from spark_environment import WORKERS, build_wheel, link_packages, make_python, pack
from spark_runs import JOB, PAYLOADS, SPARK_SUBMIT, api_address, clean_environment, node_with_messages, run_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("spark") / "cluster", Ports()) as running:
        yield running


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


async def submit(
    cluster: SparkCluster, folder: Path, python: Path, *options: str, **environment: str
) -> dict[str, Any]:
    """Run the job in this folder. `options` of spark-submit, the job and its arguments. Returns what it printed."""
    settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.executor.memory": "600m"}
    command: list[str | Path] = [SPARK_SUBMIT, "--master", cluster.master]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    places = {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_DIRS": str(folder / "spark"), **environment}
    return await run_job([*command, *options], folder, clean_environment(**places))


async def test_an_archive_of_all_packages(
    cluster: SparkCluster, wheel: Path, nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    """The driver finds them in its folder, executors in theirs, where Spark unpacks the archive."""
    packages = link_packages(tmp_path / "packages", *WORKERS)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(packages)
    pack(tmp_path / "packages.tar.gz", packages)
    node = await node_with_messages(nodes, clients, tmp_path)
    options = ("--archives", "packages.tar.gz#packages", "--conf", "spark.executorEnv.PYTHONPATH=packages")
    job = (str(JOB), api_address(node))
    python = make_python(tmp_path / "python")
    found = await submit(cluster, tmp_path, python, *options, *job, PYTHONPATH="packages")
    assert found["read"] == found["copied"] == PAYLOADS
    assert found["places"]
    assert all(re.search(r"/worker\d/app-.*/packages/pipeline/source.py$", place) for place in found["places"]), found
