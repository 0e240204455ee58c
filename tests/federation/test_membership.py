"""The membership of nodes in this process over loopback sockets: the calls of the API and what is logged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from broker.broker import Broker
from broker.config.addresses import Address
from broker.config.settings import MqttSettings
from broker.hooks import OtherNode
from federation.errors import JoinFailed, NotRunning
from federation.membership import FederationMembership
from federation.node import Node
from federation.serf.config import SerfConfig
from federation.serf.events import MemberStatus, NameConflict
from federation.serf.serf import Serf
from federation.settings import FederationSettings
from federation.shell.gossip_sockets import bind_gossip
from federation.tags import TAG_DRAINING
from waiting import eventually


class Station:
    """A node with its membership, without event streams."""

    def __init__(self, name: str, *seeds: str, has_siblings: bool = False) -> None:
        hosts = tuple(Address("tcp", "127.0.0.1", int(seed.rpartition(":")[2])) for seed in seeds)
        settings = FederationSettings(
            node_name=name, gossip_addr=Address("tcp", "127.0.0.1", 0), retry_join=hosts, retry_interval=0.1
        )
        self.name = name
        self.node = Node(name, Broker(MqttSettings(), random.Random(1), 0.0), settings, random.Random(2))
        self.calls: list[str] = []
        self.stop_reasons: list[str] = []
        self.membership = FederationMembership(
            self.node,
            settings,
            lambda: self.calls.append("changed"),
            self._before_leave,
            self.stop_reasons.append,
            "plugins.federation",
            has_siblings,
        )
        self.address = ""

    async def _before_leave(self) -> None:
        self.calls.append("before leave")

    async def start(self) -> Station:
        sockets = bind_gossip("127.0.0.1", 0)
        self.address = f"127.0.0.1:{sockets.port}"
        config = SerfConfig(self.name, "127.0.0.1", sockets.port, {"of": self.name})
        now = asyncio.get_running_loop().time()
        await self.membership.start(Serf(config, random.Random(self.name), now), sockets)
        return self

    def status(self, name: str) -> str:
        return {member.name: member.status.name for member in self.membership.members()}.get(name, "")

    async def becomes(self, name: str, status: str) -> None:
        await eventually(lambda: self.status(name) == status, f"{name} is {status} for {self.name}")


@pytest.fixture
async def started() -> AsyncIterator[list[Station]]:
    stations: list[Station] = []
    yield stations
    for station in stations:
        await station.membership.stop()


async def start(started: list[Station], name: str, *seeds: str) -> Station:
    station = Station(name, *seeds)
    started.append(station)
    return await station.start()


async def test_calls_before_the_start_and_after_the_stop_raise_not_running() -> None:
    station = Station("a")
    for call in (station.membership.join(["x:1"]), station.membership.leave()):
        with pytest.raises(NotRunning):
            await call
    with pytest.raises(NotRunning):
        station.membership.force_leave("b")
    await station.membership.leave_at_stop()
    await station.start()
    assert station.status("a") == "ALIVE"
    await station.membership.stop()
    with pytest.raises(NotRunning):
        station.membership.members()


async def test_calls_of_the_api_are_logged_with_names(started: list[Station]) -> None:
    a, b = await start(started, "a"), await start(started, "b")
    with capture_logs() as lines:
        await b.membership.join([a.address])
        await a.becomes("b", "ALIVE")
        await b.membership.leave()
        await a.becomes("b", "LEFT")
        assert b.node.has_left
        with pytest.raises(JoinFailed, match="Connection refused"):
            await b.membership.join(["127.0.0.1:1"])
        await b.membership.join([a.address, "127.0.0.1:1"])
        assert b.node.senders == {}  # a has no fed_addr
        assert [b.node.has_left] == [False]
        serf = a.membership.running_serf()
        time = serf.roster.clock.time
        a.membership.force_leave("nobody")
        assert serf.roster.clock.time == time + 1  # others may know the name: they are told, as by an agent
        assert len(serf.broadcasts.intents) > 0
    told = [(line["event"], line["log_level"], line.get("node", line.get("hosts"))) for line in lines]
    assert [line for line in told if "API" in line[0]] == [
        ("joined by the API", "info", [a.address]),
        ("left by the API, retry_join rests until a join", "info", "b"),
        ("join by the API failed", "warning", ["127.0.0.1:1"]),
        ("joined by the API, but not all hosts answered", "warning", [a.address, "127.0.0.1:1"]),
        ("made to leave by the API", "info", "nobody"),
    ]
    assert b.calls.count("before leave") == 1


async def test_a_worker_among_others_does_not_leave_alone(started: list[Station]) -> None:
    a = Station("a", has_siblings=True)
    started.append(await a.start())
    b = await start(started, "b", a.address)
    await b.becomes("a", "ALIVE")
    with pytest.raises(ValueError, match=r"workers .* drain"):
        await a.membership.leave()
    assert (a.status("a"), a.calls.count("before leave"), a.node.has_left) == ("ALIVE", 0, False)
    await a.membership.leave_at_stop()
    await b.becomes("a", "LEFT")


async def test_plugins_see_the_other_nodes_with_status_and_tags(started: list[Station]) -> None:
    a = Station("a")
    others = a.membership
    assert (others.node_name, others.others()) == ("a", [])
    started.append(await a.start())
    assert others.others() == []
    b = await start(started, "b", a.address)
    await a.becomes("b", "ALIVE")
    assert others.others() == [OtherNode("b", "ALIVE", {"of": "b"})]
    await b.membership.leave()
    await a.becomes("b", "LEFT")
    assert others.others() == [OtherNode("b", "LEFT", {"of": "b"})]


async def test_a_failed_member_is_made_to_leave(started: list[Station]) -> None:
    a = await start(started, "a")
    b = await start(started, "b", a.address)
    await a.becomes("b", "ALIVE")
    await b.membership.stop()
    with capture_logs() as lines:
        await a.becomes("b", "FAILED")
        a.membership.force_leave("b")
        assert a.status("b") == "LEFT"
    assert [(line["event"], line["log_level"], line["node"]) for line in lines if "node" in line] == [
        ("member failed", "warning", "b"),
        ("member left", "info", "b"),
        ("made to leave by the API", "info", "b"),
    ]
    with pytest.raises(ValueError, match="this node itself; use leave"):
        a.membership.force_leave("a")


async def test_a_member_that_failed_is_forgotten_at_once_when_pruned(started: list[Station]) -> None:
    a = await start(started, "a")
    b, c = [await start(started, name, a.address) for name in ("b", "c")]
    await c.becomes("b", "ALIVE")
    await b.membership.stop()
    for station in (a, c):
        await station.becomes("b", "FAILED")
    a.membership.force_leave("b", prune=True)
    for station in (a, c):
        await station.becomes("b", "")


async def test_tags_change_while_the_node_runs_and_a_drain_keeps_them(started: list[Station]) -> None:
    a = await start(started, "a")
    b = await start(started, "b", a.address)
    await a.becomes("b", "ALIVE")

    async def seen(tags: dict[str, str]) -> None:
        await eventually(lambda: a.membership.others() == [OtherNode("b", "ALIVE", tags)], f"tags {tags}")

    b.membership.change_tags({"rack": "b7", "color": "red"}, ())
    await seen({"of": "b", "rack": "b7", "color": "red"})
    b.membership.set_state_tags({TAG_DRAINING: "1"})
    b.membership.change_tags({"color": "blue"}, ["rack"])
    await seen({"of": "b", "color": "blue", TAG_DRAINING: "1"})
    b.membership.set_state_tags({})
    await seen({"of": "b", "color": "blue"})
    for bad in ({"of": "c"}, {TAG_DRAINING: "1"}, {"x": "y" * 512}):
        with pytest.raises(ValueError, match=r"own|512"):
            b.membership.change_tags(bad, ["color"])
    assert b.membership.tags.told() == {"of": "b", "color": "blue"}


@pytest.mark.parametrize(
    ("lost", "ours", "has_others", "level", "stops"),
    [
        (False, False, True, "warning", False),
        (False, True, True, "error", False),
        (True, True, True, "", True),
        (True, True, False, "error", False),  # a refused join; the node serves its clients
    ],
)
async def test_conflicts_of_names(
    started: list[Station], lost: bool, ours: bool, has_others: bool, level: str, stops: bool
) -> None:
    a = await start(started, "a")
    if has_others:
        await start(started, "b", a.address)
        await a.becomes("b", MemberStatus.ALIVE.name)
    with capture_logs() as lines:
        a.membership.receive_events([NameConflict("a" if ours else "c", "10.0.0.9", 8902, ours, lost)])
    assert [(line["log_level"], line["other"]) for line in lines] == ([(level, "10.0.0.9:8902")] if level else [])
    assert bool(a.stop_reasons) == stops
    if stops:
        assert "'a' belongs to another node of the federation, at 10.0.0.9:8902" in a.stop_reasons[0]
        assert "plugins.federation.node_name" in a.stop_reasons[0]
