"""Starts that cannot succeed: one line names the address or the key, and running nodes are not disturbed."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('listeners:\n  - adress: ":1883"\n', "address"),
        ("listeners: [\n", "1"),
        ("\0\1\2", ""),
        ("workers: 0\n", 'workers: "0" is not'),
        ("workers: -1\n", 'workers: "-1" is not'),
        ("workers: two\n", 'workers: "two" is not'),
        ("workers: 2.5\n", 'workers: "2.5" is not'),
        ('workers: 2\nlisteners: [{address: "127.0.0.1:0"}]\n', "listeners[0].address"),
    ],
)
async def test_wrong_file(nodes: Nodes, text: str, expected: str) -> None:
    node = nodes.make()
    status, output = await refused(node, text)
    assert status == 2, output
    assert str(node.config_path) in output
    assert expected in output
    assert "Traceback" not in output


async def test_start_on_the_same_port_right_after_a_stop(nodes: Nodes, clients: Clients) -> None:
    node = await nodes.start()
    for _ in range(3):
        for number in range(5):
            await clients.connect(node.port, f"client-{number}")
        await node.stop()
        await node.start()
