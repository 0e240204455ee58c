"""`gmqttctl federation_status` and `restart_federation_link` against a real API."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from federation.links.ownership_table import (
    Owner,
)
from federation.links.status import LinkState, LinkStatus
from gmqttctl.cli import main
from links_node import Nodes, links_node

HERE = LinkStatus(
    "0000000a", "topics", "east", LinkState.RUNNING, 1.0, 1.0, node="a", epoch=5, uri="mqtt://east:1883", received=12
)
DOWN = replace(
    HERE,
    link_id="0000000b",
    upstream="west",
    state=LinkState.ERROR,
    deadline=12.0,
    last_error="refused \x1b[31m",
    node="b",
    notes=("a note",),
)


async def run(nodes: Nodes, *arguments: str) -> Result:
    """Runs `gmqttctl` with these arguments; a client of gRPC would block the loop of the node."""
    async with links_node(nodes) as api:
        environment = {"GMQTTCTL_SERVERS": api.grpc_addresses[0]}
        return await asyncio.to_thread(
            CliRunner().invoke, main, list(arguments), env=environment, catch_exceptions=False
        )


async def test_links_that_are_down_come_first_with_their_error_and_next_step() -> None:
    result = await run(Nodes({"a": [HERE], "b": [DOWN], "c": None}), "federation_status")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "no answer from node c: its links are missing here"
    assert lines[1].split()[:5] == ["status", "upstream", "type", "id", "node"]
    assert lines[2].split()[:5] == ["error", "west", "topics", "0000000b", "b"]
    assert lines[3].split()[:5] == ["running", "east", "topics", "0000000a", "a"]
    assert lines[3].endswith("mqtt://east:1883")
    assert lines[4:] == [
        r"0000000b west error: refused \x1b[31m; a note; it connects again at the deadline (in 2.0 s)",
    ]


async def test_only_links_that_are_down_are_shown() -> None:
    result = await run(Nodes({"a": [HERE], "b": [DOWN]}), "federation_status", "--only-down", "--json")
    (link,) = json.loads(result.output)["links"]
    assert (link["id"], link["status"], link["received"]) == ("0000000b", "error", "12")
    result = await run(Nodes({"a": [HERE]}), "federation_status", "--only-down")
    assert result.output == "no link is down\n"


async def test_a_link_is_restarted_by_its_id() -> None:
    nodes = Nodes({"a": [], "b": [DOWN]}, {"0000000b": Owner("b", 5)})
    result = await run(nodes, "restart_federation_link", "0000000b")
    assert (result.exit_code, result.output) == (0, "link 0000000b is restarted on b\n")
    assert nodes.restarted == [("b", "0000000b")]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["restart_federation_link", "0000000c"], 1, 'gmqttctl: there is no link "0000000c"'),
        (["restart_federation_link"], 2, "Missing argument 'ID'"),
        (["federation_status", "--servers", "127.0.0.1:1"], 1, "gmqttctl: node 127.0.0.1:1: no answer"),
    ],
)
async def test_faults_are_one_line(arguments: list[str], status: int, words: str) -> None:
    result = await run(Nodes({"a": []}), *arguments)
    assert result.exit_code == status
    assert words in result.output


async def test_a_node_that_cannot_restart_a_link_says_why() -> None:
    """The node that is asked has answered: it is not the one that is away."""
    nodes = Nodes({"a": [], "b": None}, {"0000000b": Owner("b", 5)})
    result = await run(nodes, "restart_federation_link", "0000000b")
    text = "gmqttctl: the link 0000000b is not restarted: it falls to node b: Connection refused\n"
    assert (result.exit_code, result.output) == (1, text)


async def test_an_empty_answer_names_the_keys_of_links() -> None:
    result = await run(Nodes({"a": []}), "federation_status")
    assert (result.exit_code, result.output.partition(":")[0]) == (0, "no links")
    assert "policy" in result.output
