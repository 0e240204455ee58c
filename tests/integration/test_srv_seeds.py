"""Whole nodes that find each other by SRV records alone, as the pods of a headless service of Kubernetes do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import resolving_program
from dns_server import running_dns_server
from node_process import Node, gossip_address, status_becomes

if TYPE_CHECKING:
    from dns_server import DnsServer
    from node_process import Nodes

NAME = "_gossip._tcp.gmqttd.test."


class ResolvingNode(Node):
    """`dns_port`: of the server on loopback that it asks."""

    dns_port = 0

    def program(self) -> list[str]:
        return [sys.executable, resolving_program.__file__, str(self.dns_port)]


def publish(server: DnsServer, *nodes: Node) -> None:
    """The records are those of these nodes, which all have the address of loopback, and ports of their own."""
    server.records[NAME, "SRV"] = [f"0 0 {gossip_address(node).rpartition(':')[2]} pod.test." for node in nodes]
    server.records["pod.test.", "A"] = ["127.0.0.1"]
    server.additional = ["pod.test."]


@pytest.mark.slow
async def test_nodes_find_each_other_by_srv_records(nodes: Nodes) -> None:
    async with running_dns_server() as server:
        made: list[Node] = []
        for _ in range(3):
            node = nodes.make_federated(kind=ResolvingNode)
            assert isinstance(node, ResolvingNode)
            node.dns_port = server.port
            node.config["plugins"]["federation"]["retry_join"] = [f"srv+{NAME}"]
            made.append(node)
        first, second, third = made
        await first.start()  # before there are records: it serves its clients, and goes on asking
        publish(server, first, second)
        await second.start()
        await nodes.all_alive([first, second])
        publish(server, first, second, third)
        await third.start()
        await nodes.all_alive(made)
        for node in (first, second, third):
            await node.logged("joined")
        asked = len(server.asked)
        assert asked >= 3

        await second.kill()  # the others ask again; the records name living members and one that is gone
        await status_becomes(first, second.name, "STATUS_FAILED")
        publish(server, first, third)
        await second.start()
        await nodes.all_alive(made)
        assert len(server.asked) > asked
