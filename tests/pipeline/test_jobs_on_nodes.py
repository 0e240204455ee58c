"""Jobs with real nodes: an alert reaches a subscriber, the matrix of a federation, a replay and its end as a program."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from cluster import Ports
from spark_cluster import LOG as CLUSTER_LOG
from spark_cluster import SPARK_CLASS, spark_cluster

from broker.codec.packets import Publish
from event_log_node import SECOND, TIME, event_log_nodes
from mqtt_client import Clients, MqttClient
from node_process import Node, Nodes
from pipeline.registry import Context, find
from pipeline.runner import make_folder, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ARRIVES_SECONDS = 90.0
ENDS_SECONDS = 150.0
SUBMITTED_SECONDS = 300.0  # on a busy machine; a free one needs a tenth


def api(node: Node) -> str:
    return str(node.config["api"]["grpc"][0]["address"]).removeprefix("tcp://")


async def federation(nodes: Nodes, tmp_path: Path) -> list[Node]:
    made: list[Node] = []
    for number in range(2):
        log = {"event_log": {"dir": str(tmp_path / f"log{number}")}}
        settings = {"plugins": log, "plugin_order": ["admin", "federation", "event_log"]}
        made.append(nodes.make_federated(made[:1], settings))
        await made[-1].start()
    await nodes.all_alive(made)
    return made


async def take(client: MqttClient, seconds: float = ARRIVES_SECONDS) -> Publish:
    return await client.message(seconds)


async def gmqttctl(*arguments: str, folder: Path) -> asyncio.subprocess.Process:
    program = [sys.executable, "-c", "from gmqttctl.cli import main; main()"]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*program, *arguments, cwd=folder, stdout=pipe, stderr=pipe)


async def output_of(*arguments: str, folder: Path) -> str:
    process = await gmqttctl(*arguments, folder=folder)
    output, errors = await asyncio.wait_for(process.communicate(), ENDS_SECONDS)
    assert process.returncode == 0, errors.decode()
    return output.decode()


async def test_an_alert_reaches_a_subscriber_once(
    spark: SparkSession, nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    a, b = await federation(nodes, tmp_path)
    watcher = await clients.connect(b.port, "watcher")
    await watcher.subscribe("alerts/#", qos=1)
    pipeline = find("alerts")
    own, source = pipeline.read_options({"servers": api(a), "silent_after": "2s", "startingOffsets": "earliest"})
    assert pipeline.queries is not None
    make_folder(tmp_path / "data")
    context = Context(lambda: spark, tmp_path / "data", source)
    device = await clients.connect(a.port, "thermometer")
    await device.publish("house/t", b"20", qos=1)
    (query,) = [start(context, each, every=0.5) for each in pipeline.queries(context, own)]
    try:
        message = await take(watcher)
        began = json.loads(message.payload)
        assert (message.topic, began["state"], began["device"], began["episode"]) == (
            b"alerts/silent/thermometer",
            "began",
            "thermometer",
            1,
        )
        await device.publish("house/t", b"21", qos=1)
        ended = json.loads((await take(watcher)).payload)
        assert (ended["state"], ended["episode"]) == ("ended", 1)
        again = json.loads((await take(watcher)).payload)
        assert (again["state"], again["episode"]) == ("began", 2)
    finally:
        await asyncio.to_thread(query.stop)


async def test_the_matrix_of_a_federation(spark: SparkSession, nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    a, b = await federation(nodes, tmp_path)
    screen = await clients.connect(b.port, "screen")
    await screen.subscribe("house/+", qos=1)
    device = await clients.connect(a.port, "thermometer")
    for _ in range(10):
        await device.publish("house/t", b"x" * 100, qos=1)
    pipeline = find("matrix")
    own, source = pipeline.read_options({"servers": api(b), "levels": "1"})
    assert pipeline.work is not None
    make_folder(tmp_path / "data")
    lines = await asyncio.to_thread(pipeline.work, Context(lambda: spark, tmp_path / "data", source), own)
    assert lines[0].splitlines()[2].split() == [a.name, b.name, "10", "1,000"]
    assert lines[1].splitlines()[2].split() == ["house/+", b.name, "10", "1,000"]
    assert (tmp_path / "data" / "matrix" / "matrix.svg").exists()
    clients_table = (tmp_path / "data" / "matrix" / "clients.csv").read_text().splitlines()
    assert sorted(line.split(",")[0] for line in clients_table[1:]) == ["screen", "thermometer"]


@pytest.mark.slow
async def test_a_replay_that_was_stopped_goes_on(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    a, b = await federation(nodes, tmp_path)
    receiver = await clients.connect(b.port, "receiver")
    await receiver.subscribe("replay/#", qos=1)
    device = await clients.connect(a.port, "device")
    for number in range(20):
        await device.publish("house/t", b"%d" % number, qos=1)
    command = ("replay", "--servers", api(a), "--from", "2020-01-01T00:00:00Z", "--to", "2100-01-01T00:00:00Z")
    mapped = ("--topic-map", "house/#=replay/#", "--node", b.name, "--speed", "0.001")
    process = await gmqttctl(*command, *mapped, folder=tmp_path)
    first = await take(receiver)
    assert (first.topic, first.payload) == (b"replay/t", b"0")
    process.send_signal(signal.SIGTERM)
    output, errors = await asyncio.wait_for(process.communicate(), ENDS_SECONDS)
    assert b"stopped; the same command goes on" in output, errors.decode()
    said = await output_of(*command, *mapped[:-1], "0", folder=tmp_path)
    assert "replay replay: 20 messages published" in said
    payloads = [first.payload, *(each.payload for each in await receiver.take(19))]
    assert payloads == [b"%d" % number for number in range(20)]


# Both jobs in one driver: the master is that of spark-submit.
PROGRAM = """
import sys, threading
from pathlib import Path
from pipeline.registry import Context, find
from pipeline.runner import Run, make_folder, master_of, run_queries
from pipeline.session import spark_session

