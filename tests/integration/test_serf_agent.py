"""A real `serf agent` (Debian package `serf`) and a node in one cluster, over loopback sockets."""

from __future__ import annotations

import socket
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from federation.gossip.counters import Counters
from federation.gossip.messages import HAS_CRC, Alive
from federation.serf.config import SerfConfig
from federation.serf.events import (
    MemberFailed,
    MemberJoin,
    MemberLeave,
    MemberStatus,
    MemberUpdate,
)
from federation.serf.serf import Serf
from gossip_node import user_events
from mqtt_client import reached
from node_process import free_port, gossip_address, status_becomes
from our_member import TAGS, running_node
from serf_agent import Agent, needs_serf, running_agent
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Nodes

pytestmark = [needs_serf]


def has_probed(counters: Counters, probes: int) -> bool:
    return counters.probes_sent >= probes


@pytest.mark.parametrize("we_join", [True, False])
async def test_agent_and_node_see_each_other_and_a_graceful_leave(we_join: bool) -> None:
    async with running_agent("agent", "-tag=role=edge") as agent, running_node("ours") as node:
        if we_join:
            assert await node.shell.join([f"127.0.0.1:{agent.port}"]) == {}
        else:
            await agent.command("join", f"127.0.0.1:{node.port}")
        await node.event(MemberJoin, "agent")
        member = node.serf.member("agent")
        assert member is not None
        assert (member.tags, member.port, member.status) == ({"role": "edge"}, agent.port, MemberStatus.ALIVE)

        async def listed() -> bool:
            return (await agent.status("ours")) == "alive"

        await eventually(listed, "the agent lists the node")
        ours = (await agent.members())["ours"]
        assert ours["tags"] == TAGS
        assert ours["addr"] == f"127.0.0.1:{node.port}"

        assert await node.shell.leave(DEADLINE)

        async def left() -> bool:
            return (await agent.status("ours")) == "left"

        await eventually(left, "the agent lists the node as left")


async def test_agents_probe_us_and_we_see_one_killed() -> None:
    """Two agents, so that they also probe through each other."""
    async with running_agent("agent1") as first, running_agent("agent2") as second, running_node("ours") as node:
        await node.shell.join([f"127.0.0.1:{first.port}"])
        await second.command("join", f"127.0.0.1:{node.port}")
        await node.event(MemberJoin, "agent1")
        await node.event(MemberJoin, "agent2")
        # An agent probes each of two others every two seconds, and gives up a silent one within five more. The node probes
        # one member a second.
        counters = node.serf.counters
        for probes in (3, 6, 9):
            await eventually(partial(has_probed, counters, probes), f"{probes} probes of the node")
            for agent in (first, second):
                members = await agent.members()
                assert {name: member["status"] for name, member in members.items()} == dict.fromkeys(
                    ("agent1", "agent2", "ours"), "alive"
                )
                assert members["ours"]["tags"] == TAGS
        assert all(member.status == MemberStatus.ALIVE for member in node.serf.members())
        assert node.serf.counters.probes_failed == 0
        assert node.serf.counters.drops == 0

        second.process.kill()
        await second.process.wait()
        await node.event(MemberFailed, "agent2")
        assert node.status("agent2") == MemberStatus.FAILED
        assert node.status("agent1") == MemberStatus.ALIVE


