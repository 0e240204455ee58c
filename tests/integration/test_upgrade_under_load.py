"""`gmqttctl upgrade` of three real nodes while durable clients publish and read: nothing is lost; how long each was away."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from federation.upgrade_command import Upgrade, UpgradePlan
from gmqttctl.connection import Connection
from session_clients import SessionClient, SessionPublisher, SessionSubscriber
from waiting import eventually

if TYPE_CHECKING:
    from node_process import Node, Nodes

SUBSCRIBERS: Final = 30
RATE: Final = 100.0  # messages a second of each publisher
SECONDS: Final = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Timed(SessionClient):
    """away  the longest time in seconds from the end of a connection to the CONNACK of the next one
    ways  of that time: seconds since its beginning, port and what ended the connection, for each one
    """

    away = 0.0
    ways: tuple[str, ...] = ()
    _ended_at = 0.0
    _tried: tuple[str, ...] = ()

    def _ended(self, error: BaseException | None) -> None:
        port, now = self.port, time.monotonic()
        super()._ended(error)
        self._ended_at = self._ended_at or now
        self._tried += (
            f"{now - self._ended_at:.3f} s: {port} {'closed' if error is None else error!r}, next {self.port}",
        )

    def connected(self) -> None:
        if self._ended_at:
            passed = time.monotonic() - self._ended_at
            if passed > self.away:
                self.away, self.ways = passed, (*self._tried, f"{passed:.3f} s: {self.port} CONNACK")
            self._ended_at, self._tried = 0.0, ()
        super().connected()


class Subscriber(Timed, SessionSubscriber):
    pass


class Publisher(Timed, SessionPublisher):
    pass


async def federation(nodes: Nodes, tmp_path: Path) -> list[Node]:
    made: list[Node] = []
    for number in range(3):
        node = nodes.make_federated(made[:1], {"data_dir": str(tmp_path / f"data{number}")})
        node.config["plugins"]["federation"]["server_reference"] = f"127.0.0.1:{node.port}"
        node.config["mqtt"] = {"max_queued_messages": 100_000}
        node.config["api"]["grpc"] = [{"address": f"127.0.0.1:{nodes.free_port()}"}]
        made.append(await node.start())
    await nodes.all_alive(made)
    return made


async def test_nothing_is_lost_in_an_upgrade_under_load(
    nodes: Nodes, tmp_path: Path, record_property: Any, capsys: Any
) -> None:
    made = await federation(nodes, tmp_path)
    by_name = {node.name: node for node in made}
    subscribers = [Subscriber(made[number % 3].port, f"subscriber {number}") for number in range(SUBSCRIBERS)]
    publishers = [Publisher(node.port, f"publisher {node.name}", rate=RATE) for node in made]
    everybody: list[Timed] = [*subscribers, *publishers]
    for client in everybody:
        client.others = [node.port for node in made if node.port != client.port]
    for subscriber in subscribers:
        subscriber.start()
        await subscriber.subscribed.wait()
    for publisher in publishers:
        publisher.start()
    loop = asyncio.get_running_loop()

    async def restarted(node: Node) -> None:
        await node.stop()
        await node.start()

    def restart(name: str, server: str) -> None:
        asyncio.run_coroutine_threadsafe(restarted(by_name[name]), loop).result(SECONDS)

    servers = tuple(node.config["api"]["grpc"][0]["address"] for node in made)
    said: list[str] = []
    began = time.monotonic()
    upgrade = Upgrade(Connection(servers), restart, UpgradePlan(rate=500, seconds=SECONDS), said.append)
    await asyncio.to_thread(upgrade.run)
    passed = time.monotonic() - began
    assert said[-1] == "all nodes are upgraded"
    for publisher in publishers:
        publisher.enough()
        await publisher.done.wait()
    sent = {topic: count for publisher in publishers for topic, count in publisher.sent.items()}
    await eventually(lambda: all(subscriber.has_all(sent) for subscriber in subscribers), "all messages came", SECONDS)
    for client in everybody:
        await client.stop()
    faults = [fault for subscriber in subscribers for fault in subscriber.broken_promises(sent)]
    assert faults + [fault for publisher in publishers for fault in publisher.faults] == []
    assert min(client.away for client in everybody) > 0  # each node was drained while it had clients
    away = sorted(client.away for client in everybody)
    record_property("longest_away_seconds", round(away[-1], 3))
    with capsys.disabled():
        print(
            f"\nupgrade of 3 nodes in {passed:.1f} s, {sum(sent.values())} messages to each of {SUBSCRIBERS} clients: "
            f"away at most {away[-1]:.3f} s, median {away[len(away) // 2]:.3f} s"
        )
        print("the longest:", *max(everybody, key=lambda client: client.away).ways, sep="\n  ")
