"""Definitions of two nodes over gRPC: each change reaches the other one, whatever that one missed, and faults stay theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
import structlog.testing

from broker.hooks import Members, OtherNode
from definitions_node import Host
from federation.definitions.entry import BUCKETS, UPSTREAM, Entry, Key
from federation.definitions.pb import definitions_pb2 as pb
from federation.definitions.shell.cluster import METHOD, DefinitionsCluster
from federation.definitions.shell.service import DefinitionsService
from federation.extension import Extension
from federation.shell.member_calls import MemberAway, MemberCalls
from stations import Station
from waiting import eventually

TAG = "links"


class Known(Members):
    """Members as a test names them: address and tags by name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.known: dict[str, dict[str, str]] = {}

    def others(self) -> list[OtherNode]:
        return [OtherNode(name, "ALIVE", tags) for name, tags in self.known.items()]


class Node:
    """A node with definitions, and an event stream server."""

    def __init__(self, name: str, declared: dict[Key, object] | None = None, shares_secrets: bool = True) -> None:
        self.members = Known(name)
        self.host = Host(self.members)
        server: Any = self.host
        self.service = DefinitionsService(server, declared or {}, "", self.host.resolutions.append, shares_secrets)
        self.cluster = DefinitionsCluster(server, self.service, TAG)
        self.station = Station(name, extensions=[self.cluster])

    async def start(self) -> Node:
        await self.service.prepare()
        self.service.made_here = self.cluster.changed
        await self.station.start()
        self.cluster.start()
        return self

    def meet(self, other: Node, tag: str = TAG) -> None:
        self.members.known[other.members.node_name] = {"fed_addr": other.station.addr, tag: "1"}
        self.cluster.members_changed()

    async def stop(self) -> None:
        await self.cluster.stop()
        await self.service.stop()
        await self.station.stop()


@pytest.fixture
async def make_node() -> AsyncIterator[Callable[..., Any]]:
    made: list[Node] = []

    async def make(name: str, declared: dict[Key, object] | None = None, shares_secrets: bool = True) -> Node:
        made.append(Node(name, declared, shares_secrets))
        return await made[-1].start()

    yield make
    for node in made:
        await node.stop()


async def same(*nodes: Node) -> None:
    await eventually(lambda: len({node.service.definitions.digest() for node in nodes}) == 1, "the same definitions")


def uri(host: str) -> dict[str, str]:
    return {"uri": f"mqtt://{host}"}


async def test_each_change_reaches_the_other_node_and_takes_effect(make_node: Callable[..., Any]) -> None:
    a, b = await make_node("a"), await make_node("b")
    await a.service.put(UPSTREAM, "before", uri("a"))
    a.meet(b)
    b.meet(a)
    await same(a, b)
    await a.service.put(UPSTREAM, "u", uri("a"))
    await same(a, b)
    assert list(b.host.resolutions[-1].upstreams) == ["before", "u"]
    await b.service.delete(UPSTREAM, "before")
    await same(a, b)
    assert list(a.host.resolutions[-1].upstreams) == ["u"]


async def test_large_definitions_take_several_messages(make_node: Callable[..., Any]) -> None:
    a, b = await make_node("a"), await make_node("b")
    large = {"uri": "mqtt://h", "exchange": [f"{'a' * 900}{index} -> b/{index}" for index in range(60)]}
    await a.service.put_all((UPSTREAM, f"a{index}", large) for index in range(20))
    await b.service.put_all((UPSTREAM, f"b{index}", large) for index in range(20))
    a.meet(b)
    await same(a, b)
    assert len(a.service.definitions.names(UPSTREAM)) == 40


async def test_a_node_without_definitions_is_left_alone(make_node: Callable[..., Any]) -> None:
    a, b = await make_node("a"), await make_node("b")
    await a.service.put(UPSTREAM, "u", uri("a"))
    a.meet(b, "other")
    stranger = await Station("stranger", extensions=[Extension()]).start()
    a.members.known["stranger"] = {"fed_addr": stranger.addr, TAG: "1"}
    a.cluster.members_changed()
    a.cluster.changed()
    await asyncio.sleep(0)
    b.meet(a)  # the other way round it is exchanged
    await same(a, b)
    assert b.service.resolution().upstreams.keys() == {"u"}
    await stranger.stop()


