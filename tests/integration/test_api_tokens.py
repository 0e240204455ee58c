"""Tokens of the API of a running node: made by the command, used by REST, gRPC, gmqttctl and the pipeline's client."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from gmqttctl.connection import Connection
from node_process import LANE_WORKERS
from pipeline.client import NodeClient
from pipeline.errors import NodeError
from pipeline.jobs.snapshots import ask
from waiting import eventually

if TYPE_CHECKING:
    from node_process import Node, Nodes


def token(node: Node, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "broker", "-c", str(node.config_path), "token", *arguments],
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def status(url: str, token: str = "", method: str = "GET", body: bytes | None = None) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, data=body, method=method, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def gmqttctl(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gmqttctl.cli", *arguments],
        env={**os.environ, "PYTHONSAFEPATH": "1", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def make(nodes: Nodes) -> tuple[Node, str, str]:
    """A node with all services; the addresses of REST and gRPC."""
    rest, grpc, metrics = (f"127.0.0.1:{nodes.free_port()}" for _ in range(3))
    config: dict[str, Any] = {
        "api": {"http": [{"address": rest}], "grpc": [{"address": grpc}], "token_file": "tokens.yml"},
        "plugin_order": ["admin", "event_log", "prometheus"],
        "plugins": {"prometheus": {"listen_address": metrics}},
    }
    node = nodes.make(config)
    node.config["plugins"]["event_log"] = {"dir": str(node.directory / "log"), "node_name": "n"}
    return node, rest, grpc


async def test_the_api_of_a_node_with_tokens(nodes: Nodes) -> None:
    node, rest, grpc = make(nodes)
    await node.start()
    await node.logged("nobody can call the API")
    url = f"http://{rest}"
    metrics = f"http://{node.config['plugins']['prometheus']['listen_address']}"
    for open_page in ("/healthz", "/readyz"):
        assert status(url + open_page) == 200
        assert status(metrics + open_page) == 200
    assert status(f"{url}/v1/clients") == 401
    reader, writer = token(node, "create", "--role", "read"), token(node, "create", "--role", "write")
    assert status(f"{url}/v1/clients", reader) == 401, "the node has not read the file again"
    os.kill(node.pid, signal.SIGHUP)
    await node.logged("tokens=2")
    assert status(f"{url}/v1/clients", reader) == 200
    assert status(f"{url}/metrics") == status(f"{metrics}/metrics") == 401
    assert status(f"{url}/metrics", reader) == status(f"{metrics}/metrics", reader) == 200
    body = b'{"topic_name": "t", "payload": "x", "qos": 1}'
    assert status(f"{url}/v1/publish", reader, "POST", body) == 403
    assert status(f"{url}/v1/publish", writer, "POST", body) == 200
    # The pipeline's clients.
    for text, is_good in (("", False), ("wrong", False), (reader, True), (writer, True)):
        connection = Connection((grpc,), text)
        with NodeClient(grpc, connection) as client:
            if is_good:
                assert (await asyncio.to_thread(client.describe)).node == "n"
                assert await asyncio.to_thread(ask, "n", grpc, connection) == []
            else:
                with pytest.raises(NodeError, match="token"):
                    await asyncio.to_thread(client.describe)
    for arguments, environment, is_good in (
        (["--token", writer], {}, True),
        ([], {"GMQTTCTL_TOKEN": writer}, True),
        ([], {}, False),
    ):
        done = await asyncio.to_thread(gmqttctl, "log", "describe", "--servers", grpc, *arguments, **environment)
        assert (done.returncode == 0) is is_good, done.stderr
        assert is_good or "token" in done.stderr
    token(node, "delete", "read1")
    os.kill(node.pid, signal.SIGHUP)
    await eventually(lambda: node.log().count("tokens=1") == LANE_WORKERS, "the tokens are read again")
    assert status(f"{url}/v1/clients", reader) == 401
    for text in (reader, writer):
        assert text not in node.log()
        assert text not in node.command("check").stdout
