"""The commands of `gmqttctl` for links, queues and topic mappings."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from api_calls import api_settings
from broker.api.server import ApiServer
from broker.server.logging import get_logger
from broker_world import World
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.links.bridging.bridging import bridging_of
from federation.links.handshake import Note
from federation.links.ownership_table import (
    Owner,
)
from federation.links.pb import link_status_pb2 as pb
from federation.links.queues import QUEUE_DEFAULTS, Queues
from federation.links.reports import queue_metrics
from federation.links.shell.service import GroupQueuesService
from federation.links.status import LinkState, LinkStatus
from gmqttctl.cli import main
from gmqttctl.errors import EXIT_FAILED, EXIT_NO_ANSWER, EXIT_NOT_FOUND
from links_node import Nodes, a_plan, links_node
from wording import check_each_named, check_named

HERE = LinkStatus(
    a_plan("0000000a", "east"), LinkState.RUNNING, 1.0, 1.0, node="a", epoch=5, uri="mqtt://east:1883", received=12
)
DOWN = replace(
    HERE,
    plan=a_plan("0000000b", "west"),
    state=LinkState.ERROR,
    deadline=12.0,
    last_error="refused \x1b[31m",
    node="b",
    notes=(Note("a note"),),
)


QUEUE_HEADS = ["group", "policy", "messages", "bytes", "oldest", "members", "remote", "upstreams", "dropped"]


async def run(nodes: Nodes, *arguments: str) -> Result:
    """Runs `gmqttctl` with these arguments; a client of gRPC would block the loop of the node."""
    async with links_node(nodes) as api:
        environment = {"GMQTTCTL_SERVERS": api.grpc_addresses[0]}
        return await asyncio.to_thread(
            CliRunner().invoke, main, list(arguments), env=environment, catch_exceptions=False
        )


async def test_links_that_are_down_come_first_with_their_error_and_next_step() -> None:
    result = await run(Nodes({"a": [HERE], "b": [DOWN], "c": None}), "links")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split()[:5] == ["id", "status", "upstream", "type", "node"]
    assert lines[1].split()[:5] == ["0000000b", "error", "west", "topics", "b"]
    assert lines[2].split()[:5] == ["0000000a", "running", "east", "topics", "a"]
    assert lines[2].endswith("mqtt://east:1883")
    check_named(lines[3], ["no answer", "node c"])
    check_each_named(lines[4:], [("0000000b west error: ", r"refused \x1b[31m", "a note", "in 2.0 s")])


async def test_only_links_that_are_down_are_shown() -> None:
    result = await run(Nodes({"a": [HERE], "b": [DOWN]}), "federation_status", "--only-down", "--json")
    (link,) = json.loads(result.output)["links"]
    assert (link["id"], link["status"], link["received"]) == ("0000000b", "error", "12")
    result = await run(Nodes({"a": [HERE]}), "federation_status", "--only-down")
    assert result.output == "no link is down\n"


async def test_a_link_is_restarted_by_its_id() -> None:
    nodes = Nodes({"a": [], "b": [DOWN]}, {"0000000b": Owner("b", 5)})
    result = await run(nodes, "links", "restart", "0000000b")
    assert (result.exit_code, result.output) == (0, "link 0000000b is restarted on b\n")
    assert nodes.restarted == [("b", "0000000b")]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["restart_federation_link", "0000000c"], EXIT_NOT_FOUND, 'gmqttctl: there is no link "0000000c"'),
        (["restart_federation_link"], 2, "Missing argument 'ID'"),
        (["federation_status", "--servers", "127.0.0.1:1"], EXIT_NO_ANSWER, "gmqttctl: node 127.0.0.1:1: no answer"),
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
    assert result.exit_code == EXIT_FAILED
    check_named(result.output, ["0000000b", "node b", "Connection refused"])
    assert "no answer" not in result.output


async def test_an_empty_answer_names_the_keys_of_links() -> None:
    result = await run(Nodes({"a": []}), "federation_status")
    assert (result.exit_code, result.output.partition(":")[0]) == (0, "no links")
    assert "policy" in result.output


def some_queues() -> tuple[World, Queues]:
    """A queue with two messages of 3 s, and an empty one with a member."""
    world = World()
    queues = Queues(world.broker, QUEUE_DEFAULTS)
    patterns = ("$share/workers/jobs/#", "$share/crew/tasks")
    policies = [parse_policy(f"p{at}", {"pattern": pattern, "definition": {}}) for at, pattern in enumerate(patterns)]
    queues.resolve(Resolution([], [], policies), world.now)
    world.connect("c").subscribe(b"$share/crew/tasks")
    for payload in (b"1", b"2"):
        world.publish(b"jobs/a", payload, qos=1)
    world.advance(3)
    return world, queues


async def run_queues(*arguments: str) -> Result:
    world, queues = some_queues()
    api = ApiServer(api_settings(["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:0"]), {}, get_logger("api"), None)
    bridging_of(world.broker).home.node_name = "n1"
    host: Any = SimpleNamespace(now=lambda: world.now)
    service = GroupQueuesService(host, queues)
    api.register(pb.DESCRIPTOR.services_by_name["GroupQueues"], service)
    await api.start()
    try:
        environment = {"GMQTTCTL_SERVERS": api.grpc_addresses[0]}
        return await asyncio.to_thread(
            CliRunner().invoke, main, ["queues", *arguments], env=environment, catch_exceptions=False
        )
    finally:
        await api.stop()


async def test_queues_are_listed_with_their_age() -> None:
    lines = (await run_queues()).output.splitlines()
    assert lines[0].split() == QUEUE_HEADS
    assert lines[1].split() == ["$share/crew/tasks", "p1", "0", "0", "-", "1", "0", "0", "0"]
    assert lines[2].split() == ["$share/workers/jobs/#", "p0", "2", "526", "3", "s", "0", "0", "0", "0"]


async def test_queues_as_json() -> None:
    empty, full = json.loads((await run_queues("--json")).output)["queues"]
    assert "oldest_seconds" not in empty
    assert (full["group"], full["node"], full["messages"], full["oldest_seconds"]) == (
        "$share/workers/jobs/#",
        "n1",
        "2",
        3.0,
    )


def test_metrics_of_queues() -> None:
    world, queues = some_queues()
    found = {metric.name: dict(metric.samples) for metric in queue_metrics(queues, world.now)}
    assert found["gmqtt_group_queues"] == {(): 2}
    assert found["gmqtt_group_queue_messages"] == {("$share/crew/tasks",): 0, ("$share/workers/jobs/#",): 2}
    assert found["gmqtt_jobs_sent_total"] == {(): 0}


def preview(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["mapping", "preview", *arguments])
    return result.exit_code, result.output


def test_a_preview_shows_topics_both_ways_and_filters() -> None:
    status, output = preview(
        "a/+/b/# -> x/{1}/{#}", "--topic", "a/1/b/c", "--topic", "other", "--local-topic", "x/2", "--filter", "#"
    )
    assert status == 0
    assert [line.split() for line in output.splitlines()] == [
        ["kind", "upstream", "local"],
        ["rule", "a/+/b/#", "x/+/#"],
        ["topic", "a/1/b/c", "x/1/c"],
        ["topic", "other", "-"],
        ["topic", "a/2/b", "x/2"],
        ["filter", "a/+/b/#", "#"],
    ]


def test_a_preview_as_json() -> None:
    status, output = preview("a/# -> x/{#}", "--filter", "y/#", "--json")
    assert status == 0
    assert json.loads(output)["mapped"] == [
        {"kind": "rule", "upstream": "a/#", "local": "x/#"},
        {"kind": "filter", "upstream": "-", "local": "y/#"},
    ]


def test_a_fault_is_one_line() -> None:
    for arguments, parts in (
        (["a/+ -> x"], ['"a/+ -> x"', "{1}"]),
        (["a -> x", "--topic", "a/#"], ["a/#", "wildcard"]),
    ):
        status, text = preview(*arguments)
        assert (status, text.count("\n")) == (1, 1)
        check_named(text, ["Error: ", *parts])
