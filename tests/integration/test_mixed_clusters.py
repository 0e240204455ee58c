"""Clusters of real agents and nodes: after each step the lists of all members agree."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import pytest

from federation.errors import JoinFailed
from federation.gossip.keyring import key_text
from federation.serf.asked_queries import AskedQuery, QueryParameters
from federation.serf.events import MemberStatus, NameConflict, QueryReceived, UserEventReceived
from our_member import OurNode, running_node
from serf_agent import Agent, needs_serf, running_agent
from waiting import DEADLINE, eventually

pytestmark = [needs_serf]

KEY: Final = bytes(range(32))
LOOKS: Final = 20
FAILED_SECONDS: Final = 120.0  # nine members take longer to suspect one, and the machine may be busy
Seen = dict[str, tuple[str, str, tuple[tuple[str, str], ...]]]
"""Status, address and tags by name."""


class Cluster:
    """`agents` and `nodes` by name; those that ended or left on purpose are taken out. `wanted`: statuses by name."""

    def __init__(self, agents: dict[str, Agent], nodes: dict[str, OurNode]) -> None:
        self.agents = agents
        self.nodes = nodes
        self.wanted = dict.fromkeys((*agents, *nodes), "alive")
        self.tags = {name: {"kind": "agent"} for name in agents} | {name: {"kind": "node"} for name in nodes}

    async def agree(self, again: Callable[[], Awaitable[object]] | None = None, /, **changed: str) -> None:
        """Wait until all running members list the statuses, the same addresses, and the tags. "": it is forgotten.

        `again` is called now and then meanwhile: nothing but a broadcast tells of a prune, and it may miss a member.
        """
        self.wanted |= changed
        looks = 0
        wanted = {name: status for name, status in self.wanted.items() if status}
        difference: list[str] = []

        async def is_so() -> bool:
            nonlocal looks
            if again is not None and looks % LOOKS == 0:
                await again()
            looks += 1
            difference.clear()
            lists = await self._lists()
            first = next(iter(lists.values()))
            for name, seen in lists.items():
                statuses = {other: status for other, (status, _, _) in seen.items()}
                if statuses != wanted or seen != first:
                    difference.append(f"{name}: {seen}")
            for other, (_, _, tags) in first.items():
                if dict(tags) != self.tags[other]:
                    difference.append(f"tags of {other}: {tags}")
            return not difference

        try:
            await eventually(is_so, f"all list {wanted}", FAILED_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}: {difference}") from None

    async def _lists(self) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        for name, agent in self.agents.items():
            found[name] = {
                other: (str(member["status"]), str(member["addr"]), tuple(sorted(dict(member["tags"]).items())))  # type: ignore[call-overload]
                for other, member in (await agent.members()).items()
            }
        for name, node in self.nodes.items():
            found[name] = {
                member.name: (
                    member.status.name.lower(),
                    f"{member.ip}:{member.port}",
                    tuple(sorted(member.tags.items())),
                )
                for member in node.serf.members()
            }
        return found

    def call(self, node: OurNode, parameters: QueryParameters) -> AskedQuery:
        asked = node.serf.query("_serf_ping", b"", asyncio.get_running_loop().time(), parameters)
        node.shell.flush()
        return asked


@asynccontextmanager
async def mixed(agents: int, nodes: int, is_encrypted: bool) -> AsyncIterator[Cluster]:
    options = [f"-encrypt={key_text(KEY)}"] if is_encrypted else []
    async with AsyncExitStack() as stack:
        cluster = Cluster(
            {
                f"agent{number}": await stack.enter_async_context(
                    running_agent(f"agent{number}", "-tag=kind=agent", *options)
                )
                for number in range(agents)
            },
            {
                f"node{number}": await stack.enter_async_context(
                    running_node(f"node{number}", {"kind": "node"}, (KEY,) if is_encrypted else ())
                )
                for number in range(nodes)
            },
        )
        first = cluster.agents["agent0"]
        for agent in cluster.agents.values():
            if agent is not first:
                await agent.command("join", f"127.0.0.1:{first.port}")
        for number, node in enumerate(cluster.nodes.values()):
            seed = first.port if number % 2 == 0 else cluster.nodes[f"node{number - 1}"].port
            await node.shell.join([f"127.0.0.1:{seed}"])
        yield cluster


@pytest.mark.parametrize(
    ("agents", "nodes", "is_encrypted"),
    [
        (2, 1, False),
        (2, 2, True),
        pytest.param(1, 3, False, marks=pytest.mark.slow),
        pytest.param(3, 3, True, marks=pytest.mark.slow),
        pytest.param(5, 4, False, marks=pytest.mark.slow),
        pytest.param(5, 4, True, marks=pytest.mark.slow),
    ],
)
async def test_lists_agree_after_each_step(agents: int, nodes: int, is_encrypted: bool) -> None:
    async with mixed(agents, nodes, is_encrypted) as cluster:
        await cluster.agree()
        await tags_change(cluster)
        await events_reach_all(cluster)
        await queries_are_answered(cluster)
        await round_trips_are_estimated(cluster)
        await a_node_leaves_and_returns(cluster)
        await a_member_is_stopped_and_resumed(cluster)
        if agents > 1:
            await an_agent_is_killed_and_given_up(cluster)
        if nodes > 1:
            await a_node_is_killed_and_given_up(cluster)
        assert all(node.serf.counters.drops == 0 for node in cluster.nodes.values())


async def tags_change(cluster: Cluster) -> None:
    await cluster.agents["agent0"].command("tags", "-set=rack=a1")
    node = cluster.nodes["node0"]
    node.serf.set_tags({"kind": "node", "rack": "b2"}, asyncio.get_running_loop().time())
    node.shell.flush()
    cluster.tags["agent0"]["rack"] = "a1"
    cluster.tags["node0"]["rack"] = "b2"
    await cluster.agree()
    await cluster.agents["agent0"].command("tags", "-delete=rack")
    del cluster.tags["agent0"]["rack"]
    await cluster.agree()


async def events_reach_all(cluster: Cluster) -> None:
    """An agent shows of an event that it has heard its time alone: the second one has a later time."""
    node = cluster.nodes["node0"]
    node.serf.user_event("of-a-node", b"1")
    node.shell.flush()
    await event_times_become(cluster, 2)
    await cluster.agents["agent0"].command("event", "-coalesce=false", "of-an-agent", "2")
    await event_times_become(cluster, 3)
    wanted = [(1, "of-a-node", b"1"), (2, "of-an-agent", b"2")]
    for one in cluster.nodes.values():
        heard = [event for event in one.events if isinstance(event, UserEventReceived)]
        assert [(event.lamport_time, event.name, event.payload) for event in heard] == wanted


async def event_times_become(cluster: Cluster, time: int) -> None:
    async def are_so() -> bool:
        times = [node.serf.user_events.clock.time for node in cluster.nodes.values()]
        for agent in cluster.agents.values():
            (line,) = [line for line in (await agent.command("info")).splitlines() if "event_time" in line]
            times.append(int(line.rpartition("=")[2]))
        return set(times) == {time}

    await eventually(are_so, f"all have the event time {time}")


async def queries_are_answered(cluster: Cluster) -> None:
    node = cluster.nodes["node0"]
    names = set(cluster.wanted)

    async def all_acknowledge() -> bool:
        """A broadcast may miss a member: the gossip is random."""
        asked = cluster.call(node, QueryParameters(request_ack=True, timeout=2.0, relay_factor=1))
        await eventually(lambda: asked.is_over or set(asked.acks) == names, "the query is over or complete")
        return set(asked.acks) == names

    await eventually(all_acknowledge, "all members acknowledge a query of a node")
    asked = cluster.call(node, QueryParameters(("agent0", "node0"), {"kind": "agent"}, True, timeout=1.0))
    await eventually(lambda: asked.is_over, "the query is over")
    assert list(asked.acks) == ["agent0"]

    async def all_are_reached() -> bool:
        return "contacted all live nodes" in await cluster.agents["agent0"].command("reachability")

    await eventually(all_are_reached, "all members acknowledge a query of an agent")

    async def answered() -> bool:
        node.events.clear()
        asking = asyncio.create_task(
            cluster.agents["agent0"].command("query", "-timeout=3s", "-node=node0", "-relay-factor=2", "load", "1m")
        )

        def received() -> QueryReceived | None:
            return next((event for event in node.events if isinstance(event, QueryReceived)), None)

        found = await eventually(lambda: received() or asking.done(), "node0 is asked")
        if isinstance(found, QueryReceived):
            assert (found.query.name, found.query.payload) == ("load", b"1m")
            node.serf.answer(found, b"0.7", asyncio.get_running_loop().time())
            node.shell.flush()
        return "Response from 'node0': 0.7" in await asking

    await eventually(answered, "an agent gets the answer of a node")


async def round_trips_are_estimated(cluster: Cluster) -> None:
    """From both sides: an agent takes the coordinates of nodes, and the other way round."""
    node, agent = cluster.nodes["node0"], cluster.agents["agent0"]

    async def known() -> bool:
        return "rtt: " in await agent.command("rtt", "node0")

    await eventually(known, "the agent estimates the round trip to the node")
    await eventually(lambda: set(node.serf.coordinates.known) == set(cluster.wanted) - {"node0"}, "the node knows all")
    estimates = [node.serf.coordinates.round_trip(name) or 0.0 for name in node.serf.coordinates.known]
    assert all(0.0 < estimate < 1.0 for estimate in estimates)


async def a_node_leaves_and_returns(cluster: Cluster) -> None:
    node = cluster.nodes["node0"]
    assert await node.shell.leave(10.0)
    await cluster.agree(node0="left")
    await node.shell.join([f"127.0.0.1:{cluster.agents['agent0'].port}"])
    await cluster.agree(node0="alive")


async def a_member_is_stopped_and_resumed(cluster: Cluster) -> None:
    if len(cluster.agents) == 1:
        return  # nobody else would ask the agent again
    name, agent = list(cluster.agents.items())[-1]
    del cluster.agents[name]
    agent.process.send_signal(signal.SIGSTOP)
    await cluster.agree(**{name: "failed"})
    agent.process.send_signal(signal.SIGCONT)
    cluster.agents[name] = agent
    await cluster.agree(**{name: "alive"})


async def an_agent_is_killed_and_given_up(cluster: Cluster) -> None:
    name, agent = cluster.agents.popitem()
    agent.process.kill()
    await agent.process.wait()
    await cluster.agree(**{name: "failed"})
    node = cluster.nodes["node0"]
    node.serf.force_leave(name, asyncio.get_running_loop().time())
    node.shell.flush()
    await cluster.agree(**{name: "left"})

    async def prune() -> None:
        node.serf.force_leave(name, asyncio.get_running_loop().time(), prune=True)
        node.shell.flush()

    await cluster.agree(prune, **{name: ""})


async def a_node_is_killed_and_given_up(cluster: Cluster) -> None:
    name, node = cluster.nodes.popitem()
    await node.shell.stop()
    await cluster.agree(**{name: "failed"})
    assert cluster.nodes["node0"].status(name) == MemberStatus.FAILED
    await cluster.agents["agent0"].command("force-leave", name)
    await cluster.agree(**{name: "left"})
    await cluster.agree(lambda: cluster.agents["agent0"].command("force-leave", "-prune", name), **{name: ""})


async def test_of_two_members_with_one_name_the_later_one_goes() -> None:
    """The others vote: an agent ends, a node tells its owner."""
    async with mixed(2, 1, False) as cluster, AsyncExitStack() as stack:
        await cluster.agree()
        seed = f"127.0.0.1:{cluster.agents['agent1'].port}"
        agent = await stack.enter_async_context(running_agent("node0"))
        await agent.command("join", seed)
        await asyncio.wait_for(agent.process.wait(), DEADLINE)
        node = await stack.enter_async_context(running_node("agent0"))
        with pytest.raises(JoinFailed, match="agent0"):
            await node.shell.join([seed])

        def lost() -> bool:
            return any(isinstance(event, NameConflict) and event.lost for event in node.events)

        await eventually(lost, "the node is told that the name is taken")
        await cluster.agree()
        first = cluster.nodes["node0"]
        assert not any(isinstance(event, NameConflict) and event.lost for event in first.events)
