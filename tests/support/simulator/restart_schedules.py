"""Schedules for nodes that start again while clients move between others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from simulator.durable_client import DurableClient
from simulator.roaming import check_roaming
from simulator.staying import Staying
from simulator.world import Host

LEAVE_SECONDS: Final = 2.0  # between looks whether subscribers have left the nodes that are about to fail
REST_SECONDS: Final = 6.0
HANDING_SECONDS: Final = 0.15  # in which a session leaves
MOVES: Final = 0.1  # of all steps of a subscriber


class Beside(Staying):
    """Publishers stay at their nodes; subscribers move between nodes that do not fail, and so find their sessions each time.

    failing  nodes that fail, and that no subscriber comes to
    """

    stays = ("publisher",)

    def __init__(self, seed: int, count: int, **options: Any) -> None:
        self.failing: list[Host] = []
        super().__init__(seed, count, adopt_after=60.0, **options)
        self.moving = MOVES
        for station in self.stations.values():
            for client in station.clients:
                client.may_begin_anew = False

    def fail(self, hosts: list[Host]) -> None:
        """These are about to fail, and others are well."""
        self.failing = hosts
        moving = [client for station in self.stations.values() for client in station.subscribers]
        for client in moving:
            if client.is_open and self.where[client] in hosts:
                client.disconnect(False, self.world.now)
        while any(self.where[client] in hosts for client in moving):
            self.run(self.rng.random() * LEAVE_SECONDS, 20.0)
        self.run(1.0, 20.0)

    def move_from(self, host: Host) -> None:
        """The subscribers at the node come to others at once."""
        others = [each for each in self.awake if each is not host]
        for client in [client for client, where in self.where.items() if where is host and not self._stays(client)]:
            client.lose()
            self._connect(self.rng.choice(others), client)

    def _connect(self, host: Host, client: DurableClient) -> None:
        if host in self.failing and not self._stays(client):
            host = self.rng.choice([each for each in self.awake if each not in self.failing])
        super()._connect(host, client)


def nodes_start_again_while_clients_move(seed: int) -> None:
    """One is killed, and starts again once or twice, while another one stands still or not: sessions that leave wait for it."""
    beside = Beside(seed, 5)
    rng = beside.rng
    for _ in range(3):
        beside.run(rng.random() * 2.0, 30.0)
        still, killed = rng.sample(beside.federation.hosts, 2)
        beside.fail([still, killed])
        if rng.random() < 0.7:
            still.stand_still(rng.random() * 5.0)
        for _ in range(rng.choice((1, 1, 2, 3))):
            beside.run(rng.random() * 2.0, 30.0)
            beside.kill(killed)
            beside.run(rng.choice((0.2, 2.0, 14.0)) * rng.random(), 20.0)
            beside.start(killed)
            beside.run(rng.random() * 3.0, 30.0)
        beside.run(REST_SECONDS, 20.0)
        beside.failing = []
    check_roaming(beside)


def homes_begin_anew_while_clients_move(seed: int) -> None:
    """One is lost with its disk while its clients come to others, and starts again soon."""
    beside = Beside(seed, 5)
    rng = beside.rng
    for station in beside.stations.values():
        for client in station.clients:
            client.may_begin_anew = True
    for _ in range(2):
        beside.run(rng.random() * 2.0, 30.0)
        beside.until_whole()
        lost = rng.choice(beside.federation.hosts)
        beside.move_from(lost)
        beside.run(rng.random() * HANDING_SECONDS, 0.0)
        beside.lose(lost)
        beside.run(rng.choice((0.2, 2.0, 8.0)) * rng.random(), 20.0)
        beside.start(lost)
        beside.run(REST_SECONDS, 30.0)
    check_roaming(beside)


RESTART_SCHEDULES: Final[tuple[Callable[[int], None], ...]] = (
    nodes_start_again_while_clients_move,
    homes_begin_anew_while_clients_move,
)
