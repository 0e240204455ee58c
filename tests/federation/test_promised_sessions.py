"""A client waits for a session that a node has said to hand over, and not for one that has come, or has ended, by now."""

from __future__ import annotations

import pytest

from broker.codec.packets import Disconnect
from broker.codec.properties import SESSION_EXPIRY_INTERVAL
from simulator.client import Client
from simulator.federation import Federation
from simulator.node_store import Disk


class Siblings:
    """Two workers of one node that have just started."""

    def __init__(self, is_starting: bool) -> None:
        self.federation = Federation(2, 2, each=[{"disk": Disk()}, {"disk": Disk()}])
        self.federation.until_agreement(30.0, "the start")
        for host in self.federation.hosts:
            sessions = self.federation.node(host).node.sessions
            assert sessions is not None
            sessions.siblings = frozenset({"n1", "n2"} - {host.name.replace("h", "n")})
            if is_starting:
                sessions.homes.starting_until = self.federation.world.now + 30.0

    def connect(self, at: int) -> Client:
        host = self.federation.hosts[at]
        node = self.federation.node(host)
        client = Client(node.broker, "c", self.federation.world.now, expiry=3600)
        node.clients.append(client)
        host.settle()
        return client

    def end(self, at: int, client: Client) -> None:
        client.send(Disconnect(0, {SESSION_EXPIRY_INTERVAL: 0}), self.federation.world.now)
        self.federation.hosts[at].settle()

    def until_served(self, client: Client, seconds: float) -> None:
        world = self.federation.world
        world.run_until(lambda: client._is_welcome, seconds, "the client is served")


@pytest.mark.parametrize("is_starting", [False, True])
@pytest.mark.parametrize("moves", ["01", "0100", "10"])
@pytest.mark.parametrize("pause", [0.0, 0.3])
@pytest.mark.parametrize("ends", [False, True])
def test_a_client_that_moves_often_waits_for_no_session_that_it_has(
    moves: str, pause: float, ends: bool, is_starting: bool
) -> None:
    siblings = Siblings(is_starting)
    places = [int(place) for place in moves]
    for at in places:
        client = siblings.connect(at)
        siblings.until_served(client, 1.0)
        siblings.federation.run(pause)
    if ends:
        siblings.end(places[-1], client)
        for at in (places[-1], 1 - places[-1]):
            siblings.until_served(siblings.connect(at), 1.0)