@pytest.mark.slow
async def test_an_agent_is_a_member_of_a_federation_and_disturbs_nothing(nodes: Nodes, clients: Clients) -> None:
    """Whole nodes. The agent has no fed_addr, so it gets no event stream, and messages pass between the nodes. A member of this
    process shows how many probes there were: it probes one member a second, as the others do."""
    node1, node2 = await nodes.federation(2)
    subscriber = await clients.connect(node2.port, "subscriber")
    await subscriber.subscribe("t", qos=1)
    publisher = await clients.connect(node1.port, "publisher")
    await reached(publisher, "t", subscriber)
    names = ("agent", "prober", node1.name, node2.name)
    async with running_agent("agent", "-tag=role=edge") as agent, running_node("prober", {}) as prober:
        await agent.command("join", gossip_address(node1))
        await prober.shell.join([gossip_address(node2)])
        await nodes.all_alive([node1, node2], list(names))
        counters = prober.serf.counters
        for number in range(3):  # a silent member would be declared dead 5 s after a probe
            await eventually(partial(has_probed, counters, 5 * (number + 1)), "five probes more")
            listed = await agent.members()
            assert {name: member["status"] for name, member in listed.items()} == dict.fromkeys(names, "alive")
            for node in (node1, node2):
                members = await node.members()
                assert listed[node.name]["tags"] == members[node.name]["tags"]
                assert listed[node.name]["addr"] == members[node.name]["addr"]
                wanted = {
                    "name": "agent",
                    "addr": f"127.0.0.1:{agent.port}",
                    "tags": {"role": "edge"},
                    "status": "STATUS_ALIVE",
                    "suspected": False,
                    "gossip_version": 2,
                    "serf_version": 5,
                }
                assert members["agent"] | wanted == members["agent"]
            await publisher.publish("t", b"%d" % number, 1)
            assert (await subscriber.message()).payload == b"%d" % number
        assert counters.probes_failed == 0
        agent.process.kill()
        await agent.process.wait()
        for node in (node1, node2):
            await status_becomes(node, "agent", "STATUS_FAILED")
    await publisher.publish("t", b"after", 1)
    assert (await subscriber.message()).payload == b"after"
    for node in (node1, node2):  # no event stream to it was tried; the only warning is its failure
        lines = [line for line in node.log().splitlines() if "agent" in line and " info " not in line]
        assert ["member failed node=agent" in line for line in lines] == [True], node.log()


async def test_events_queries_tags_and_the_leave_of_the_agent() -> None:
    async with running_agent("agent") as agent, running_node("ours") as node:
        await node.shell.join([f"127.0.0.1:{agent.port}"])
        await node.event(MemberJoin, "agent")

        await agent.command("event", "-coalesce=false", "deploy", "now")

        async def delivered() -> bool:
            return [(name, payload) for _, name, payload in user_events(node.serf)] == [("deploy", b"now")]

        await eventually(delivered, "the node gets the event")
        assert "contacted all live nodes" in await agent.command("reachability")

        await agent.command("tags", "-set", "color=red")
        await node.event(MemberUpdate, "agent")
        member = node.serf.member("agent")
        assert member is not None
        assert member.tags == {"color": "red"}

        await agent.command("leave")
        await node.event(MemberLeave, "agent")
        assert node.status("agent") == MemberStatus.LEFT


async def test_the_agent_refutes_nothing_when_we_rejoin_after_a_leave() -> None:
    async with running_agent("agent") as agent, running_node("ours") as node:
        seed = [f"127.0.0.1:{agent.port}"]
        await node.shell.join(seed)
        await node.event(MemberJoin, "agent")
        assert await node.shell.leave(DEADLINE)

        async def status_is(wanted: str) -> bool:
            return (await agent.status("ours")) == wanted

        await eventually(lambda: status_is("left"), "status left")
        await node.shell.join(seed)
        await eventually(lambda: status_is("alive"), "status alive")


def gossip_with_crc(agent: Agent, last_event_time: int) -> bytes:
    """A packet with which a node that knows the agent tells it of the next user event."""
    serf = Serf(SerfConfig("me", "127.0.0.1", 8902), Random(1), 0.0)
    address = ("127.0.0.1", agent.port)
    alive = Alive(1, "agent", bytes((127, 0, 0, 1)), agent.port, b"\xff\x80", bytes((1, 5, 2, 2, 5, 5)))
    serf.receive_packet(alive.encode(), address, 0.0)
    serf.restore_times(0, last_event_time, 0)
    serf.user_event("deploy", b"")
    while True:
        serf.handle_timeout(serf.next_timeout())
        for data, destination in serf.packets_to_send():
            if data[0] == HAS_CRC and destination == address:
                return data


async def test_an_agent_reads_the_crc_of_a_node() -> None:
    """It drops a packet in which a bit has changed on the way."""
    async with running_agent("agent") as agent:
        whole, other = gossip_with_crc(agent, 49), gossip_with_crc(agent, 9)
        changed = bytes((whole[0], whole[1] ^ 1)) + whole[2:]

        async def event_time_becomes(time: int) -> None:
            async def is_so() -> bool:
                (line,) = [line for line in (await agent.command("info")).splitlines() if "event_time" in line]
                return int(line.rpartition("=")[2]) == time

            await eventually(is_so, f"the agent has the event time {time}")

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
            sending.sendto(changed, ("127.0.0.1", agent.port))
            sending.sendto(other, ("127.0.0.1", agent.port))
            await event_time_becomes(11)  # not 51
            sending.sendto(whole, ("127.0.0.1", agent.port))
            await event_time_becomes(51)


def test_free_port_is_free() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free_port()))
