"""mosquitto_pub and mosquitto_sub with a node, over real sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mosquitto_process import Mosquitto
    from node_process import Nodes

VERSIONS = ("mqttv31", "mqttv311", "mqttv5")
NEW_VERSIONS = ("mqttv311", "mqttv5")


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_qos_arrives(nodes: Nodes, mosquitto: Mosquitto, version: str) -> None:
    node = await nodes.start()
    sub = await mosquitto.sub(node.port, "-t", "a/b", "-q", "2", version=version)
    for qos in ("0", "1", "2"):
        await mosquitto.pub(node.port, "-t", "a/b", "-m", f"hello {qos}", "-q", qos, version=version)
        assert await sub.message() == ("a/b", f"hello {qos}".encode(), False)


@pytest.mark.parametrize("version", NEW_VERSIONS)
async def test_a_request_gets_its_response(nodes: Nodes, mosquitto: Mosquitto, version: str) -> None:
    """mosquitto_rr publishes a request and prints the response; with MQTT 5 the request has its Response Topic."""
    node = await nodes.start()
    form = "%R" if version == "mqttv5" else ""
    service = await mosquitto.sub(node.port, "-t", "request", "-q", "1", version=version, form=form)
    asking = asyncio.create_task(
        mosquitto.request(node.port, "-t", "request", "-e", "response", "-m", "question", "-q", "1", version=version)
    )
    assert await service.message() == ("request", b"question", False)
    response_topic = service.texts[0] if version == "mqttv5" else "response"
    assert response_topic == "response"
    await mosquitto.pub(node.port, "-t", response_topic, "-m", "answer", "-q", "1", version=version)
    assert await asking == b"answer\n"


@pytest.mark.parametrize("qos", ["0", "1", "2"])
@pytest.mark.parametrize("version", NEW_VERSIONS)
async def test_a_thousand_in_order(nodes: Nodes, mosquitto: Mosquitto, version: str, qos: str) -> None:
    node = await nodes.start()
    same = await mosquitto.sub(node.port, "-t", "order/#", "-q", qos, version=version)
    other = await mosquitto.sub(node.port, "-t", "order/+", "-q", "1", version="mqttv311")
    lines = [b"line %d" % number for number in range(1000)]
    await mosquitto.pub(node.port, "-t", "order/1", "-l", "-q", qos, stdin=b"\n".join(lines) + b"\n", version=version)
    assert await same.payloads(1000) == lines
    assert await other.payloads(1000) == lines


async def test_take_over(nodes: Nodes, mosquitto: Mosquitto) -> None:
    """A second client with the same identifier takes over the session; the first gets DISCONNECT with 0x8E."""
    node = await nodes.start()
    session = ("-t", "t", "-q", "1", "-c", "-i", "twin", "-x", "100")
    first = await mosquitto.sub(node.port, *session)
    second = await mosquitto.sub(node.port, *session)
    await first.said(b"DISCONNECT")
    await first.stop()
    await mosquitto.pub(node.port, "-t", "t", "-m", "to the second", "-q", "1")
    assert (await second.message())[1] == b"to the second"
