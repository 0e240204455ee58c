"""Spark Connect: clients that have neither Java nor this project read the logs through a server that has them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fresh_environment import PIP, InstallFailed, run
from mqtt_client import Clients
from node_process import Nodes, free_port
from pipeline.session import PUSHDOWN
from repository import ROOT
from spark_environment import link_packages, make_python
from spark_runs import JOB, PAYLOADS, SPARK_SUBMIT, api_address, clean_environment, node_with_messages, run_job
from waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SERVER_SECONDS = 300.0
CLIENT = "pyspark-client>=4.2,<5"
REGISTERED = """
import json, sys
import pipeline
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
pipeline.register(spark)
rows = spark.read.format("mqtt").options(servers=sys.argv[1], pushDownPredicate="true").load().where("offset >= 15")
print(json.dumps([bytes(row.payload).decode() for row in rows.orderBy("offset").collect()]))
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a server; its Python has this project."""
    port = free_port()
    folder = tmp_path / "server"
    folder.mkdir()
    places = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(folder)}
    if not sys.flags.safe_path:  # an editable install does not list its packages, among which Spark looks for sources
        places["PYTHONPATH"] = str(ROOT)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        PUSHDOWN: "true",
    }
    command = [str(SPARK_SUBMIT), "--class", SERVER, "--master", "local[2,2]", "--driver-memory", "1g"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    log = folder / "server.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=clean_environment(**places),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        await eventually(lambda: listens(port, process), f"the server listens, see {log}", SERVER_SECONDS)
        yield f"sc://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def listens(port: int, process: asyncio.subprocess.Process) -> bool:
    assert process.returncode is None, process.returncode
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False


async def test_clients_of_connect(server: str, nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """One with pyspark-client alone, and one that registers the source for its session, and pushes a filter down."""
    node = await node_with_messages(nodes, clients, tmp_path)
    register = [sys.executable, "-c", REGISTERED, api_address(node)]
    own = clean_environment(SPARK_REMOTE=server, **({} if sys.flags.safe_path else {"PYTHONPATH": str(ROOT)}))
    done = await asyncio.to_thread(
        subprocess.run, register, cwd=tmp_path, env=own, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == PAYLOADS[15:]
    thin = tmp_path / "client"
    try:
        run([sys.executable, *PIP, "install", "--quiet", "--no-deps", "--target", thin, CLIENT], tmp_path, 300.0)
    except (InstallFailed, subprocess.TimeoutExpired) as error:
        pytest.skip(f"no package index here: {error}")
    python = make_python(tmp_path / "python", thin, link_packages(tmp_path / "packages", "pyspark", "connect"))
    found = await run_job([python, JOB, api_address(node)], tmp_path, clean_environment(SPARK_REMOTE=server))
    assert found["read"] == found["copied"] == PAYLOADS
