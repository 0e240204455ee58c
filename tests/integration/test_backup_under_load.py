"""`gmqttctl backup` of a node with 100,000 sessions under load: how long PUBACKs wait, and what a restored node has."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.codec import properties as props
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Node, Nodes

SESSIONS: Final = 100_000
RETAINED: Final = 1_000
SECONDS: Final = 300.0
FIRST: Final = 1 << 24  # number of a record of the core

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def stored_sessions(count: int) -> str:
    """An export of a store with sessions of one subscription each."""
    lines: list[dict[str, Any]] = [{"gmqttd_store": 2}]
    for number in range(count):
        session = FIRST + 2 * number
        lines += [
            {
                **{"number": session, "kind": "session", "client_id": f"sleeper {number:06}", "username": ""},
                **{"access": None, "version": 5, "keep_alive": 60, "remote_addr": "192.0.2.1:1", "will": None},
                **{"local_addr": "192.0.2.2:1883", "created_at": time.time(), "connected_at": time.time()},
                **{"expiry_interval": 0xFFFFFFFF, "disconnected_at": time.time(), "will_due_at": 0.0},
            },
            {
                **{
                    "number": session + 1,
                    "kind": "subscription",
                    "session": session,
                    "topic_filter": f"s/{number % 1000}/#",
                },
                **{"qos": 1, "no_local": False, "retain_as_published": False, "retain_handling": 0, "identifier": 0},
            },
        ]
    return "\n".join(map(json.dumps, lines)) + "\n"


def make_node(nodes: Nodes, folder: Path) -> Node:
    folder.mkdir()
    node = nodes.make(
        {
            "plugin_order": ["admin", "auth", "links"],
            "data_dir": str(folder / "state"),
            "api": {
                "grpc": [{"address": f"127.0.0.1:{nodes.free_port()}"}],
                "http": [{"address": f"127.0.0.1:{nodes.free_port()}"}],
            },
            "plugins": {
                "auth": {"hash": "plain", "password_file": str(folder / "accounts.yml"), "allow_anonymous": True}
            },
        }
    )
    node.config_path = folder / "gmqttd.yml"
    return node


async def program(*arguments: str) -> str:
    """Run a command to its end, outside of the loop: its output."""

    def run() -> str:
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=SECONDS, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return await asyncio.to_thread(run)


async def ctl(node: Node, *arguments: str) -> str:
    server = node.config["api"]["grpc"][0]["address"]
    return await program("-m", "gmqttctl.cli", *arguments, "--server", server)


class Load:
    """A publisher whose messages wait for the disk: each is acknowledged before the next one. `longest` is in seconds."""

    def __init__(self, publisher: Any) -> None:
        self.longest = 0.0
        self.count = 0
        self._publisher = publisher
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        for number in itertools.count():
            began = time.monotonic()
            await self._publisher.publish("load", b"%d" % number, qos=1)
            self.longest = max(self.longest, time.monotonic() - began)
            self.count += 1

    def take(self) -> float:
        longest, self.longest = self.longest, 0.0
        return longest

    def stop(self) -> None:
        self._task.cancel()


async def test_acknowledgements_go_on_during_a_backup_which_is_a_node_again(
    nodes: Nodes, clients: Clients, tmp_path: Path, record_property: Any, capsys: Any
) -> None:
    node = make_node(nodes, tmp_path / "first")
    (tmp_path / "first/accounts.yml").write_text("- {username: alice, password: secret}\n")
    node.config["mqtt"] = {"max_queued_messages": 1_000_000}
    await node.start()
    await node.stop()
    lines = tmp_path / "lines.json"
    lines.write_text(stored_sessions(SESSIONS))
    await program("-m", "broker", "store", "import", "-c", str(node.config_path), str(lines), "--replace")
    await node.start()
    await ctl(node, "policies", "set", "sensors", "sensors/#", '{"federation-upstream-set": "all"}')
    away = await clients.connect(node.port, "away", clean_start=False, properties={props.SESSION_EXPIRY_INTERVAL: 7200})
    await away.subscribe("load", qos=1)
    await away.close()
    publisher = await clients.connect(node.port, "publisher")
    for number in range(RETAINED):
        await publisher.publish(f"kept/{number}", b"x", qos=1, retain=True)
    load = Load(publisher)
    await eventually(lambda: load.count > 1000, "there is load")
    before = load.take()
    file = tmp_path / "backup.tar.gz"
    acknowledged, began = load.count, time.monotonic()
    await ctl(node, "backup", str(file))
    passed, during = time.monotonic() - began, load.take()
    load.stop()
    await node.stop()
    other = make_node(nodes, tmp_path / "second")
    other.config["mqtt"] = node.config["mqtt"]
    other.config_path.write_text(json.dumps(other.config))
    began = time.monotonic()
    await program("-m", "gmqttctl.cli", "restore", str(file), "-c", str(other.config_path))
    restored = time.monotonic() - began
    await other.start()
    await ctl(other, "definitions", "import", f"{file}.definitions.json")
    _, told = await other.rest("GET", "/v1/node")
    assert told["retained_messages"] == RETAINED
    assert told["sessions"] == SESSIONS + 1
    assert told["subscriptions"] == SESSIONS + 1
    _, session = await other.rest("GET", "/v1/clients/away")
    assert int(session["client"]["queue_len"]) >= acknowledged
    _, policies = await other.rest("GET", "/v1/policies")
    assert [policy["name"] for policy in policies["policies"]] == ["sensors"]
    assert (tmp_path / "second/accounts.yml").read_text() == (tmp_path / "first/accounts.yml").read_text()
    record_property("longest_wait_ms", round(during * 1000))
    size = file.stat().st_size >> 20
    with capsys.disabled():
        print(
            f"\nbackup of {SESSIONS} sessions, {size} MiB, in {passed:.1f} s, restored in {restored:.1f} s: "
            f"PUBACK after {during * 1000:.0f} ms at most, {before * 1000:.0f} ms before"
        )
