"""Starts that cannot succeed: one line names the address or the key, and running nodes are not disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mqtt_client import Clients, Watch
    from node_process import Node, Nodes

    StartWatch = Callable[[Node], Awaitable[Watch]]


async def refused(node: Node, text: str | None = None) -> tuple[int, str]:
    """Exit status and output of a start that must not succeed."""
    node.spawn(text)
    return await node.wait_ended(), node.log()


def the_line(output: str) -> str:
    """The line with the reason, after the lines of the log about the form."""
    (line,) = [line for line in output.splitlines() if line.startswith("gmqttd: ")]
    assert output.endswith(f"{line}\n")
    assert " error " not in output
    return line


async def test_port_in_use(nodes: Nodes, watch: StartWatch) -> None:
    first = await nodes.start()
    others = await watch(first)
    second = nodes.make({"listeners": [{"address": f"127.0.0.1:{first.port}"}]})
    status, output = await refused(second)
    assert status == 1
    assert the_line(output).startswith(f"gmqttd: listeners[0].address: 127.0.0.1:{first.port} is in use")
    await others.check()


async def test_address_of_another_machine(nodes: Nodes) -> None:
    status, output = await refused(nodes.make({"listeners": [{"address": "192.0.2.1:20000"}]}))
    assert status == 1
    assert the_line(output).startswith(
        "gmqttd: listeners[0].address: 192.0.2.1:20000 is not an address of this machine"
    )


async def test_host_that_does_not_resolve(nodes: Nodes) -> None:
    status, output = await refused(nodes.make({"listeners": [{"address": "no-such-host.invalid:20000"}]}))
    assert status == 1
    assert "listeners[0].address: the host of no-such-host.invalid:20000 cannot be resolved" in the_line(output)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('listeners:\n  - address: "127.0.0.1:99999"\n', "listeners[0].address"),
        ('listeners:\n  - address: "here and there"\n', "listeners[0].address"),
        ('listeners:\n  - adress: ":1883"\n', "address"),
        ("listeners: [\n", "1"),
        ("- a\n- b\n", ""),
        ("\0\1\2", ""),
        ("mqtt:\n  max_packet_size: often\n", "mqtt.max_packet_size"),
        ("mqtt:\n  maximum_qos: 3\n", "mqtt.maximum_qos"),
    ],
)
async def test_wrong_file(nodes: Nodes, text: str, expected: str) -> None:
    node = nodes.make()
    status, output = await refused(node, text)
    assert status == 2, output
    assert str(node.config_path) in output
    assert expected in output
    assert "Traceback" not in output


async def test_missing_and_unreadable_file(nodes: Nodes) -> None:
    node = nodes.make()
    node.config_path.mkdir()  # root can read every file, but no directory as one
    node.config_path = node.config_path / "missing.yml"
    await check_unreadable(node)
    node.config_path = node.config_path.parent
    await check_unreadable(node)


async def check_unreadable(node: Node) -> None:
    done = await asyncio.to_thread(node.command, "start")
    assert done.returncode == 2, done
    assert str(node.config_path) in done.stderr
    assert done.stderr.strip().count("\n") == 0, done.stderr


async def test_start_on_the_same_port_right_after_a_stop(nodes: Nodes, clients: Clients) -> None:
    node = await nodes.start()
    for _ in range(3):
        for number in range(5):
            await clients.connect(node.port, f"client-{number}")
        await node.stop()
        await node.start()
