"""Operation of a node: reloads, drops in the log, and the log of API calls."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Node, Nodes

TAKEN: Final = "configuration reloaded"


def events(node: Node, name: str) -> list[dict[str, Any]]:
    """The lines of a JSON log with this event."""
    found = [json.loads(line) for line in node.log().splitlines()]
    return [event for event in found if event["event"] == name]


async def reload(node: Node, overrides: dict[str, Any]) -> list[str]:
    """Change the file of a node and reload it. Returns the keys that need a restart."""
    config = {**node.config, **overrides}
    node.config_path.write_text(yaml.safe_dump(config))
    before = len(events(node, TAKEN))
    lines = len(node.log().splitlines())
    done = await asyncio.to_thread(node.command, "reload")
    assert done.returncode == 0, done.stderr
    assert str(node.pid) in done.stdout
    await eventually(lambda: len(events(node, TAKEN)) > before, "the reload")
    said = [json.loads(line) for line in node.log().splitlines()[lines:]]
    return [event["key"] for event in said if event["event"] == "this change takes effect after a restart"]


@pytest.mark.one_process("counts the lines that one process logs")
async def test_reload(nodes: Nodes, clients: Clients) -> None:
    node = nodes.make({"log": {"level": "info", "format": "json"}})
    node.config["pid_file"] = str(node.directory / "node.pid")
    node.is_forked = False
    await node.start()
    first = await clients.connect(node.port, "first", version=5)
    changed = {
        "mqtt": {"max_connections": 1},
        "listeners": [*node.config["listeners"], {"address": f"127.0.0.1:{nodes.free_port()}"}],
        "plugin_order": ["admin"],
    }
    for _ in range(2):  # each reload names the keys that need a restart
        assert await reload(node, changed) == ["listeners", "plugin_order"]
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    assert await reader.read(1) == b""  # the new limit is effective at once
    writer.close()
    assert await reload(node, {}) == []  # as it runs: nothing to restart for
    await (await clients.connect(node.port, "second")).ping()
    await first.ping()  # connections stay

    node.config_path.write_text("mqtt: {max_connections: many}\n")
    node.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    await node.logged("configuration not reloaded")
    await first.ping()


@pytest.mark.one_process("counts the lines that one process logs")
async def test_drops_and_refusals_are_logged(nodes: Nodes, clients: Clients) -> None:
    node = await nodes.start(
        {"log": {"level": "info", "format": "json"}, "mqtt": {"max_queued_messages": 100, "max_retained_messages": 1}}
    )
    away = await clients.connect(node.port, "away", version=4, clean_start=False)
    await away.subscribe("t", qos=1)
    await away.close()
    publisher = await clients.connect(node.port, "publisher")
    for _ in range(130):
        await publisher.publish("t", b"x", qos=1)
    for topic in ("first", "second"):
        await publisher.publish(topic, b"x", qos=1, retain=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read(100) == b""
    writer.close()
    await node.stop()  # the stop logs the drops that no line has reported yet
    (line,) = events(node, "messages dropped")
    assert line["level"] == "warn"
    assert line["counts"] == {"queue_full": 30, "retained_full": 1}
    assert (line["clients"], line["topics"]) == ({"away": 30}, {"second": 1})
    (line,) = events(node, "input refused")
    assert line["counts"]["protocol_errors"] == 1
    (line,) = events(node, "refused")
    assert line["addr"].startswith("127.0.0.1:")
    assert line["reason"].startswith("first packet is")


async def test_a_client_that_the_api_ends_is_logged_once(nodes: Nodes, clients: Clients) -> None:
    node = await nodes.make_federated(overrides={"log": {"format": "json"}}).start()
    await clients.connect(node.port, "a client")
    for _ in range(2):  # the second call finds no client
        assert await node.rest("DELETE", "/v1/clients/a%20client?clean_session=true") == (200, {})
    assert [event["level"] for event in events(node, "client ended by the API")] == ["info"]


@pytest.mark.one_process("nodes that stop while workers still meet each other log what does not answer")
async def test_a_graceful_stop_is_no_reason_for_a_warning(nodes: Nodes) -> None:
    first, second = await nodes.federation(2, {"log": {"format": "json"}})
    for node in (first, second):
        await eventually(lambda node=node: bool(events(node, "event stream to a node")), "the streams")
    await second.stop()
    await eventually(lambda: bool(events(first, "member left")), "the leave is heard")
    await first.stop()
    for node in (first, second):
        said = [json.loads(line) for line in node.log().splitlines()]
        # Tests of the interpreted form get its warning at the start.
        levels = {event["level"] for event in said if not event["event"].startswith("the interpreted form")}
        assert levels == {"info"}, node.log()
        assert said[-1]["event"] == "stopped"


async def test_a_reload_turns_on_the_log_of_clients(nodes: Nodes, clients: Clients) -> None:
    """A reload is enough: clients that connect after it are logged."""
    node = nodes.make({"log": {"level": "info", "format": "json", "clients": False}})
    node.config["pid_file"] = str(node.directory / "node.pid")
    node.is_forked = False
    await node.start()
    silent = await clients.connect(node.port, "silent")
    assert await reload(node, {"log": {"level": "debug", "format": "json", "dump_packet": True}}) == []
    seen = await clients.connect(node.port, "seen", version=4, keep_alive=60)
    await seen.publish("topic/of/it", b"x", qos=1)
    await silent.publish("topic/of/another", b"x", qos=1)
    seen.send_bytes(b"\x00\x00")
    await seen.wait_closed()
    await eventually(lambda: bool(events(node, "disconnected")), "the end of the client")
    (connected,), (gone,) = events(node, "connected"), events(node, "disconnected")
    assert (connected["client_id"], connected["version"], connected["keep_alive"]) == ("seen", 4, 60)
    assert gone["client_id"] == "seen"
    assert gone["reason"]
    assert gone["reason"] != "connection lost"
    assert "topic/of/it" in node.log()
    assert "topic/of/another" not in node.log()
    assert await reload(node, {}) == []
    (await clients.connect(node.port, "quiet")).abort()
    await silent.ping()
    assert "quiet" not in node.log()
