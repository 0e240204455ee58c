"""`gmqttctl list_queues` against a real API, and the metrics of queues."""

from __future__ import annotations

import asyncio
import json

from click.testing import CliRunner, Result

from api_calls import api_settings
from broker.api.server import ApiServer
from broker.server.logging import get_logger
from broker_world import World
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.links.api.queues import GroupQueuesService
from federation.links.pb import link_status_pb2 as pb
from federation.links.queue_commands import HEAD
from federation.links.queue_reports import queue_metrics
from federation.links.queues import QUEUE_DEFAULTS, Queues
from gmqttctl.cli import main


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


async def run(*arguments: str) -> Result:
    world, queues = some_queues()
    api = ApiServer(api_settings(["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:0"]), {}, get_logger("api"), None)
    service = GroupQueuesService("n1", queues, lambda: world.now)
    api.register(pb.DESCRIPTOR.services_by_name["GroupQueues"], service)
    await api.start()
    try:
        environment = {"GMQTTCTL_SERVERS": api.grpc_addresses[0]}
        return await asyncio.to_thread(
            CliRunner().invoke, main, ["list_queues", *arguments], env=environment, catch_exceptions=False
        )
    finally:
        await api.stop()


async def test_queues_are_listed_with_their_age() -> None:
    lines = (await run()).output.splitlines()
    assert tuple(lines[0].split()) == HEAD
    assert lines[1].split() == ["$share/crew/tasks", "p1", "0", "0", "-", "1", "0", "0", "0"]
    assert lines[2].split() == ["$share/workers/jobs/#", "p0", "2", "526", "3", "s", "0", "0", "0", "0"]


async def test_queues_as_json() -> None:
    empty, full = json.loads((await run("--json")).output)["queues"]
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
    assert found["gmqtt_jobs_lent_total"] == {(): 0}
