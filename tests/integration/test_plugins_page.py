"""The plugin on docs/plugins.md, installed as its page says, in a running node."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker.codec.packets import ConnAck, Connect, PubAck, Publish, Will
from mqtt_client import Clients, MqttClient
from repository import ROOT
from waiting import eventually

if TYPE_CHECKING:
    from node_process import Nodes

LINES_MAX = 40
PAGE = (ROOT / "docs/plugins.md").read_text()
# As the Go broker names them.
GO_HOOKS = (
    "OnAccept OnStop OnSubscribe OnSubscribed OnUnsubscribe OnUnsubscribed OnMsgArrived OnBasicAuth OnEnhancedAuth OnReAuth "
    "OnConnected OnSessionCreated OnSessionResumed OnSessionTerminated OnDelivered OnClosed OnMsgDropped OnWillPublish "
    "OnWillPublished"
)


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found.group(1)


def install(folder: Path) -> None:
    """What pip makes of the two files of the page."""
    project = tomllib.loads(block("toml"))["project"]
    name, version = project["name"], project["version"]
    (folder / f"{name}.py").write_text(block("python"))
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")


def test_the_plugin_is_short() -> None:
    lines = [line for line in block("python").splitlines() if line.strip()]
    assert len(lines) <= LINES_MAX
    ast.parse(block("python"))


def test_the_page_has_each_hook_of_the_go_broker() -> None:
    assert re.findall(r"^\| (On\w+) \|", PAGE, re.MULTILINE) == GO_HOOKS.split()


def test_the_page_names_existing_classes_and_methods() -> None:
    """Every `Class.method` of the page and every call of its first table."""
    from broker import hooks, plugins
    from broker.hook_points import HookPoints

    named = re.findall(r"`(Plugin|Tap|ConnectDecider|ClientObserver|DeliveryObserver)\.(\w+)", PAGE)
    assert len(named) > 10
    for class_name, method in named:
        assert callable(getattr(getattr(hooks, class_name, None) or getattr(plugins, class_name), method))
    calls = re.findall(r"`((?:add|wrap)_\w+)", PAGE)
    assert len(set(calls)) == 10
    for call in calls:
        assert callable(getattr(HookPoints, call))


async def connected(port: int, client_id: str, username: str, will: Will | None = None) -> MqttClient:
    client = await MqttClient.open(port)
    client.send(Connect(client_id, 5, username=username, will=will))
    client.connack = await client.answer(ConnAck)
    assert client.connack.reason_code == 0
    return client


async def test_the_plugin_works_in_a_node(
    nodes: Nodes, clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    config: dict[str, Any] = yaml.safe_load(block("yaml"))
    node = nodes.make(config)
    node.is_forked = False
    await node.start()
    payload_max = config["plugins"]["quotas"]["payload_max"]
    reader = await clients.connect(node.port, "reader")
    assert await reader.subscribe("#") == [0]
    codes = {}
    for username in ("operator", "other"):
        client = await connected(node.port, username, username, Will(b"will", bytes(payload_max + 1)))
        for number, (topic, size) in enumerate([("alarm/1", 1), ("a", 1), ("a", payload_max + 1)], 1):
            client.send(Publish(topic.encode(), bytes(size), 1, packet_id=number))
            codes[username, topic, size] = (await client.answer(PubAck)).reason_code
        client.abort()
    assert codes == {
        ("operator", "alarm/1", 1): 0,
        ("operator", "a", 1): 0,
        ("operator", "a", payload_max + 1): 0x87,
        ("other", "alarm/1", 1): 0x87,
        ("other", "a", 1): 0,
        ("other", "a", payload_max + 1): 0x87,
    }
    topics = [message.topic for message in await reader.take(3)]
    assert topics == [b"alarm/1", b"a", b"a"]
    await reader.close()
    await node.stop()
    await eventually(lambda: "messages delivered" in node.log(), "the plugin tells what it has counted")
    assert "reader: 3" in node.log()
    assert "refused_by_plugin" in node.log(), "the wills"


async def test_a_bad_key_of_the_plugin_is_named(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    node = nodes.make({"plugin_order": ["quotas"], "plugins": {"quotas": {"payload_max": 0}}})
    node.config_path.write_text(yaml.safe_dump(node.config))
    done = node.command("check")
    assert done.returncode != 0
    assert "plugins.quotas.payload_max" in done.stdout + done.stderr
