"""Clients that connect now to one node and now to another: their sessions follow."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from broker.store.kinds import RECEIVED
from simulator.durable_client import DurableClient
from simulator.federation import RETURN_LIMIT
from simulator.promise_oracle import difference
from simulator.promise_steps import REST_SECONDS
from simulator.promises import Promises
from simulator.world import Host

LOST_FLIGHTS: Final = 0.2  # of all connections
MOVES: Final = 0.03  # of all steps of a client


class Roaming(Promises):
    """`is_rough`: nodes fail, so a client may be let in without its session, which follows.

    moves  how often a client connected to another node than before
    moving  in how many of its steps a client does
    sides  where each client was last, while nodes are cut off from each other
    loses_flights  some connections end before a node has got what came behind CONNECT
    """

    def __init__(self, seed: int, count: int, is_rough: bool = False, **options: Any) -> None:
        self.where: dict[DurableClient, Host] = {}
        self.moves = 0
        self.moving = MOVES
        self.sides: dict[DurableClient, Host] = {}
        self.is_rough = is_rough
        self.loses_flights = False
        self._flights = Random(f"flights {seed}")
        # Both sides of a cut have a queue for a client, and then there is one.
        super().__init__(seed, count, mqtt={"max_queued_messages": 100_000}, **options)
        if is_rough:  # a client that goes on with an exchange on the other side of a cut does not end it on this one
            self.lasting_kinds = frozenset((RECEIVED,))
        for station in self.stations.values():
            for client in station.clients:
                client.may_begin_anew = is_rough

    def kill(self, host: Host) -> None:
        if host.process is None:
            return
        super().kill(host)
        for client, home in self.where.items():
            if home is host:
                client.lose()

    def _client_acts(self, host: Host, client: DurableClient) -> None:
        station = self.stations[host]
        now = self.world.now
        chance = self.rng.random()
        home = self.where.get(client, host)
        if client.is_online:
            self._served(client, home)
        if not client.is_open or chance < self.moving or (client.is_unheard and client.is_online):
            if client.is_unheard and client.is_online:
                station.away[client] = now + self._flights.choice((0.0, 5.0, 30.0)) * self._flights.random()
            if client.is_open and chance < 0.01 and home in self.awake:
                client.disconnect(chance < 0.005, now)
                home.settle()
            client.lose()
            if station.away.get(client, 0.0) <= now and self.rng.random() < 0.5:
                self._connect(self.rng.choice(self.awake), client)
            elif self.rng.random() < 0.2:
                station.away[client] = now + self.rng.choice((0.0, 1.0, 10.0)) * self.rng.random()
        elif home in self.awake:
            client.answer(self.rng.randrange(40), now)
            home.settle()

    def _connect(self, host: Host, client: DurableClient) -> None:
        before = self.where.get(client)
        if before is not None and before.process is not None and before is not host:
            self.moves += 1
        if host not in self.awake:
            host = self.rng.choice(self.awake)
        self.where[client] = host
        for node in self.nodes():
            if client in node.clients:
                node.clients.remove(client)
        client.is_unheard = self.loses_flights and self._flights.random() < LOST_FLIGHTS
        super()._connect(host, client)
        host.settle()

    def heal(self) -> None:
        super().heal()
        self.loses_flights = False
        for station in self.stations.values():
            for client in station.clients:
                if client.is_unheard:
                    client.lose()

    def _served(self, client: DurableClient, host: Host) -> None:
        """The client was let in at this node, and was last at one that is cut off from it, in the same cut."""
        if not self.world.is_cut():
            self.sides.pop(client, None)
            return
        side = self.sides.get(client, host)
        self.sides[client] = host
        if not (self.world.reaches(host.ip, side.ip) and self.world.reaches(side.ip, host.ip)):
            client.was_on_both_sides = True

    def until_online(self) -> None:
        def is_done() -> bool:
            done = True
            for station in self.stations.values():
                for client in station.clients:
                    if not client.is_open:
                        self._connect(self.where.get(client, self.awake[0]), client)
                    client.answer(1000, self.world.now)
                    done = done and client.is_done
            for host in self.awake:
                host.settle()
            return done

        self.world.run_until(is_done, 60.0, "all clients are online and done")


def check_roaming(roaming: Roaming) -> None:
    """Everything works again: each client has one session, and promises have been kept."""
    roaming.heal()
    roaming.until_online()
    roaming.federation.until_agreement(RETURN_LIMIT, "the faults")

    def found() -> str:
        roaming.until_online()
        return _homes(roaming) or difference(roaming, frozenset())

    roaming.federation.until_nothing_differs(found, RETURN_LIMIT, REST_SECONDS)


def _homes(roaming: Roaming) -> str:
    """Each client has one session, where it is connected, and all of it."""
    homes: dict[str, str] = {}
    for node in roaming.nodes():
        sessions = node.node.sessions
        assert sessions is not None
        for client_id, session in node.broker.sessions.items():
            if client_id in homes:
                return f"P3: {client_id} has a session on {homes[client_id]} and one on {node.name}"
            homes[client_id] = node.name
            if client_id not in sessions.homes.by_client:
                return f"P3: {node.name} has a session of {client_id} and is not its home"
            if session.sources is not None:
                return f"P6: the session of {client_id} still arrives at {node.name}"
        if sessions.moves.departing or sessions.homes.ended:
            waiting = [
                (departing.home, departing.is_handed, *departing.waiting)
                for departings in sessions.moves.departing.values()
                for departing in departings
            ]
            left = [*sessions.moves.departing, *sessions.homes.ended]
            return f"P6: {node.name} has sessions that have left: {left}, {waiting}"
    return ""
