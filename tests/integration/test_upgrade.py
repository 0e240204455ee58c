"""`gmqttctl upgrade` and `explain` with two nodes in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from auth_plugin import port_of
from broker.codec.properties import SESSION_EXPIRY_INTERVAL
from federation.upgrade_command import Upgrade, UpgradePlan, restart_by
from gmqttctl.cli import main
from gmqttctl.connection import Connection
from gmqttctl.errors import CommandError
from mqtt_client import reached
from node_process import free_port
from waiting import eventually
from wording import check_named

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

PLAN = UpgradePlan(rate=1000, seconds=60.0)


class Cluster:
    """Nodes n1, n2 in this process, which can be started again at their addresses."""

    def __init__(self, start: StartServer, folder: Path) -> None:
        self._start = start
        self.gossip = [free_port() for _ in range(2)]
        self.apis = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.configs = [self._config(index, folder) for index in range(2)]
        self.servers: list[Server] = []
        self.restarted: list[str] = []

    def _config(self, index: int, folder: Path) -> dict[str, Any]:
        return {
            "plugin_order": ["admin", "federation"],
            "data_dir": str(folder / f"n{index + 1}"),
            "api": {"grpc": [{"address": self.apis[index]}]},
            "plugins": {
                "federation": {
                    "node_name": f"n{index + 1}",
                    "fed_addr": f"127.0.0.1:{free_port()}",
                    "gossip_addr": f"127.0.0.1:{self.gossip[index]}",
                    "retry_join": [f"127.0.0.1:{self.gossip[1 - index]}"],
                    "retry_interval": "1s",
                }
            },
        }

    async def start(self) -> None:
        self.servers = [await self._start(config) for config in self.configs]

    def connection(self) -> Connection:
        return Connection(tuple(self.apis))

    async def restart(self, name: str) -> None:
        index = int(name[1:]) - 1
        await self.servers[index].stop()
        self.servers[index] = await self._start(self.configs[index])
        self.restarted.append(name)

    async def upgrade(self, restart: Callable[[str, str], None] | None = None) -> list[str]:
        loop = asyncio.get_running_loop()
        said: list[str] = []

        def in_loop(name: str, server: str) -> None:
            asyncio.run_coroutine_threadsafe(self.restart(name), loop).result(60)

        upgrade = Upgrade(self.connection(), restart or in_loop, PLAN, said.append)
        await asyncio.to_thread(upgrade.run)
        return said


@pytest.fixture
async def cluster(start_server: StartServer, tmp_path: Path) -> Cluster:
    made = Cluster(start_server, tmp_path)
    await made.start()
    return made


async def test_all_nodes_are_restarted_and_a_durable_session_loses_nothing(cluster: Cluster, clients: Clients) -> None:
    away = await clients.connect(port_of(cluster.servers[0]), "away", properties={SESSION_EXPIRY_INTERVAL: 1000})
    await away.subscribe("a/#", qos=1)
    await away.close()
    publisher = await clients.connect(port_of(cluster.servers[0]), "publisher")
    for number in range(5):
        await publisher.publish(f"a/{number}", b"1", qos=1)
    await publisher.close()
    said = await cluster.upgrade()
    assert cluster.restarted == ["n1", "n2"]
    assert "all nodes are upgraded" in said[-1]
    back = await clients.connect(port_of(cluster.servers[1]), "away", clean_start=False)
    assert sorted(message.topic for message in await back.take(5)) == [b"a/%d" % number for number in range(5)]


async def test_a_command_that_fails_ends_the_upgrade_and_the_node_serves_again(cluster: Cluster) -> None:
    with pytest.raises(CommandError, match="exit status of `false n1"):
        await cluster.upgrade(restart_by("false {node} {host}"))
    await eventually(lambda: cluster.servers[0].not_ready() == [], "it serves again")
    assert cluster.restarted == []
    for servers in ((cluster.apis[0],), (cluster.apis[0], cluster.apis[0])):
        upgrade = Upgrade(Connection(servers), restart_by("true"), PLAN, lambda text: None)
        with pytest.raises(CommandError, match="one node"):
            await asyncio.to_thread(upgrade.run)


async def test_the_clients_of_other_nodes_are_explained(cluster: Cluster, clients: Clients) -> None:
    reader = await clients.connect(port_of(cluster.servers[1]), "reader")
    await reader.subscribe("a/#", "$share/crew/a/b")
    publisher = await clients.connect(port_of(cluster.servers[0]), "publisher")
    await reached(publisher, "a/seen", reader)
    for servers, told in ((cluster.apis, True), (cluster.apis[:1], False)):
        result = await asyncio.to_thread(
            CliRunner().invoke, main, ["explain", "a/b", "--server", ",".join(servers)], catch_exceptions=False
        )
        assert result.exit_code == 0, result.output
        check_named(result.output, ["node n2: has subscriptions", "group $share/crew/a/b", "nodes n2"])
        assert ("reader  n2    a/#" in result.output) == told, result.output
        assert ("--server with its address" in result.output) != told
