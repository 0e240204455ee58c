"""A node with messages, and a user's program that reads them with Spark in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyspark

from mqtt_client import Clients
from node_process import Node, Nodes

SPARK_SUBMIT: Final = Path(pyspark.__file__).parent / "bin" / "spark-submit"
JOB: Final = Path(__file__).with_name("submitted_job.py")
PROGRAM_SECONDS: Final = 600.0  # a JVM starts within minutes on a busy machine
PAYLOADS: Final = sorted(str(number) for number in range(20))


def api_address(node: Node) -> str:
    return str(node.config["api"]["grpc"][0]["address"]).removeprefix("tcp://")


def clean_environment(**more: str) -> dict[str, str]:
    """Without the settings of this process for Python and Spark."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    return kept | {"SPARK_LOCAL_IP": "127.0.0.1"} | more


async def node_with_messages(nodes: Nodes, clients: Clients, folder: Path) -> Node:
    log = {"event_log": {"dir": str(folder / "log")}}
    node = nodes.make_federated([], {"plugins": log, "plugin_order": ["admin", "federation", "event_log"]})
    await node.start()
    publisher = await clients.connect(node.port, "p")
    for payload in PAYLOADS:
        await publisher.publish("sensors/1", payload.encode(), qos=1)
    return node


async def run_program(command: Sequence[str | Path], folder: Path, environment: dict[str, str]) -> list[str]:
    """Run a command to its end. Returns the lines that it printed, without those of level INFO."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,  # of the Python that spark-submit starts, it comes on standard output in any case
    )
    try:
        async with asyncio.timeout(PROGRAM_SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    told = [line for line in output.decode().splitlines() if " INFO " not in line]
    assert process.returncode == 0, "\n".join(told)[-8000:]
    return told


async def run_job(command: Sequence[str | Path], folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Run a command that runs submitted_job.py. Returns what that printed."""
    (printed,) = (line for line in await run_program(command, folder, environment) if line.startswith("{"))
    found: dict[str, Any] = json.loads(printed)
    return found
