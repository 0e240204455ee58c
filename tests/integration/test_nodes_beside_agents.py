"""A whole node among real agents: it stands still, is killed, comes back, and comes back at another address."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

import pytest

from federation.gossip.keyring import key_text
from node_process import FAILED_SECONDS, free_port, gossip_address, status_becomes
from serf_agent import Agent, needs_serf, running_agent
from waiting import eventually

if TYPE_CHECKING:
    from node_process import Node, Nodes

pytestmark = [needs_serf, pytest.mark.slow]

KEY: Final = key_text(bytes(range(32)))


async def agents_list(agents: list[Agent], node: Node, status: str) -> None:
    """Wait until all agents list the node with the status, at its address of now."""

    async def is_so() -> bool:
        for agent in agents:
            member = (await agent.members()).get(node.name, {})
            if (member.get("status"), member.get("addr")) != (status, gossip_address(node)):
                return False
        return True

    await eventually(is_so, f"the agents list {node.name} as {status} at {gossip_address(node)}", FAILED_SECONDS)


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_node_that_fails_and_returns_beside_agents(nodes: Nodes, is_encrypted: bool) -> None:
    node = nodes.make_federated()
    federation = node.config["plugins"]["federation"]
    federation["encrypt_keys"] = [KEY] if is_encrypted else []
    options = [f"-encrypt={KEY}"] if is_encrypted else []
    async with running_agent("agent1", *options) as first, running_agent("agent2", *options) as second:
        agents = [first, second]
        federation["retry_join"] = [f"127.0.0.1:{first.port}"]
        await second.command("join", f"127.0.0.1:{first.port}")
        await node.start()
        names = [node.name, "agent1", "agent2"]
        await nodes.all_alive([node], names)
        await agents_list(agents, node, "alive")

        os.kill(node.pid, signal.SIGSTOP)
        await agents_list(agents, node, "failed")
        os.kill(node.pid, signal.SIGCONT)
        await agents_list(agents, node, "alive")
        await nodes.all_alive([node], names)

        await node.kill()
        await agents_list(agents, node, "failed")
        await node.start()
        await agents_list(agents, node, "alive")

        # Agents take a member at another address for a conflict of names until they have forgotten the first one, half a
        # minute after its failure; the node asks its seed until then.
        await node.kill()
        await agents_list(agents, node, "failed")
        federation["gossip_addr"] = f"127.0.0.1:{free_port()}"
        await node.start()
        await agents_list(agents, node, "alive")
        await nodes.all_alive([node], names)

        second.process.kill()
        await second.process.wait()
        await status_becomes(node, "agent2", "STATUS_FAILED")
        await node.stop()
        await agents_list([first], node, "left")
