"""Programs of home automation at a federation: Home Assistant, Node-RED, zigbee2mqtt, Telegraf (home_programs.py).

Each is at the first of two nodes, and its devices and readers at the second one.
"""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from home_programs import (
    HOME_ASSISTANT,
    NODE_JS,
    NODE_RED,
    TELEGRAF,
    ZIGBEE2MQTT,
    HomeAssistant,
    Program,
    node_red,
    telegraf,
    zigbee2mqtt,
)
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients, MqttClient
    from node_process import Node, Nodes

RED_CONNECTED: Final = "Connected to broker"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def needs(*files: Path) -> pytest.MarkDecorator:
    missing = [file.name for file in files if NODE_JS is None or not file.exists()]
    return pytest.mark.skipif(bool(missing), reason=f"no {', '.join(missing)}: scripts/setup --packages")


@pytest.fixture
async def made(nodes: Nodes, tmp_path: Path) -> list[Node]:
    found = [nodes.make_federated(overrides={"data_dir": str(tmp_path / "data0")})]
    found.append(nodes.make_federated(found[:1], {"data_dir": str(tmp_path / "data1")}))
    for node in found:
        await node.start()
    await nodes.all_alive(found)
    return found


@pytest.fixture
async def running() -> AsyncIterator[Callable[[Program], Program]]:
    """Ends the programs that it was told."""
    told: list[Program] = []

    def ends(program: Program) -> Program:
        told.append(program)
        return program

    yield ends
    for program in told:
        await program.end()


class Heard:
    """What a reader has got: the last payload of each topic."""

    def __init__(self, reader: MqttClient) -> None:
        self._reader = reader
        self._last: dict[str, bytes] = {}

    def last(self, topic: str) -> str:
        while not self._reader.messages.empty():
            message = self._reader.messages.get_nowait()
            self._last[message.topic.decode()] = message.payload
        return self._last.get(topic, b"").decode()


@needs(NODE_RED)
async def test_node_red_reads_and_publishes_over_nodes_and_keeps_its_session(
    made: list[Node], nodes: Nodes, clients: Clients, running: Callable[[Program], Program], tmp_path: Path
) -> None:
    reader = await clients.connect(made[1].port, "reader")
    await reader.subscribe("house/#", "node-red/status", qos=1)
    heard = Heard(reader)
    red = running(node_red(tmp_path / "red", made[0].port, nodes.free_port()))
    await red.start(RED_CONNECTED)
    device = await clients.connect(made[1].port, "device")

    async def is_answered() -> bool:  # the other node hears of the subscription a moment later
        await device.publish("zigbee2mqtt/kitchen", b'{"temperature": 20}', qos=2)
        return heard.last("house/kitchen") == '{"fahrenheit":68}'

    await eventually(is_answered, "a temperature goes through Node-RED")
    assert heard.last("node-red/status") == "online"
    await red.end()
    await eventually(lambda: heard.last("node-red/status") == "offline", "the will of Node-RED is published")
    await device.publish("zigbee2mqtt/cellar", b'{"temperature": 10}', qos=2)
    await red.start(RED_CONNECTED)
    await eventually(lambda: heard.last("house/cellar") == '{"fahrenheit":50}', "its session has what came meanwhile")


@needs(ZIGBEE2MQTT)
async def test_zigbee2mqtt_tells_what_its_sensor_measures_and_switches_its_outlet(
    made: list[Node], clients: Clients, running: Callable[[Program], Program], tmp_path: Path
) -> None:
    """Without a radio: what stands in its place is below the program's own controller (zigbee_radio.cjs)."""
    reader = await clients.connect(made[1].port, "reader")
    await reader.subscribe("zigbee2mqtt/#", "homeassistant/#", qos=1)
    heard = Heard(reader)
    bridge = running(zigbee2mqtt(tmp_path / "z2m", made[0].port))
    await bridge.start("Zigbee2MQTT started!")

    def measured() -> bool:
        return bool(json.loads(heard.last("zigbee2mqtt/kitchen") or "{}").get("temperature") == 21.5)

    await eventually(measured, "the temperature comes to the other node")
    assert json.loads(heard.last("zigbee2mqtt/bridge/state")) == {"state": "online"}
    switch = await clients.connect(made[1].port, "switch")
    await switch.publish("zigbee2mqtt/outlet/set", b'{"state": "ON"}', qos=1)
    await eventually(lambda: "radio: genOnOff on to 1002" in bridge.text(), "the outlet is switched")
    await eventually(lambda: '"state":"ON"' in heard.last("zigbee2mqtt/outlet"), "it is said to be on")
    discovery = "homeassistant/sensor/0x0000000000000201/temperature/config"
    await eventually(lambda: heard.last(discovery) != "", "Home Assistant is told of the sensor")
    late = await clients.connect(made[1].port, "late")
    await late.subscribe("homeassistant/#", qos=1)
    kept = Heard(late)
    await eventually(
        lambda: kept.last(discovery) == heard.last(discovery), "what it was told is retained at both nodes"
    )
    await bridge.end(signal.SIGTERM)
    await eventually(lambda: heard.last("zigbee2mqtt/bridge/state") == '{"state":"offline"}', "it says that it ends")


