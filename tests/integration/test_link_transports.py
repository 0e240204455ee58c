"""Links over TLS and WebSocket, and what a link says about certificates that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from certificates import Authority
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Node, Nodes


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


async def upstream_with(nodes: Nodes, **listener: Any) -> tuple[Node, int]:
    """A node with a plain listener and another one; (node, port of the latter)."""
    port = nodes.free_port()
    plain = {"address": f"127.0.0.1:{nodes.free_port()}"}
    listeners = [plain, {"address": f"127.0.0.1:{port}", **listener}]
    return await nodes.start({"listeners": listeners}, name="upstream"), port


def config(upstream: dict[str, Any]) -> dict[str, Any]:
    policy = {"pattern": "#", "definition": {"federation-upstream": "north"}}
    links = {"domain": "berlin", "upstreams": {"north": upstream}, "policies": {"all": policy}}
    return {"plugin_order": ["links"], "plugins": {"links": links}}


async def crosses(node: Node, upstream: Node, clients: Clients, size: int = 200_000) -> None:
    """A small message and a large one come over the link."""
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("a", qos=1)
    await node.logged("link running")
    writer = await clients.connect(upstream.port, "writer")
    for payload in (b"small", b"x" * size):
        await writer.publish("a", payload, qos=1)
        assert (await reader.message()).payload == payload


@pytest.mark.parametrize("scheme", ["mqtts", "wss"])
async def test_tls_with_a_certificate_of_the_link(
    nodes: Nodes, clients: Clients, authority: Authority, scheme: str
) -> None:
    pair, own = authority.pair("localhost"), authority.pair("the link")
    tls = {"cert": pair.cert, "key": pair.key, "cacert": authority.cacert, "verify": True}
    listener: dict[str, Any] = {"tls": tls}
    if scheme == "wss":
        listener["websocket"] = {"path": "/mqtt"}
    upstream, port = await upstream_with(nodes, **listener)
    keys = {"cacertfile": authority.cacert, "certfile": own.cert, "keyfile": own.key}
    node = await nodes.start(config({"uri": f"{scheme}://localhost:{port}", "tls": keys}), name="downstream")
    await crosses(node, upstream, clients)


async def test_websocket(nodes: Nodes, clients: Clients) -> None:
    upstream, port = await upstream_with(nodes, websocket={"path": "/broker"})
    node = await nodes.start(config({"uri": f"ws://127.0.0.1:{port}/broker"}), name="downstream")
    await crosses(node, upstream, clients)


@pytest.mark.parametrize(
    ("path", "tls", "error"),
    [
        ("", {}, "unable to get local issuer certificate; tls.cacertfile names its authority"),
        (
            "",
            {"cacertfile": "CA", "server-name-indication": "example.com"},
            "the certificate of the upstream is refused",
        ),
        ("", {"cacertfile": "/no/such/file"}, "tls.cacertfile: /no/such/file cannot be read"),
        ("", {"cacertfile": "KEY"}, "is not a PEM file of certificates"),
    ],
)
async def test_a_certificate_that_does_not_fit_is_an_error_of_the_link(
    nodes: Nodes, clients: Clients, authority: Authority, path: str, tls: dict[str, Any], error: str
) -> None:
    pair = authority.pair("localhost")
    _, port = await upstream_with(nodes, tls={"cert": pair.cert, "key": pair.key})
    named = {"CA": authority.cacert, "KEY": pair.key}
    keys = {key: named.get(value, value) for key, value in tls.items()}
    node = await nodes.start(config({"uri": f"mqtts://localhost:{port}{path}", "tls": keys}), name="downstream")
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("a")
    await node.logged("link error")
    assert error in node.log()


async def test_an_upstream_that_speaks_something_else_is_an_error_of_the_link(nodes: Nodes, clients: Clients) -> None:
    upstream, port = await upstream_with(nodes, websocket={"path": "/mqtt"})
    uris = {
        "plain": (f"ws://127.0.0.1:{upstream.port}", "WebSocket: did not receive a valid HTTP response"),
        "path": (f"ws://127.0.0.1:{port}/other", "WebSocket: server rejected"),
        "secured": (f"mqtts://127.0.0.1:{upstream.port}", "TLS: the upstream closed the connection in the handshake"),
        "nobody": (f"mqtt://127.0.0.1:{nodes.free_port()}", "refused"),
    }
    made = config({"uri": "mqtt://127.0.0.1:1"})
    links = made["plugins"]["links"]
    links["upstreams"] = {name: {"uri": uri, "reconnect-delay": 60} for name, (uri, _) in uris.items()}
    links["policies"]["all"]["definition"] = {"federation-upstream-set": "all"}
    node = await nodes.start(made, name="downstream")
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("a", qos=1)
    for name, (_, error) in uris.items():
        await eventually(
            lambda name=name, error=error: any(
                "link error" in line and f"upstream={name} " in line and error in line
                for line in node.log().splitlines()
            ),
            f"error of the link {name}",
        )
    writer = await clients.connect(node.port, "writer")
    await writer.publish("a", b"goes on", qos=1)
    assert (await reader.message()).payload == b"goes on"
