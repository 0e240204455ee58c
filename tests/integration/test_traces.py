"""Traces over REST, of clients on real sockets."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.api.token_command import TokenFile
from broker.api.trace_command import TraceApi, follow
from broker.codec.packets import Publish
from broker.codec.properties import TOPIC_ALIAS_MAXIMUM
from certificates import Authority
from node_process import LANE_WORKERS
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Node, Nodes


@pytest.fixture
async def node(nodes: Nodes) -> Node:
    address = {"address": f"127.0.0.1:{nodes.free_port()}"}
    return await nodes.start({"plugin_order": ["admin"], "api": {"http": [address]}})


async def start(node: Node, **wanted: Any) -> str:
    status, trace = await node.rest("POST", "/v1/traces", wanted)
    assert status == 200, trace
    return str(trace["id"])


async def lines(node: Node, trace: str, count: int) -> list[dict[str, Any]]:
    """The first `count` lines. A page that has none within ten seconds fails the test."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        after = found[-1]["number"] if found else 0
        status, page = await node.rest("GET", f"/v1/traces/{trace}/lines?after={after}&wait_seconds=10")
        assert status == 200
        assert page["lines"], f"only {found}"
        found += page["lines"]
    return found[:count]


def fields(line: dict[str, Any]) -> dict[str, str]:
    return {field["name"]: field["value"] for field in line["fields"]}


def shown(found: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(line["direction"], line["packet"], line["client_id"]) for line in found]


async def test_a_client_that_is_connected_and_one_that_connects(node: Node, clients: Clients) -> None:
    connected = await clients.connect(node.port, "connected")
    await connected.subscribe("a/#")
    first = await start(node, client_id="connected", log=False)
    second = await start(node, client_id="later")
    later = await clients.connect(node.port, "later")
    await later.publish("a/b", b"21.5")
    assert (await connected.message()).payload == b"21.5"
    (received,) = await lines(node, first, 1)
    assert shown([received]) == [("sent", "PUBLISH", "connected")]
    assert fields(received)["topic"] == "a/b"
    assert fields(received)["payload"] == "21.5"
    found = await lines(node, second, 3)
    assert shown(found) == [
        ("received", "CONNECT", "later"),
        ("sent", "CONNACK", "later"),
        ("received", "PUBLISH", "later"),
    ]
    assert [line["number"] for line in found] == ["1", "2", "3"]
    assert found[0]["remote_addr"].startswith("127.0.0.1:")
    logged = [line for line in node.log().splitlines() if " trace: " in line and "packet=" in line]
    assert [line.split("packet=")[1].split()[:2] for line in logged][:2] == [
        ["CONNECT", "client_id=later"],
        ["CONNACK", "client_id=later"],
    ]
    assert not [line for line in logged if "client_id=connected" in line]


async def test_a_topic_filter_and_an_address(node: Node, clients: Clients) -> None:
    one = await clients.connect(node.port, "one")
    two = await clients.connect(node.port, "two")
    await two.subscribe("a/#", "b")
    by_topic = await start(node, topic_filter="a/+")
    by_address = await start(node, remote_addr="127.0.0.1")
    nobody = await start(node, remote_addr="127.0.0.2")
    await one.publish("b", b"1")
    await one.publish("a/b", b"2")
    await two.message()
    await two.message()
    assert sorted(shown(await lines(node, by_topic, 2))) == [("received", "PUBLISH", "one"), ("sent", "PUBLISH", "two")]
    by_client = sorted(one for one in shown(await lines(node, by_address, 8)) if one[1] == "PUBLISH")
    assert by_client == [("received", "PUBLISH", "one")] * 2 + [("sent", "PUBLISH", "two")] * 2
    assert (await node.rest("GET", f"/v1/traces/{nobody}/lines"))[1]["lines"] == []
    status, answer = await node.rest("GET", "/v1/traces")
    assert status == 200
    assert [(trace["id"], trace["packets"], trace["ended"]) for trace in answer["traces"]] == [
        (by_topic, "2", False),
        (by_address, "8", False),
        (nobody, "0", False),
    ]


async def test_the_topic_behind_an_alias_that_was_set_before(node: Node, clients: Clients) -> None:
    client = await clients.connect(node.port, "aliases", properties={TOPIC_ALIAS_MAXIMUM: 5})
    await client.subscribe("long/#")
    client.send(Publish(b"long/topic", b"1", topic_alias=1))
    await client.message()
    trace = await start(node, topic_filter="long/topic")
    client.send(Publish(b"", b"2", topic_alias=1))
    await client.message()
    received, sent = await lines(node, trace, 2)
    assert (received["direction"], fields(received)["topic"], fields(received)["topic_alias"]) == (
        "received",
        "long/topic",
        "1",
    )
    assert (sent["direction"], fields(sent)["topic"], fields(sent)["topic_alias"]) == ("sent", "long/topic", "1")