servers, folder = sys.argv[1], Path(sys.argv[2])
spark = spark_session("test", master_of(Run("", folder, {}, 0.0)))
make_folder(folder)
for name in ("archive", "rollup"):
    pipeline = find(name)
    own, source = pipeline.read_options({"servers": servers})
    run_queries(pipeline, Context(lambda: spark, folder, source), own, 0.0, threading.Event(), print)
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_archive_and_rollup_on_a_cluster(tmp_path: Path) -> None:
    """A master and two workers; what reaches them is the environment of this Python and the folder."""
    (tmp_path / "program.py").write_text(PROGRAM)
    data = tmp_path / "data"
    with spark_cluster(tmp_path / "cluster", Ports()) as cluster, event_log_nodes("n1", "n2") as (a, b):
        for node in (a, b):
            for number in range(20):
                node.append(*((f"house/{room}", b"1") for room in "xyz"), time_ns=TIME + number * 10 * SECOND)
        said = await submit(cluster.master, "program.py", a.address, str(data), folder=tmp_path)
    assert said.count(": 120 messages in ") == 2
    log = (tmp_path / "cluster" / CLUSTER_LOG).read_text()
    assert len(set(re.findall(r"Launching executor \S+ on worker (\S+)", log))) == 2
    offsets = [each for path in data.glob("archive/date=*/node=*/*.parquet") for each in column(path, "offset")]
    assert sorted(offsets) == sorted([*range(60), *range(60)])
    # The window of the newest messages is open.
    windows = [
        each for path in data.glob("rollup-2-1m/arrival=in-time/date=*/*.parquet") for each in column(path, "messages")
    ]
    assert sorted(windows) == sorted([8, 8, 8, *[12] * 6])


async def submit(master: str, *arguments: str, folder: Path) -> str:
    executor = ("--conf", f"spark.executor.extraJavaOptions={os.environ['SPARK_SUBMIT_OPTS']}")
    settings = (*executor, "--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        SPARK_CLASS.with_name("spark-submit"),
        "--master",
        master,
        *settings,
        *arguments,
        cwd=folder,
        stdout=pipe,
        stderr=pipe,
    )
    output, errors = await asyncio.wait_for(process.communicate(), SUBMITTED_SECONDS)
    assert process.returncode == 0, errors.decode()[-4000:]
    return output.decode()


def column(path: Path, name: str) -> list[int]:
    found: list[int] = pq.ParquetFile(path).read([name])[name].to_pylist()
    return found
