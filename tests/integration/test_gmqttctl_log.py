"""`gmqttctl log` as a program, with a federation of real nodes of which one keeps no log."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from mqtt_client import Clients
from node_process import Node, Nodes
from waiting import DEADLINE, eventually


async def gmqttctl(*arguments: str, folder: Path) -> asyncio.subprocess.Process:
    program = [sys.executable, "-c", "from gmqttctl.cli import main; main()"]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*program, *arguments, cwd=folder, stdout=pipe, stderr=pipe)


async def output_of(*arguments: str, folder: Path) -> str:
    process = await gmqttctl("log", *arguments, folder=folder)
    output, errors = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode == 0, errors.decode()
    return output.decode()


@pytest.fixture
async def federation(nodes: Nodes) -> list[Node]:
    """Two nodes with a log and one without."""
    made: list[Node] = []
    for folder in ("first", "second", ""):
        settings: dict[str, Any] = {}
        if folder:
            settings = {"plugins": {"event_log": {"dir": folder}}, "plugin_order": ["event_log", "federation", "admin"]}
        made.append(nodes.make_federated(made[:1], settings))
        made[-1].spawn()
    for node in made:
        await eventually(node.serves, f"{node.name} serves clients")
    await nodes.all_alive(made)
    return made


def api_of(node: Node) -> str:
    return str(node.config["api"]["grpc"][0]["address"]).removeprefix("tcp://")


async def test_the_logs_of_a_federation_are_shown_followed_and_exported(
    federation: list[Node], clients: Clients, tmp_path: Path
) -> None:
    first, second, without = federation
    for node, count in ((first, 3), (second, 2)):
        client = await clients.connect(node.port, f"client of {node.name}")
        for number in range(count):
            await client.publish(f"rooms/{number}", f"{node.name} {number}".encode(), 1)

    described = json.loads(await output_of("describe", "--servers", api_of(second), "--json", folder=tmp_path))
    assert [(node["node"], node["records"], node["address"]) for node in described["nodes"]] == [
        (first.name, 3, api_of(first)),
        (second.name, 2, api_of(second)),
    ]
    assert described["without_log"] == [without.name]
    text = await output_of("describe", "--servers", api_of(first), folder=tmp_path)
    assert f"{without.name}  -" in text

    following = await gmqttctl(
        "log", "tail", "--servers", api_of(first), "--topics", "rooms/+", "--json", folder=tmp_path
    )
    assert following.stdout is not None
    async with asyncio.timeout(DEADLINE):
        shown = [json.loads(await following.stdout.readline()) for _ in range(5)]
        assert {row["payload"] for row in shown} == {
            *(f"{first.name} {number}" for number in range(3)),
            *(f"{second.name} {number}" for number in range(2)),
        }
        client = await clients.connect(second.port)
        await client.publish("other", b"not shown", 1)
        await client.publish("rooms/9", b"\xff", 1, retain=True)
        last = json.loads(await following.stdout.readline())
    assert (last["node"], last["topic"], last["payload_base64"], last["retain"]) == (
        second.name,
        "rooms/9",
        "/w==",
        True,
    )
    following.send_signal(signal.SIGINT)
    _, errors = await asyncio.wait_for(following.communicate(), DEADLINE)
    assert (following.returncode, errors) == (0, b"")

    options = ("--servers", api_of(first), "--allow-partial")
    for name in ("all.jsonl", "all.parquet"):
        await output_of("export", *options, name, folder=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [(row["node"], row["offset"], row["topic"]) for row in rows] == [
        *((first.name, number, f"rooms/{number}") for number in range(3)),
        *((second.name, number, f"rooms/{number}") for number in range(2)),
        (second.name, 2, "other"),
        (second.name, 3, "rooms/9"),
    ]
    assert {row["client_id"] for row in rows[:3]} == {f"client of {first.name}"}
    assert (tmp_path / "all.parquet").stat().st_size > 0
