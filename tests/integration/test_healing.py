"""Members find each other again, with real processes: a split that loses the only seed, another address, a leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from node_process import FAILED_SECONDS, free_port, gossip_address, status_becomes
from split_network import split_network
from waiting import eventually

if TYPE_CHECKING:
    from node_process import Node, Nodes


def only_seed(node: Node, seed: Node | None) -> None:
    federation = node.config["plugins"]["federation"]
    federation["retry_join"] = [] if seed is None else [seed.config["plugins"]["federation"]["advertise_gossip_addr"]]
    federation["reconnect_interval"] = "1s"


async def test_a_split_heals_although_the_only_seed_is_lost(nodes: Nodes) -> None:
    made = [nodes.make_federated() for _ in range(4)]
    first, second, third, fourth = made
    async with split_network(made) as network:
        for node in made:
            only_seed(node, None if node is first else first)
        for node in made:
            await node.start()
        await nodes.all_alive(made)
        network.split(first, second)
        for node in (third, fourth):
            await status_becomes(second, node.name, "STATUS_FAILED")
            await status_becomes(node, second.name, "STATUS_FAILED")
        await first.kill()
        network.heal()
        await nodes.all_alive([second, third, fourth])
        for node in (second, third, fourth):
            await node.stop()


async def test_a_node_that_failed_is_known_at_once_at_another_address(nodes: Nodes) -> None:
    first, second, third = await nodes.federation(3)
    await third.kill()
    for node in (first, second):
        await status_becomes(node, third.name, "STATUS_FAILED")
    federation = third.config["plugins"]["federation"]
    federation["gossip_addr"] = f"127.0.0.1:{free_port()}"
    await third.start()

    async def all_know() -> bool:
        for node in (first, second):
            member = (await node.members())[third.name]
            if (member["status"], member["addr"]) != ("STATUS_ALIVE", gossip_address(third)):
                return False
        return True

    await eventually(all_know, f"all know {third.name} at its other address", FAILED_SECONDS)
    for node in (first, second):  # Serf's rule would call it a conflict for half a minute
        assert "two nodes have one name" not in node.log()


@pytest.mark.one_process("has a node leave by the API, which one with workers refuses")
async def test_a_node_that_left_joins_again_without_a_restart(nodes: Nodes) -> None:
    first, second = await nodes.federation(2)
    for _ in range(2):
        assert (await second.rest("POST", "/v1/federation/leave"))[0] == 200
        await status_becomes(first, second.name, "STATUS_LEFT")
        body = {"hosts": [gossip_address(first)]}
        assert (await second.rest("POST", "/v1/federation/join", body))[0] == 200
        await nodes.all_alive([first, second])
