"""Whole nodes with a keyring file: rotated keys outlive restarts, and messages go on between them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from federation.gossip.keyring import key_text
from mqtt_client import reached
from node_process import status_becomes

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Node, Nodes

OLD, NEW = key_text(b"o" * 32), key_text(b"n" * 32)


def keyed(node: Node) -> Node:
    node.config["plugins"]["federation"]["keyring_file"] = f"{node.name}.json"
    file = node.directory / f"{node.name}.json"
    file.touch(0o600)
    file.write_text(json.dumps([OLD]))
    return node


def kept(node: Node) -> list[str]:
    found: list[str] = json.loads((node.directory / f"{node.name}.json").read_text())
    return found


@pytest.mark.one_process("counts members, and each worker is one")
async def test_keys_are_rotated_while_messages_flow_and_nodes_restart(nodes: Nodes, clients: Clients) -> None:
    first = keyed(nodes.make_federated([]))
    second = keyed(nodes.make_federated([first]))
    for node in (first, second):
        await node.start()
    await nodes.all_alive([first, second])
    subscriber = await clients.connect(second.port, "subscriber")
    await subscriber.subscribe("t", qos=1)
    publisher = await clients.connect(first.port, "publisher")
    await reached(publisher, "t", subscriber)
    for number, (path, key) in enumerate((("install", NEW), ("use", NEW), ("remove", OLD))):
        status, found = await first.rest("POST", f"/v1/federation/keys/{path}", {"key": key})
        assert (status, found["num_responses"], found["num_errors"]) == (200, 2, 0)
        await publisher.publish("t", b"%d" % number, 1)
        assert (await subscriber.message()).payload == b"%d" % number
    assert kept(first) == kept(second) == [NEW]
    await subscriber.close()
    await second.stop()
    await status_becomes(first, second.name, "STATUS_LEFT")
    await second.start()
    await nodes.all_alive([first, second])
    status, found = await second.rest("GET", "/v1/federation/keys")
    assert (status, found["keys"], found["primary_keys"]) == (200, {NEW: 2}, {NEW: 2})
    for node in (first, second):
        assert OLD not in node.log()
        assert NEW not in node.log()


async def test_a_keyring_file_that_others_can_read_ends_the_start(nodes: Nodes) -> None:
    node = keyed(nodes.make_federated([]))
    (node.directory / f"{node.name}.json").chmod(0o644)
    node.spawn()
    assert await node.wait_ended() == 1
    assert "plugins.federation.keyring_file" in node.log()
    assert "chmod 600" in node.log()
    assert OLD not in node.log()
    checked = node.command("check")
    assert checked.returncode != 0
    assert "keyring_file" in checked.stdout + checked.stderr