async def test_a_fault_in_one_exchange_leaves_room_for_the_next_ones(
    make_node: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await make_node("a"), await make_node("b")
    await b.service.put(UPSTREAM, "u", uri("b"))
    fault = KeyError("u")

    def fail(source: str) -> None:
        raise fault

    monkeypatch.setattr(a.service, "merged", fail)
    a.meet(b)
    await eventually(lambda: a.host.faults == [fault], "the fault is told")
    monkeypatch.undo()
    await b.service.put(UPSTREAM, "v", uri("b"))
    await same(a, b)
    await eventually(lambda: "v" in a.service.resolution().upstreams, "the next exchange takes effect")


async def test_configuration_files_that_differ_are_told_once(make_node: Callable[..., Any]) -> None:
    with structlog.testing.capture_logs() as lines:
        a = await make_node("a", {(UPSTREAM, "declared"): uri("a")})
        b, c = await make_node("b", {(UPSTREAM, "declared"): uri("a")}), await make_node("c")
        for asking in (b, c):
            asking.meet(a)
            a.meet(asking)
        await a.service.put(UPSTREAM, "u", uri("u"))
        await same(a, b, c)
        await a.service.put(UPSTREAM, "v", uri("v"))
        await same(a, b, c)
    told = [line["node"] for line in lines if "each node needs the same" in line["event"]]
    assert sorted(told) == ["a", "c"]


async def test_one_wrong_clock_stops_nobody(make_node: Callable[..., Any]) -> None:
    with structlog.testing.capture_logs() as lines:
        a, b, c = [await make_node(name) for name in "abc"]
        c.host.skew = 1e9
        await c.service.put(UPSTREAM, "early", uri("c"))
        for node in (a, b, c):
            for other in (a, b, c):
                if other is not node:
                    node.meet(other)
        await same(a, b, c)
        for node in (a, b, c):
            await node.service.put(UPSTREAM, f"of-{node.members.node_name}", uri("h"))
            await same(a, b, c)
        assert all(len(node.service.resolution().upstreams) == 4 for node in (a, b, c))
        assert max(entry.time for entry in a.service.definitions.entries()) < a.service.own_time() + 60
    told = [line["reason"] for line in lines if "clock differs" in line["event"]]
    assert any(reason.startswith("this node") for reason in told)
    assert any(reason.startswith('node "c"') for reason in told)


async def test_a_definition_that_a_wrong_clock_made_is_refused_and_its_sender_named(
    make_node: Callable[..., Any],
) -> None:
    a, b = await make_node("a"), await make_node("b")
    b.service.definitions.load([Entry(UPSTREAM, "u", 2**59, "z", "{}")], b.service.own_time())
    with structlog.testing.capture_logs() as lines, pytest.MonkeyPatch.context() as patch:
        patch.setattr(b.service, "heard_clock", lambda name, time: None)  # a node of the version before
        a.meet(b)
        await eventually(lambda: any("refused" in line["event"] for line in lines), "the refusal is told")
        await b.service.put(UPSTREAM, "v", uri("v"))
        assert a.service.definitions.counters.refused > 0
    (line,) = [line for line in lines if "refused" in line["event"]]
    assert line["node"] == "b"
    assert '"u"' in line["reason"]
    assert a.service.definitions.get(UPSTREAM, "u") is None


async def test_whoever_asks_gets_no_secret_where_secrets_are_not_shared(make_node: Callable[..., Any]) -> None:
    a, b = await make_node("a", None, False), await make_node("b")
    secret = {"uri": "mqtt://user:secret@127.0.0.1:1"}
    with structlog.testing.capture_logs() as lines:
        await a.service.put(UPSTREAM, "of-a", secret)
        await b.service.put(UPSTREAM, "of-b", secret)
        await a.service.put(UPSTREAM, "plain", uri("h"))
        members = Known("asking")
        members.known["a"] = {"fed_addr": a.station.addr}
        calls = MemberCalls(members)
        request = pb.ExchangeRequest(digests=[0] * BUCKETS)
        answer = await calls.call("a", METHOD, request, pb.ExchangeAnswer.FromString, 10.0)
        await calls.close()
        assert [item.name for item in answer.definitions if item.component == UPSTREAM] == ["plain"]
        assert "secret" not in str(answer)
        a.meet(b)
        await eventually(lambda: "plain" in b.service.resolution().upstreams, "what has no secret is exchanged")
        await eventually(lambda: any("refused" in line["event"] for line in lines), "the refusal is told")
    assert a.service.resolution().upstreams.keys() == {"of-a", "plain"}
    assert "of-a" not in b.service.resolution().upstreams
    kept = [line["reason"] for line in lines if "kept on this node" in line["event"]]
    assert ['"of-a"' in reason for reason in kept] == [True]
    (refused,) = [line for line in lines if "refused" in line["event"]]
    assert refused["node"] == "b"
    assert '"of-b"' in refused["reason"]
    assert "user:secret" not in str(lines)


async def test_secrets_of_a_local_node_do_not_go_to_another_machine(make_node: Callable[..., Any]) -> None:
    a = await make_node("a")
    await a.service.put(UPSTREAM, "u", {"uri": "mqtt://user:secret@127.0.0.1:1"})
    called: list[str] = []
    with structlog.testing.capture_logs() as lines, pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemberCalls, "call", lambda calls, name, *_: called.append(name))
        a.members.known["far"] = {"fed_addr": "192.0.2.1:8901", TAG: "1"}
        a.cluster.members_changed()
        await eventually(lambda: any("not exchanged" in line["event"] for line in lines), "the reason is told")
    (line,) = [line for line in lines if "not exchanged" in line["event"]]
    assert line["node"] == "far"
    assert "loopback" in line["reason"]
    assert called == []


async def test_a_request_that_no_node_makes_is_refused(make_node: Callable[..., Any]) -> None:
    a = await make_node("a")
    members = Known("b")
    members.known["a"] = {"fed_addr": a.station.addr}
    calls = MemberCalls(members)
    for count in (1, BUCKETS + 1):
        request = pb.ExchangeRequest(digests=[1] * count)
        with pytest.raises(MemberAway) as caught:
            await calls.call("a", METHOD, request, pb.ExchangeAnswer.FromString, 10.0)
        assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    damaged = [pb.VersionedDefinition(component="c", name="n", clock=2**63, node="x", value="1")]
    await calls.call("a", METHOD, pb.ExchangeRequest(definitions=damaged), pb.ExchangeAnswer.FromString, 10.0)
    assert a.service.definitions.counters.refused == 1
    await calls.close()
