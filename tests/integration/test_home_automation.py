"""Programs of home automation at a federation, with the settings of docs/how-to/home-automation.md: Node-RED."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from repository import ROOT
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Node, Nodes

NODE: Final = shutil.which("node")
NODE_RED: Final = ROOT / "run/packages/node_modules/node-red/red.js"
CONNECTED: Final = "Connected to broker"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(NODE is None or not NODE_RED.exists(), reason="no Node-RED: scripts/setup --packages"),
]


def flows(port: int) -> list[dict[str, Any]]:
    """Reads temperatures of zigbee2mqtt, and publishes them in another unit."""
    status = {"Topic": "node-red/status", "Qos": "1", "Retain": "true"}
    words = {"birth": "online", "will": "offline"}
    broker = {
        **{"id": "b1", "type": "mqtt-broker", "broker": "127.0.0.1", "port": str(port), "clientid": "node-red"},
        **{"autoConnect": True, "usetls": False, "protocolVersion": "5", "keepalive": "60"},
        **{"cleansession": False, "sessionExpiry": "3600"},
        **{f"{word}{name}": value for word in words for name, value in status.items()},
        **{f"{word}Payload": text for word, text in words.items()},
    }
    function = (
        "msg.topic = 'house/' + msg.topic.split('/')[1];\n"
        "msg.payload = {fahrenheit: msg.payload.temperature * 1.8 + 32};\nreturn msg;"
    )
    tab = {"z": "t1", "broker": "b1"}
    return [
        {"id": "t1", "type": "tab", "label": "house"},
        broker,
        {
            **{"id": "i1", "type": "mqtt in", "topic": "zigbee2mqtt/+", "qos": "2", "datatype": "auto-detect"},
            **{"nl": False, "rap": True, "rh": 0, "inputs": 0, "wires": [["f1"]], **tab},
        },
        {"id": "f1", "type": "function", "z": "t1", "func": function, "outputs": 1, "wires": [["o1"]]},
        {"id": "o1", "type": "mqtt out", "topic": "", "qos": "1", "retain": "true", "wires": [], **tab},
    ]


class NodeRed:
    """A process of Node-RED, which connects to a node."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._port = port
        self._log = folder / "red.log"
        self._process: asyncio.subprocess.Process | None = None
        (folder / "flows.json").write_text(json.dumps(flows(port)))

    async def start(self, editor_port: int) -> None:
        assert NODE is not None
        before = self._text().count(CONNECTED)
        command: list[str | Path] = [NODE, NODE_RED, "--userDir", self._folder / "user", "--port", str(editor_port)]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, self._folder / "flows.json", stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL
            )
        await eventually(lambda: self._text().count(CONNECTED) > before, "Node-RED connects", 120.0)

    def _text(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    async def kill(self) -> None:
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            self._process = None


@pytest.fixture
async def made(nodes: Nodes, tmp_path: Path) -> list[Node]:
    found = [nodes.make_federated(overrides={"data_dir": str(tmp_path / "data0")})]
    found.append(nodes.make_federated(found[:1], {"data_dir": str(tmp_path / "data1")}))
    for node in found:
        await node.start()
    await nodes.all_alive(found)
    return found


@pytest.fixture
async def node_red(made: list[Node], tmp_path: Path) -> AsyncIterator[NodeRed]:
    folder = tmp_path / "node-red"
    folder.mkdir()
    red = NodeRed(folder, made[0].port)
    yield red
    await red.kill()


async def test_node_red_reads_and_publishes_over_nodes_and_keeps_its_session(
    made: list[Node], nodes: Nodes, clients: Clients, node_red: NodeRed
) -> None:
    """Node-RED is at the first node, the others are at the second one."""
    reader = await clients.connect(made[1].port, "reader")
    await reader.subscribe("house/#", "node-red/status", qos=1)
    await node_red.start(nodes.free_port())
    device = await clients.connect(made[1].port, "device")

    seen: set[tuple[bytes, bytes]] = set()

    def has(topic: str, payload: str) -> bool:
        while not reader.messages.empty():
            message = reader.messages.get_nowait()
            seen.add((message.topic, message.payload))
        return (topic.encode(), payload.encode()) in seen

    async def is_answered() -> bool:  # the other node hears of the subscription a moment later
        await device.publish("zigbee2mqtt/kitchen", b'{"temperature": 20}', qos=2)
        return has("house/kitchen", '{"fahrenheit":68}')

    await eventually(is_answered, "a temperature goes through Node-RED")
    assert has("node-red/status", "online")
    await node_red.kill()
    await eventually(lambda: has("node-red/status", "offline"), "the will of Node-RED is published")
    await device.publish("zigbee2mqtt/cellar", b'{"temperature": 10}', qos=2)
    await node_red.start(nodes.free_port())
    await eventually(lambda: has("house/cellar", '{"fahrenheit":50}'), "its session has what came meanwhile")
