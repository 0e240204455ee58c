"""The source reads nodes whose API is served by TLS: options tls, tlsCaFile, tlsCertFile, tlsKeyFile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from gmqttctl.errors import CommandError, OptionError
from mqtt_client import Clients
from node_process import Node, Nodes
from pipeline.options import read_batch_options
from pipeline.source import MqttReader


async def two_nodes(nodes: Nodes, clients: Clients, folder: Path, authority: Authority) -> list[Node]:
    """Nodes that ask clients of their API for a certificate. Each has a message."""
    pair = authority.pair("localhost")
    tls = {"cacert": authority.cacert, "cert": pair.cert, "key": pair.key, "verify": True}
    made: list[Node] = []
    for number in range(2):
        log = {"event_log": {"dir": str(folder / f"log{number}")}}
        node = nodes.make_federated(made[:1], {"plugins": log, "plugin_order": ["admin", "federation", "event_log"]})
        node.config["api"]["grpc"][0]["tls"] = tls
        await node.start()
        made.append(node)
        client = await clients.connect(node.port, f"device{number}")
        await client.publish("t", b"%d" % number, qos=1)
    await nodes.all_alive(made)
    return made


def read(node: Node, **options: str) -> set[bytes]:
    servers = str(node.config["api"]["grpc"][0]["address"]).removeprefix("tcp://")
    reader = MqttReader(read_batch_options({"servers": servers, **options}))
    return {
        payload
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for payload in batch["payload"].to_pylist()
    }


async def test_all_nodes_are_read_by_tls(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    operator = authority.pair("operator")
    a, _ = await two_nodes(nodes, clients, tmp_path, authority)
    right = {"tls": "true", "tlsCaFile": authority.cacert, "tlsCertFile": operator.cert, "tlsKeyFile": operator.key}
    # The second node is found by the first one, and gets the token because of its certificate.
    assert await asyncio.to_thread(read, a, token="secret", **right) == {b"0", b"1"}

    other = Authority(tmp_path / "other", "other authority")
    stranger = other.pair("stranger")
    wrong: list[dict[str, Any]] = [
        {},  # no TLS
        {"tls": "true"},  # the system's authorities
        {**right, "tlsCaFile": other.cacert},
        {**right, "tlsCertFile": stranger.cert, "tlsKeyFile": stranger.key},
        {"tls": "true", "tlsCaFile": authority.cacert},
    ]
    for options in wrong:
        with pytest.raises(CommandError, match=r"option servers: .* leads to no event log"):
            await asyncio.to_thread(read, a, **options)


def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    one, other = authority.pair("one"), authority.pair("other")
    locked = authority.pair("locked", password=b"secret")
    text = tmp_path / "ca.pem"
    text.write_text("no certificate")
    for options, name in (
        ({"tlsCaFile": str(text)}, "tlsCaFile"),
        ({"tlsCertFile": one.cert, "tlsKeyFile": other.key}, "tlsCertFile"),
        ({"tlsCertFile": one.key, "tlsKeyFile": one.cert}, "tlsCertFile"),
        ({"tlsCertFile": locked.cert, "tlsKeyFile": locked.key}, "tlsCertFile"),
    ):
        reader = MqttReader(read_batch_options({"servers": "127.0.0.1:1", "tls": "true", **options}))
        with pytest.raises(OptionError, match=f"option {name}: "):
            reader.partitions()
