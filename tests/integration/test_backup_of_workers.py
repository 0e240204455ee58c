"""A backup of a node of several processes is one of a moment."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tarfile
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from click.testing import CliRunner

import held_copies
from broker.codec import properties as props
from broker.codec.packets import ConnAck
from gmqttctl.cli import main
from mqtt_client import reached
from node_process import Node
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from mqtt_client import Clients, MqttClient
    from node_process import Nodes

BEFORE: Final = 3  # messages for each client that are acknowledged before a backup, and others until it is made
MEANWHILE: Final = 20
MOVES: Final = 3  # of each client from connection to connection, between the copies of two workers
EXPIRY: Final = {props.SESSION_EXPIRY_INTERVAL: 3600}


class HeldNode(Node):
    """Worker 1 begins its copy when a writer has opened the pipe and closed it."""

    @property
    def pipe(self) -> Path:
        return self.directory / f"{self.name}.copy"

    def program(self) -> list[str]:
        if not self.pipe.exists():
            os.mkfifo(self.pipe)
        return [sys.executable, held_copies.__file__, str(self.pipe)]

    async def holds(self) -> int:
        """The pipe, open for writing, when worker 1 is about to copy."""

        def opened() -> int | None:
            with contextlib.suppress(OSError):  # nobody reads it yet
                return os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK)
            return None

        return int(await eventually(opened, "worker 1 is told to copy its store"))


async def gmqttctl(*arguments: str) -> str:
    done = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.slow)])
async def test_a_backup_of_workers_is_a_node_of_any_number_again(
    nodes: Nodes, clients: Clients, tmp_path: Path, count: int
) -> None:
    """With sessions that change the worker between the copies of the two, and messages for them. What was acknowledged before
    comes once; what is sent meanwhile comes once or, where it was not there at the moment, not at all."""
    grpc = f"127.0.0.1:{nodes.free_port()}"
    api: dict[str, Any] = {"plugin_order": ["admin"], "api": {"grpc": [{"address": grpc}]}}
    node = nodes.make({"workers": 2, "data_dir": str(tmp_path / "data"), **api}, kind=HeldNode)
    assert isinstance(node, HeldNode)
    node.spawn()
    await eventually(lambda: node.log().count("event stream to a node") >= 2, "workers know each other")
    names = [f"c{number}" for number in range(8)]
    publisher = await clients.connect(node.port, "p")
    moving = True
    moves: Counter[str] = Counter()

    async def move(name: str) -> None:
        """From connection to connection, and away at last. It has got nothing."""
        while moving:
            client = await clients.connect(node.port, name, clean_start=False, properties=EXPIRY, acknowledges=False)
            moves[name] += 1
            await client.close(goodbye=False)

    async def publish(first: int, end: int) -> None:
        for number in range(first, end):
            await publisher.publish_all([(f"to/{name}", b"%d" % number, 2) for name in names])

    for name in names:
        await publisher.publish(f"kept/{name}", name.encode(), 1, retain=True)
        client = await clients.connect(node.port, name, clean_start=False, properties=EXPIRY)
        await client.subscribe(f"to/{name}", qos=2)
        await reached(publisher, f"to/{name}", client)
        await client.close(goodbye=False)
    movers = [asyncio.create_task(move(name)) for name in names]
    await publish(0, BEFORE)
    publishing = asyncio.create_task(publish(BEFORE, MEANWHILE))
    file = tmp_path / "node.tar.gz"
    copying = asyncio.create_task(gmqttctl("backup", str(file), "--server", grpc))
    pipe = await node.holds()
    wanted = {name: moves[name] + MOVES for name in names}
    await eventually(lambda: all(moves[name] >= wanted[name] for name in names), "the clients move")
    os.close(pipe)
    await copying
    assert_one_session_each(file, names)
    await publishing
    moving = False
    await asyncio.gather(*movers)
    await node.stop()
    other = nodes.make({"workers": count, "data_dir": str(tmp_path / "other"), **api})
    other.config_path.write_text(yaml.safe_dump(other.config))
    await gmqttctl("restore", str(file), "-c", str(other.config_path))
    other.spawn()
    await eventually(lambda: "serving" in other.log(), "the other node serves")
    if count == 1:
        await eventually(lambda: "its folder is removed" in other.log(), "worker 0 has all sessions")
    publisher = await clients.connect(other.port, "p2")
    for name in names:
        client = await clients.connect(other.port, name, clean_start=False, properties=EXPIRY)
        assert isinstance(client.connack, ConnAck)
        assert client.connack.session_present, name
        came = await until_reached(publisher, f"to/{name}", client)
        while not {b"%d" % number for number in range(BEFORE)} <= set(came):
            came.append((await client.message()).payload)
        assert len(came) == len(set(came)), (name, came)
        await client.subscribe(f"kept/{name}", qos=1)
        while (await client.message()).topic != f"kept/{name}".encode():
            pass
    await other.stop()


async def until_reached(publisher: MqttClient, topic: str, subscriber: MqttClient) -> list[bytes]:
    """What comes to it until a message of the publisher does."""
    came: list[bytes] = []
    for number in range(300):
        await publisher.publish(topic, b"probe %d" % number, 2)
        with contextlib.suppress(TimeoutError):
            while not came or not came[-1].startswith(b"probe"):
                came.append((await subscriber.message(0.1)).payload)
            return came
    raise AssertionError(f"{topic} does not reach the subscriber")


def assert_one_session_each(file: Path, names: list[str]) -> None:
    """A client is a session in one store of the backup, or leaves one for another."""
    found: Counter[str] = Counter()
    departing: set[str] = set()
    with tarfile.open(file) as archive:
        stores = [name for name in archive.getnames() if name.startswith("store")]
        assert sorted(stores) == ["store-1.jsonl", "store.jsonl"]
        for name in stores:
            lines = archive.extractfile(name)
            assert lines is not None
            records = [json.loads(line) for line in lines]
            leaving = {record["session"] for record in records if record.get("kind") == "departing"}
            for record in records:
                if record.get("kind") == "session" and record["number"] in leaving:
                    departing.add(record["client_id"])
                elif record.get("kind") == "session":
                    found[record["client_id"]] += 1
    assert {*found, *departing} >= set(names)
    assert max(found.values(), default=0) <= 1, found
