"""The library `serfclient` of other people against a node, over `rpc_addr`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from client_library import PYTHON, SUPPORT, driver_environment, missing_library
from node_process import free_port, gossip_address
from waiting import DEADLINE

if TYPE_CHECKING:
    from node_process import Nodes


@pytest.mark.one_process("counts members, and each worker is one")
async def test_the_calls_of_the_library(nodes: Nodes) -> None:
    missing = missing_library("serfclient")
    if missing:
        pytest.skip(missing)
    port = free_port()
    settings = {"plugins": {"federation": {"rpc_addr": f"127.0.0.1:{port}", "rpc_auth": "a key"}}}
    await nodes.make_federated(None, settings).start()
    other = await nodes.make_federated(None).start()
    process = await asyncio.create_subprocess_exec(
        PYTHON,
        SUPPORT / "serfclient_driver.py",
        str(port),
        "a key",
        gossip_address(other),
        stdout=asyncio.subprocess.PIPE,
        env=driver_environment(),
    )
    output, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode == 0
    found = json.loads(output)
    assert {name: one["head"]["Error"] for name, one in found.items()} == dict.fromkeys(found, "")
    assert found["join"]["body"] == {"Num": 1}
    for name in ("members", "filtered"):
        members = found[name]["body"]["Members"]
        assert {member["Name"]: member["Status"] for member in members} == {"node1": "alive", "node2": "alive"}
    assert found["stats"]["body"]["agent"] == {"name": "node1"}
    event = found["streamed"]["body"]
    assert (event["Event"], event["Name"], event["Payload"]) == ("user", "deploy", "now")