@needs(TELEGRAF)
async def test_telegraf_gets_what_came_while_it_was_away(
    made: list[Node], clients: Clients, running: Callable[[Program], Program], tmp_path: Path
) -> None:
    reader = running(telegraf(tmp_path / "telegraf", made[0].port))
    device = await clients.connect(made[1].port, "device")

    def written(topic: str, temperature: int) -> bool:
        text = (reader.folder / "out").read_text() if (reader.folder / "out").exists() else ""
        return any(f"topic={topic} temperature={temperature} " in line for line in text.splitlines())

    async def is_written() -> bool:  # the other node hears of the subscription a moment later
        await device.publish("zigbee2mqtt/kitchen", b'{"temperature": 20}', qos=1)
        return written("zigbee2mqtt/kitchen", 20)

    await reader.start("[inputs.mqtt_consumer] Connected")
    await eventually(is_written, "Telegraf writes a temperature")
    await reader.end()
    await device.publish("zigbee2mqtt/cellar", b'{"temperature": 10}', qos=1)
    await reader.start("[inputs.mqtt_consumer] Connected")
    await eventually(lambda: written("zigbee2mqtt/cellar", 10), "its session has what came meanwhile")


@needs(HOME_ASSISTANT)
async def test_home_assistant_finds_devices_by_their_retained_descriptions(
    made: list[Node], nodes: Nodes, clients: Clients, running: Callable[[Program], Program], tmp_path: Path
) -> None:
    device = await clients.connect(made[1].port, "device")
    await device.subscribe("house/lamp/set", "homeassistant/status", qos=1)
    heard = Heard(device)
    sensor = {"unique_id": "t", "state_topic": "house/temperature", "unit_of_measurement": "°C"}
    lamp = {"unique_id": "l", "state_topic": "house/lamp", "command_topic": "house/lamp/set"}
    for kind, found in (("sensor", sensor), ("switch", lamp)):
        described = {"name": f"Gmqttd {kind}", "object_id": f"gmqttd_{kind}", **found}
        described["default_entity_id"] = f"{kind}.gmqttd_{kind}"
        await device.publish(
            f"homeassistant/{kind}/{found['unique_id']}/config", json.dumps(described).encode(), qos=1, retain=True
        )
    home = HomeAssistant(tmp_path / "home", made[0].port, nodes.free_port())
    running(home.program)
    await home.start()
    await home.set_up()

    async def is_known() -> bool:
        await device.publish("house/temperature", b"21.5", qos=1)
        await device.publish("house/lamp", b"OFF", qos=1)
        states = await home.states()
        return (states.get("sensor.gmqttd_sensor"), states.get("switch.gmqttd_switch")) == ("21.5", "off")

    await eventually(is_known, "the sensor and the lamp are found, with their states", 60.0)
    await eventually(lambda: heard.last("homeassistant/status") == "online", "its birth message comes")
    await home.call("/api/services/switch/turn_on", {"entity_id": "switch.gmqttd_switch"})
    await eventually(lambda: heard.last("house/lamp/set") == "ON", "the lamp is switched")
    await home.program.end()
    await eventually(lambda: heard.last("homeassistant/status") == "offline", "its will comes")
    await home.start()
    await eventually(is_known, "it has its devices again", 60.0)
