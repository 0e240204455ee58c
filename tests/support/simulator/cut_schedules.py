"""Schedules for nodes that are cut off while some of their clients stay there, and others move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from simulator.copy_schedules import Copied
from simulator.durable_client import DurableClient
from simulator.durable_station import SUBSCRIBERS
from simulator.federation import RETURN_LIMIT
from simulator.roaming import check_roaming
from simulator.staying import Staying
from simulator.world import Host

REST_SECONDS: Final = 20.0
"""Until what waits for a former home has come."""


class Settled(Staying):
    """The first publisher and the first two subscribers of each node stay there: nothing of what is promised to a client that
    is never on the other side of a cut is left out for them."""

    stays = ("publisher 0", "subscriber 0", "subscriber 1")

    def __init__(self, seed: int, count: int, **options: Any) -> None:
        super().__init__(seed, count, adopt_after=5.0, **options)
        self.moves_are_ordered = False
        self.publishers_are_cut = True
        for station in self.stations.values():
            for client in station.clients:
                if self._stays(client):
                    client.may_begin_anew = False


def nodes_are_cut_off_with_their_clients(seed: int) -> None:
    """One node is cut off, shorter or longer than until its sessions are adopted. Half of the time its keeper has just
    started."""
    settled = Settled(seed, 3 + seed % 3)
    rng = settled.rng
    for _ in range(2):
        settled.run(rng.random() * 4.0, 30.0)
        victim = rng.choice(settled.federation.hosts)
        if rng.random() < 0.5:
            for keeper in settled.keepers_of(victim):
                settled.kill(keeper)
                settled.run(rng.random() * 3.0, 20.0)
                settled.start(keeper)
                settled.run(rng.random() * 4.0, 20.0)
        settled.cut_off = [victim]
        settled.world.partition([victim], keeps_streams=rng.random() < 0.7)
        settled.run(5.0 + rng.random() * 35.0, 20.0)
        settled.world.heal()
        settled.run(REST_SECONDS, 20.0)
        settled.cut_off = []
    check_roaming(settled)


def nodes_stand_still_with_their_clients(seed: int) -> None:
    """One node stands still, until its sessions are adopted or shorter, and another one that has messages for it dies and comes
    back meanwhile."""
    settled = Settled(seed, 3 + seed % 3)
    rng = settled.rng
    for _ in range(2):
        settled.run(rng.random() * 4.0, 30.0)
        still, killed = rng.sample(settled.federation.hosts, 2)
        seconds = 2.0 + rng.random() * 18.0
        settled.cut_off = [still]
        still.stand_still(seconds)
        settled.run(seconds * rng.random(), 20.0)
        settled.kill(killed)
        settled.run(seconds * rng.random(), 20.0)
        settled.start(killed)
        settled.run(REST_SECONDS, 20.0)
        settled.cut_off = []
    check_roaming(settled)


class Napping(Copied):
    """The last subscriber of each node is away while `is_night`: nothing that is promised to a client that is never on the
    other side of a cut is left out for it, though its session may be on both."""

    def __init__(self, seed: int, count: int, **options: Any) -> None:
        super().__init__(seed, count, adopt_after=5.0, **options)
        self.moves_are_ordered = False
        self.publishers_are_cut = True
        self.is_night = False
        self.nappers = [station.subscribers[SUBSCRIBERS - 1] for station in self.stations.values()]
        for napper in self.nappers:
            napper.may_begin_anew = False
            napper.has_two_homes = True

    def _client_acts(self, host: Host, client: DurableClient) -> None:
        if not self.is_night or client not in self.nappers:
            super()._client_acts(host, client)
        elif client.is_open:
            client.disconnect(True, self.world.now)
            self.where[client].settle()


def nodes_are_cut_off_while_clients_are_away(seed: int) -> None:
    """Sessions go on at both sides of a cut. Their clients are away until it is over, and some nodes have started again."""
    napping = Napping(seed, 4 + seed % 2)
    rng = napping.rng
    hosts = napping.federation.hosts
    napping.run(1.0 + rng.random() * 4.0, 30.0)
    napping.is_night = True
    napping.run(1.0, 30.0)
    victims = rng.sample(hosts, rng.choice((1, 2, 2)))
    napping.cut_off = victims
    napping.world.partition(victims, keeps_streams=rng.random() < 0.7)
    napping.run(5.0 + rng.random() * 40.0, 20.0)
    napping.world.heal()
    napping.run(REST_SECONDS, 20.0)
    napping.cut_off = []
    for victim in rng.sample(victims, rng.randrange(len(victims) + 1)):
        napping.kill(victim)
        napping.run(rng.random() * 8.0, 20.0)
        napping.start(victim)
        napping.run(2.0, 20.0)
    napping.federation.until_agreement(RETURN_LIMIT, "the faults")
    napping.is_night = False
    napping.run(rng.random() * 4.0, 20.0)
    check_roaming(napping)


CUT_SCHEDULES: Final[tuple[Callable[[int], None], ...]] = (
    nodes_are_cut_off_with_their_clients,
    nodes_stand_still_with_their_clients,
    nodes_are_cut_off_while_clients_are_away,
)