async def test_a_client_behind_tls_and_the_command_over_https(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    pair = authority.pair("localhost")
    tls = {"cert": pair.cert, "key": pair.key}
    secured, api = nodes.free_port(), nodes.free_port()
    node = await nodes.start(
        {
            "listeners": [{"address": f"127.0.0.1:{secured}", "tls": tls}],
            "plugin_order": ["admin"],
            "api": {"http": [{"address": f"127.0.0.1:{api}", "tls": tls}]},
        }
    )
    client = await clients.connect(secured, "sensor1", tls=ssl.create_default_context(cafile=authority.cacert))
    url = TraceApi(f"https://localhost:{api}", "", authority.cacert)
    follower = follow(url, {"client_id": "sensor1"}, 60)
    # It may begin behind a PUBLISH, in front of the PINGREQ that the client sends to know that it came.
    publishes = (line for line in follower if "received sensor1 PUBLISH" in line)
    first = asyncio.create_task(asyncio.to_thread(next, publishes))
    await node.logged("a trace begins")
    while not first.done():  # the trace follows open connections in steps
        await client.publish("a", b"21.5")
    assert "topic=a payload=21.5" in await first
    await asyncio.to_thread(follower.close)
    await node.logged("a trace has ended")


async def test_a_packet_that_has_come_in_part(node: Node, clients: Clients) -> None:
    client = await clients.connect(node.port, "parts")
    packet = b"\x30\x06\x00\x01a\x00xy"
    client.send_bytes(packet[:5])
    await client.drain()
    await eventually(lambda: has_received(node, "parts", 20), "the first part has come")
    trace = await start(node, client_id="parts")
    client.send_bytes(packet[5:])
    (line,) = await lines(node, trace, 1)
    assert (fields(line)["topic"], fields(line)["payload"]) == ("a", "xy")


async def has_received(node: Node, client_id: str, more_than: int) -> bool:
    _, answer = await node.rest("GET", f"/v1/clients/{client_id}")
    return int(answer["client"]["packets_received_bytes"]) > more_than


async def test_bytes_that_are_no_packet(node: Node, clients: Clients) -> None:
    client = await clients.connect(node.port, "odd")
    trace = await start(node, client_id="odd")
    client.send_bytes(b"\xc0\x00\xf0\xff\xff\xff\xff\xff")
    await client.closed.wait()
    found = await lines(node, trace, 4)
    assert shown(found) == [
        ("received", "PINGREQ", "odd"),
        ("received", "FAULT", "odd"),
        ("sent", "PINGRESP", "odd"),
        ("sent", "DISCONNECT", "odd"),
    ]
    assert "more than four bytes" in fields(found[1])["error"]


async def test_a_trace_ends_by_itself_and_by_a_call(node: Node, clients: Clients) -> None:
    short = await start(node, client_id="a", seconds=1)
    status, page = await node.rest("GET", f"/v1/traces/{short}/lines?wait_seconds=10")
    assert (status, page) == (200, {"lines": [], "ended": True, "packets": "0"})
    other = await start(node, client_id="a")
    assert await node.rest("DELETE", f"/v1/traces/{other}") == (200, {})
    assert (await node.rest("GET", f"/v1/traces/{other}/lines"))[0] == 404
    client = await clients.connect(node.port, "a")
    await client.publish("a", b"")
    assert (await node.rest("GET", f"/v1/traces/{short}/lines"))[1]["lines"] == []


async def test_a_request_that_no_packet_can_fit(node: Node) -> None:
    for body, words in (
        ({}, "one of client_id, topic_filter and remote_addr is needed"),
        ({"client_id": "a", "topic_filter": "a"}, "one of client_id, topic_filter and remote_addr is needed"),
        ({"topic_filter": "a/#/b"}, "topic_filter: "),
        ({"topic_filter": "$share/g/a"}, "topic_filter begins with $share/"),
        ({"remote_addr": "sensor1"}, 'remote_addr "sensor1" is no IP address and no IP:PORT'),
        ({"client_id": "a", "seconds": 3601}, "seconds is 3601, at most 3600 is possible"),
    ):
        status, answer = await node.rest("POST", "/v1/traces", body)
        assert (status, words in answer["message"]) == (400, True), answer
    assert (await node.rest("GET", "/v1/traces/1/lines?wait_seconds=11"))[0] == 400
    assert (await node.rest("GET", "/v1/traces/1/lines"))[0] == 404


async def test_a_trace_too_many_is_refused(node: Node) -> None:
    traces = [await start(node, client_id="a") for _ in range(16)]
    status, answer = await node.rest("POST", "/v1/traces", {"client_id": "a"})
    assert (status, "16 traces run already" in answer["message"]) == (429, True)
    await node.rest("DELETE", f"/v1/traces/{traces[0]}")
    await start(node, client_id="a")


def token_file(folder: Path) -> tuple[Path, str, str]:
    """A file of tokens, and those of the roles write and admin in it."""
    path = folder / "tokens.yml"
    tokens = TokenFile(str(path))
    return path, tokens.create("", "write"), tokens.create("", "admin")


async def test_the_command_prints_packets_as_they_come(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    address = f"127.0.0.1:{nodes.free_port()}"
    file, write, admin = token_file(tmp_path)
    api = {"http": [{"address": address}], "token_file": str(file)}
    node = await nodes.start({"plugin_order": ["admin"], "api": api})
    arguments = [*node.program(), "trace", "--topic", "a/#", "--api", f"http://{address}"]
    refused = await asyncio.create_subprocess_exec(
        *arguments, env={**os.environ, "GMQTTD_TOKEN": write}, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await refused.communicate()
    assert (refused.returncode, errors.decode()) == (
        1,
        f'gmqttd: http://{address}: the token "write1" has the role write, this needs admin\n',
    )
    command = await asyncio.create_subprocess_exec(
        *arguments, "--token", admin, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert command.stdout is not None
    await eventually(lambda: node.log().count("a trace begins") == LANE_WORKERS, "each worker traces")
    client = await clients.connect(node.port, "sensor1")
    await client.publish("a/b", b"21.5")
    async with asyncio.timeout(DEADLINE):
        line = (await command.stdout.readline()).decode()
        assert line.split(" ", 1)[1] == "received sensor1 PUBLISH topic=a/b payload=21.5 qos=0 retain=False dup=False\n"
        command.send_signal(signal.SIGINT)
        rest, errors = await command.communicate()
    assert (command.returncode, rest, errors) == (0, b"", b"")
    await node.logged("a trace has ended")
    assert "packet=PUBLISH" not in node.log()
