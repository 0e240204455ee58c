"""Membership of whole nodes in network namespaces: packets that get lost or come late, cuts of one direction, partitions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from lossy_network import ADDRESSES, NAMESPACES_MISSING, LossyNetwork, namespaces_missing, node_in
from node_process import FAILED_SECONDS, status_becomes
from waiting import eventually

if TYPE_CHECKING:
    from node_process import Node, Nodes

pytestmark = [pytest.mark.slow, pytest.mark.skipif(namespaces_missing(), reason=NAMESPACES_MISSING)]

COUNT = 5
ROUNDS = 15
"""Rounds of probes of each node: each pings all others in one of them."""
FAILED = re.compile(r"member failed node=(\S+)")
MakeNetwork = Callable[[float, float], LossyNetwork]


@pytest_asyncio.fixture
async def make_network() -> AsyncIterator[MakeNetwork]:
    made: list[LossyNetwork] = []

    def make(loss: float, delay: float) -> LossyNetwork:
        network = LossyNetwork(loss, delay, COUNT)
        made.append(network)
        network.start()
        return network

    yield make
    for network in made:
        network.stop()


async def cluster(nodes: Nodes, network: LossyNetwork) -> list[Node]:
    """A node in each namespace. All join the first one."""
    made: list[Node] = []
    for number, namespace in enumerate(network.namespaces):
        node = nodes.make_federated([], None, node_in(namespace))
        federation = node.config["plugins"]["federation"]
        federation |= {
            "fed_addr": f"{ADDRESSES[number]}:8901",
            "gossip_addr": f"{ADDRESSES[number]}:8902",
            "retry_join": [] if number == 0 else [f"{ADDRESSES[0]}:8902"],
        }
        made.append(await node.start())
    await nodes.all_alive(made)
    return made


async def rounds_pass(network: LossyNetwork, seconds_max: float) -> None:
    """Wait until so many packets have passed that each node has pinged each other one ROUNDS times."""
    wanted = network.passed + 2 * COUNT * (COUNT - 1) * ROUNDS
    await eventually(lambda: network.passed >= wanted, "rounds of probes pass", seconds_max)


def failures(node: Node) -> list[str]:
    """Names of the members that the node has ever taken for failed."""
    return FAILED.findall(node.log())


@pytest.mark.parametrize(("loss", "delay"), [(0.1, 0.0), (0.3, 0.0), (0.0, 0.2), (0.1, 0.2)])
async def test_loss_and_delay_make_nobody_fail_and_hide_no_crash(
    nodes: Nodes, make_network: MakeNetwork, loss: float, delay: float
) -> None:
    """Lifeguard's paper has no figures for loss. Here: a probe fails when the ping, three others' pings and TCP get nothing
    through, and a suspicion must then stay unrefuted for 4 s."""
    network = make_network(loss, delay)
    made = await cluster(nodes, network)
    await rounds_pass(network, 300.0)
    assert [failures(node) for node in made] == [[]] * COUNT
    *rest, victim = made
    await victim.kill()
    for node in rest:
        await status_becomes(node, victim.name, "STATUS_FAILED")
    assert [failures(node) for node in rest] == [[victim.name]] * (COUNT - 1)


async def test_a_cut_of_one_direction_between_two_nodes_makes_nobody_fail(
    nodes: Nodes, make_network: MakeNetwork
) -> None:
    """The others ping for them."""
    network = make_network(0.0, 0.001)
    made = await cluster(nodes, network)
    network.cut([1], [2])
    network.cut([3], [0])
    await rounds_pass(network, 300.0)
    assert [failures(node) for node in made] == [[]] * COUNT


async def test_a_node_that_nobody_hears_fails_for_all_and_comes_back(nodes: Nodes, make_network: MakeNetwork) -> None:
    network = make_network(0.0, 0.001)
    made = await cluster(nodes, network)
    network.cut([4], [0, 1, 2, 3])
    *rest, unheard = made
    for node in rest:
        await status_becomes(node, unheard.name, "STATUS_FAILED")
    assert [failures(node) for node in rest] == [[unheard.name]] * (COUNT - 1)
    network.heal()
    await nodes.all_alive(made)
    assert {name for node in rest for name in failures(node)} == {unheard.name}


async def test_a_partition_of_minutes_heals(nodes: Nodes, make_network: MakeNetwork) -> None:
    network = make_network(0.0, 0.001)
    made = await cluster(nodes, network)
    network.split([0, 1], [2, 3, 4])
    here, there = made[:2], made[2:]
    for side, others in ((here, there), (there, here)):
        for node in side:
            for other in others:
                await status_becomes(node, other.name, "STATUS_FAILED", 2 * FAILED_SECONDS)
    await rounds_pass(network, 300.0)  # until no side keeps the other one in the table of its gossip
    network.heal()
    await nodes.all_alive(made)
    for side, others in ((here, there), (there, here)):
        for node in side:
            assert set(failures(node)) == {other.name for other in others}
