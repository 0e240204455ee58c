"""A node that did not answer a claim is not waited for, until it has heard what it missed."""

from __future__ import annotations

from typing import Any

import pytest

from federation.settings import ReplicationSettings
from session_home import Home
from simulator.durable_client import DurableClient
from simulator.federation import Federation
from simulator.node_store import Disk
from simulator.world import Host


class Moving:
    """Three nodes, and clients that are let in with their sessions, or say so."""

    def __init__(self, replication: ReplicationSettings | None = None) -> None:
        options: dict[str, Any] = {} if replication is None else {"replication": replication}
        self.federation = Federation(1, 3, each=[{"disk": Disk()} for _ in range(3)], **options)
        self.federation.until_agreement(30.0, "the start")

    def client(self, client_id: str) -> DurableClient:
        return DurableClient(client_id, 5, {f"{client_id}/#": 1}, 0, False)

    def connect(self, client: DurableClient, host: Host) -> None:
        federation = self.federation
        client.lose()
        for each in federation.running:
            node = federation.node(each)
            if client in node.clients:
                node.clients.remove(client)
        node = federation.node(host)
        node.clients.append(client)
        client.connect(node.broker, federation.world.now)
        host.settle()
        federation.world.run_until(lambda: client.is_online and bool(client.granted_at), 5.0, "the client is served")
        federation.run(1.0)


def test_a_claim_that_has_gone_to_another_node_is_heard_from_nobody() -> None:
    """The client whose claim a node missed, while it was down, is elsewhere when that is back."""
    moving = Moving()
    first, second, third = moving.federation.hosts
    client, other = moving.client("client"), moving.client("other")
    moving.connect(client, third)
    client.lose()
    third.crash()
    moving.connect(other, first)
    moving.connect(other, second)
    third.start()
    moving.federation.until_agreement(30.0, "the start of the third node")
    moving.connect(client, first)
    assert client.faults == other.faults == []


def test_a_client_that_claims_again_keeps_no_node_silent() -> None:
    """The node has heard the claim that it missed. That it was told the next one just now says nothing."""
    home = Home()
    homes = home.sessions.homes
    at = homes.by_client["c"] = homes.made("c", 1)
    sender = home.node.senders["n2"]
    sender.is_living = True
    home.sessions.silent["n2"] = at, at.number
    sender.outbox.claims_told = at.number - 1
    assert not home.sessions._is_awaited("n2", sender, 1000.0)
    sender.outbox.claims_told = at.number
    homes.claim_anew(at, at.counter)
    assert home.sessions._is_awaited("n2", sender, 1000.0)


def test_a_home_that_is_cut_off_is_adopted_when_its_streams_have_ended() -> None:
    """As where its machine has lost its power: nothing ends the streams but time."""
    moving = Moving(ReplicationSettings(2, "serve", 5.0))
    federation = moving.federation
    third = federation.hosts[2]
    client = moving.client("client")
    moving.connect(client, third)
    federation.run(20.0)
    federation.world.partition([third], keeps_streams=True)

    def is_adopted() -> bool:
        others = [federation.node(host).node.copies for host in federation.hosts[:2]]
        return any(copies is not None and copies.adoptions.stores for copies in others)

    federation.world.run_until(is_adopted, 60.0, "the store of the node is adopted")


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("has_missed_another", [False, True])
def test_a_client_waits_longer_for_the_node_that_its_session_went_to(at: int, has_missed_another: bool) -> None:
    """It is back at its former home, or at one that has heard of the move. That node has much to do, and has perhaps not
    answered another claim in time (homes_come_back_while_they_are_adopted 94001, no session)."""
    moving = Moving()
    hosts = moving.federation.hosts
    client = moving.client("client")
    moving.connect(client, hosts[0])
    moving.connect(client, hosts[1])
    hosts[1].hold_messages(4.0)
    if has_missed_another:
        moving.connect(moving.client("other"), hosts[at])
    moving.connect(client, hosts[at])
    assert client.faults == []
