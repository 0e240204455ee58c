"""`gmqttctl clients` against a real API."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from click.testing import CliRunner, Result

from api_calls import api_settings
from broker.api.clients import ClientService
from broker.api.pb import admin_pb2
from broker.api.server import ApiServer
from broker.codec.properties import USER_PROPERTY
from broker.origin import NAME
from broker.server.logging import get_logger
from broker.session.group_queues import GroupQueues
from broker_world import World
from federation.links.bridging.bridging import bridging_of
from gmqttctl.cli import main
from gmqttctl.errors import EXIT_NOT_FOUND


class Host:
    """The part of broker.server.host.Host that the service needs: a client with a message that waits, one that is away, a link,
    and the queue of a group. All this was 26 and a half hours ago."""

    def __init__(self) -> None:
        self.world = World()
        self.broker = self.world.broker
        bridging_of(self.broker)
        self.world.connect("away", expiry=60).cut()
        self.world.connect("door", 4, username="site \x1b[31m").subscribe(b"a")
        self.world.connect("north", properties={USER_PROPERTY: [(NAME.decode(), "1 domain=oslo max-hops=2")]})
        GroupQueues(self.broker).declare(b"workers", b"jobs", 10, 1000, 0.0, self.world.now)
        self.world.publish(b"jobs", b"1", qos=1)

    def now(self) -> float:
        return self.world.now

    def wall_time(self, monotonic: float) -> float:
        return time.time() - 26.5 * 3600


async def run(*arguments: str, serves: bool = True) -> Result:
    api = ApiServer(api_settings(["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:0"]), {}, get_logger("api"), None)
    if serves:
        host: Any = Host()
        api.register(admin_pb2.DESCRIPTOR.services_by_name["ClientService"], ClientService(host, api.long_calls))
    await api.start()
    try:
        environment = {"GMQTTCTL_SERVERS": api.grpc_addresses[0]}
        return await asyncio.to_thread(
            CliRunner().invoke, main, ["clients", *arguments], env=environment, catch_exceptions=False
        )
    finally:
        await api.stop()


async def test_clients_are_listed_with_their_state() -> None:
    lines = (await run()).output.splitlines()
    assert lines[0].split() == [
        "client",
        "user",
        "address",
        "mqtt",
        "state",
        "since",
        "in",
        "flight",
        "queued",
        "dropped",
        "link",
        "of",
    ]
    assert [line.split() for line in lines[1:]] == [
        ["away", "-", "127.0.0.1:1", "5.0", "away", "1d", "2h", "0", "0", "0", "-"],
        ["door", "site", "\\x1b[31m", "127.0.0.1:1", "3.1.1", "connected", "1d", "2h", "0", "0", "0", "-"],
        ["north", "-", "127.0.0.1:1", "5.0", "connected", "1d", "2h", "0", "0", "0", "oslo"],
        ["$queue/workers/jobs", "-", "-", "5.0", "queue", "1d", "2h", "0", "1", "0", "-"],
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--link"], ["north"]),
        (["--connected"], ["door", "north"]),
        (["--connected", "d"], ["door"]),
        (["a"], ["away"]),
        ([], ["away", "door", "north", "$queue/workers/jobs"]),
    ],
)
@pytest.mark.parametrize("page_size", [1, 2, 1000])
async def test_clients_are_chosen_and_come_in_pages(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: list[str], page_size: int
) -> None:
    monkeypatch.setattr("gmqttctl.listing.PAGE_SIZE", page_size)
    found = json.loads((await run("list", "--json", *arguments)).output)
    assert [client["client_id"] for client in found["clients"]] == expected


async def test_no_client_is_one_line() -> None:
    assert (await run("list", "nobody")).output == "no clients\n"


async def test_a_node_without_the_plugin_names_it() -> None:
    result = await run(serves=False)
    assert result.exit_code == 1
    assert result.output.startswith("gmqttctl: node 127.0.0.1:")
    assert "plugin admin" in result.output


async def test_a_client_that_is_not_there_is_not_disconnected() -> None:
    result = await run("kick", "nobody", "--yes")
    assert (result.exit_code, "nobody" in result.output) == (EXIT_NOT_FOUND, True), result.output
