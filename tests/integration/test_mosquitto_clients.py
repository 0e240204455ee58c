"""mosquitto_pub and mosquitto_sub with a node, over real sockets."""

from __future__ import annotations

import asyncio
import signal
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


async def test_will_delay(nodes: Nodes, mosquitto: Mosquitto) -> None:
    """The will of a client that returns within the delay is not published [MQTT5 3.1.3.2.2]."""
    node = await nodes.start()
    watcher = await mosquitto.sub(node.port, "-t", "wills")
    client = ("-t", "x", "-i", "comes-back", "-c", "-x", "60", "--will-topic", "wills", "--will-payload")
    delay = ("-D", "will", "will-delay-interval")
    first = await mosquitto.sub(node.port, *client, "first", *delay, "100")
    await first.stop(signal.SIGKILL)
    second = await mosquitto.sub(node.port, *client, "second", *delay, "1")
    await second.stop(signal.SIGKILL)
    assert (await watcher.message())[1] == b"second"


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


@pytest.mark.parametrize("version", NEW_VERSIONS)
async def test_persistent_session(nodes: Nodes, mosquitto: Mosquitto, version: str) -> None:
    node = await nodes.start()
    session = ("-t", "p/#", "-q", "1", "-c", "-i", "keeper")
    first = await mosquitto.sub(node.port, *session, version=version)
    await first.stop(signal.SIGKILL)
    lines = [b"%d" % number for number in range(50)]
    await mosquitto.pub(node.port, "-t", "p/1", "-l", "-q", "1", stdin=b"\n".join(lines) + b"\n", version=version)
    again = await mosquitto.sub(node.port, *session, version=version, wait=False)
    assert await again.payloads(50) == lines
    await again.stop()
    clean = await mosquitto.sub(node.port, "-t", "other", "-i", "keeper", version=version)  # ends the old session
    await mosquitto.pub(node.port, "-t", "p/1", "-m", "lost", "-q", "1", version=version)
    await mosquitto.pub(node.port, "-t", "other", "-m", "seen", "-q", "1", version=version)
    assert await clean.message() == ("other", b"seen", False)


async def test_properties(nodes: Nodes, mosquitto: Mosquitto) -> None:
    node = await nodes.start()
    form = "%C|%R|%D|%P|%E|%F|%S"
    sub = await mosquitto.sub(
        node.port, "-t", "q/#", "-q", "1", "-D", "subscribe", "subscription-identifier", "42", form=form
    )
    await mosquitto.pub(
        *(node.port, "-t", "q/1", "-m", "body", "-q", "1"),
        *("-D", "publish", "content-type", "text/plain"),
        *("-D", "publish", "response-topic", "reply/here"),
        *("-D", "publish", "correlation-data", "c-17"),
        *("-D", "publish", "user-property", "first", "1"),
        *("-D", "publish", "user-property", "second", "2"),
        *("-D", "publish", "message-expiry-interval", "100"),
        *("-D", "publish", "payload-format-indicator", "1"),
    )
    assert (await sub.message())[1] == b"body"
    content_type, response_topic, correlation, users, expiry, payload_format, identifier = sub.texts[0].split("|")
    assert (content_type, response_topic, correlation) == ("text/plain", "reply/here", "c-17")
    assert users.split() == ["first:1", "second:2"]
    assert 90 <= int(expiry) <= 100
    assert (payload_format, identifier) == ("1", "42")


@pytest.mark.parametrize("qos", ["0", "1", "2"])
async def test_large_payload(nodes: Nodes, mosquitto: Mosquitto, qos: str) -> None:
    node = await nodes.start()
    sub = await mosquitto.sub(node.port, "-t", "large", "-q", qos)
    payload = bytes(range(256)) * (8 * 2**20 // 256)
    await mosquitto.pub(node.port, "-t", "large", "-s", "-q", qos, stdin=payload)
    topic, received, _ = await sub.message()
    assert topic == "large"
    assert received == payload


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
