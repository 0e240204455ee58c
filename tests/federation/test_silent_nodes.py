"""A node that did not answer a claim is not waited for, until it has heard what it missed."""

from __future__ import annotations

from simulator.durable_client import DurableClient
from simulator.federation import Federation
from simulator.node_store import Disk
from simulator.world import Host


class Moving:
    """Three nodes, and clients that are let in with their sessions, or say so."""

    def __init__(self) -> None:
        self.federation = Federation(1, 3, each=[{"disk": Disk()} for _ in range(3)])
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
