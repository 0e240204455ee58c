"""The offsets that other nodes have when a node starts: it gives no group an older one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from broker.config.settings import Settings
from broker.event_log.contents import LogContents
from broker.event_log.log import EventLog
from broker.hooks import MemberFault  # as plugins of others
from broker.kafka import asked_partitions, heard_offsets
from broker.kafka import error_codes as errors
from broker.kafka.asked_partitions import Asked
from broker.kafka.committed import OFFSETS, Committed
from broker.kafka.grouping import Grouping
from broker.kafka.heard_offsets import METHOD
from broker.kafka.node import FirstStart, KafkaNode
from broker.message import Message
from broker.server.host import Host
from kafka_client import join_request
from linked_members import Linked
from waiting import eventually

GROUPS = [f"g{number}" for number in range(10)]


OF_OTHERS = '{"offset": 1, "epoch": 1, "metadata": ""}'


class Cluster:
    """Nodes with retained messages of their own. are_told: they know each other's entries."""

    def __init__(self, *names: str, are_told: bool = True) -> None:
        self.members: dict[str, Linked] = {}
        self.nodes: dict[str, KafkaNode] = {}
        for name in names:
            host = Host(Settings())
            host.members = Linked(name, self.members)
            self.nodes[name] = KafkaNode(host, cast(EventLog, LogContents(name)), {"all": b"#"})
        for since, node in enumerate(self.nodes.values()):
            node.announce(FirstStart(since, 0), f"{node.name}:1")
        if are_told:
            self.tell()

    def tell(self) -> None:
        for node in self.nodes.values():
            for other in self.nodes.values():
                for message in other._retained.below("$kafka/nodes/", 10):
                    node._retained.put(message.topic, message.payload)

    async def commit(self, name: str, group: str, offset: int, seconds: float = 0.0) -> None:
        """So much later."""
        node = self.nodes[name]
        now = node.server.now()
        node.server.now = lambda: now + seconds  # type: ignore[method-assign]
        assert await node.offsets.commit(group, {("all", 0): Committed(offset, 1, "m")}, lambda _: False)
        node.server.now = lambda: now  # type: ignore[method-assign]

    async def starts(self, name: str) -> KafkaNode:
        node = self.nodes[name]
        node.offsets.heard.begin()
        await eventually(lambda: any(node.coordinates(group) for group in GROUPS), "it coordinates groups")
        return node

    def found(self, name: str, group: str) -> int | None:
        found = self.nodes[name].offsets.committed(group, "all", 0)
        return None if found is None else found.offset


async def test_a_group_gets_the_offset_that_was_committed_meanwhile() -> None:
    cluster = Cluster("a", "b", "c")
    await cluster.commit("a", "g", 100)
    await cluster.commit("b", "g", 5000, 60.0)
    await cluster.commit("c", "g", 4000, 30.0)
    await cluster.commit("b", "h", 7)
    assert (cluster.found("a", "g"), cluster.found("a", "h")) == (100, None)
    await cluster.starts("a")
    assert (cluster.found("a", "g"), cluster.found("a", "h")) == (5000, 7)
    now = cluster.nodes["a"].now()
    cluster.nodes["a"].server.now = lambda: now + 86_460.0  # type: ignore[method-assign]
    await cluster.nodes["a"].offsets.renew(lambda _: True)
    assert (cluster.found("a", "g"), cluster.found("a", "h")) == (5000, 7), "what is renewed is the later one"
    await cluster.commit("a", "g", 200, 90.0)
    assert cluster.found("a", "g") == 200


async def test_no_group_is_coordinated_before_all_have_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heard_offsets, "RETRY_SECONDS", 0.0)
    cluster = Cluster("a", "b")
    await cluster.commit("b", "g", 5000)
    asked = 0
    node = cluster.nodes["a"]

    async def refuse_twice(request: bytes) -> bytes:
        nonlocal asked
        asked += 1
        assert not any(node.coordinates(group) for group in GROUPS)
        if asked <= 2:
            raise MemberFault("it is not reached")
        return await answer(request)

    served = cluster.members["b"].served
    answer, served[METHOD] = served[METHOD], refuse_twice
    await cluster.starts("a")
    assert (asked, cluster.found("a", "g")) == (4, 5000)


async def test_a_node_that_is_heard_of_later_is_asked_then() -> None:
    cluster = Cluster("a", "b")
    await cluster.commit("a", "g", 100)
    await cluster.commit("b", "g", 5000, 60.0)
    members = cluster.members["a"]
    members.away.add("b")
    node = await cluster.starts("a")
    assert cluster.found("a", "g") == 100
    members.away.clear()
    for changed in members.observers:
        changed()
    assert not any(node.coordinates(group) for group in GROUPS)
    await eventually(lambda: any(node.coordinates(group) for group in GROUPS), "it has answered")
    assert cluster.found("a", "g") == 5000


async def test_a_node_whose_entry_comes_later_is_asked_before() -> None:
    """As with a node that joins: it hears of the others, then of their retained messages."""
    cluster = Cluster("a", "b", are_told=False)
    await cluster.commit("b", "g", 5000)
    await cluster.starts("a")
    cluster.tell()
    cluster.nodes["a"].announce(FirstStart(0, 0), "a:1")
    assert [each.node for each in cluster.nodes["a"].partitions()] == ["a", "b"]
    assert cluster.found("a", "g") == 5000


async def test_a_node_without_the_call_is_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of an earlier build, or without the plugin."""
    monkeypatch.setattr(heard_offsets, "ASK_SECONDS", 1e9)
    cluster = Cluster("a", "b", "c")
    await cluster.commit("c", "g", 5)
    del cluster.members["b"].served[METHOD]
    await cluster.starts("a")
    assert cluster.found("a", "g") == 5


async def test_who_does_not_answer_stops_no_group_with_members() -> None:
    """It is heard of in the midst of their life."""
    cluster = Cluster("a", "b")
    cluster.members["a"].away.add("b")
    node = await cluster.starts("a")
    grouping = Grouping(node, Random(0))
    for group in GROUPS[:9]:
        assert grouping.groups.join(1, join_request(group, ""), 3, "c", "h:1", node.now()) is None

    async def errors_found() -> list[int]:
        values = [{"group_id": group, "member_id": "nobody", "generation_id": 1} for group in GROUPS]
        answers = [await grouping.heartbeat(cast(Asked, SimpleNamespace(values=each))) for each in values]
        return [answer["error_code"] for answer in answers]

    assert await errors_found() == [errors.UNKNOWN_MEMBER_ID] * 10

    asked, answers = asyncio.Event(), asyncio.Event()

    async def stand(request: bytes) -> bytes:
        asked.set()
        await answers.wait()
        return b"[]"

    cluster.members["b"].served[METHOD] = stand
    cluster.members["a"].away.clear()
    for changed in cluster.members["a"].observers:
        changed()
    await asked.wait()
    node._partitions_until = 0.0
    mine = [node.coordinates(group, has_members=True) for group in GROUPS]
    with_members = [errors.UNKNOWN_MEMBER_ID if is_mine else errors.NOT_COORDINATOR for is_mine in mine[:9]]
    assert any(mine[:9])
    assert await errors_found() == [*with_members, errors.NOT_COORDINATOR]
    answers.set()
    await eventually(lambda: not node.offsets.heard.waiting, "it has answered")
    grouping.stop()


@pytest.mark.parametrize(
    "answer", [b"", b"[1]", b'[["a", 1, 2]]', b'[["a", "b", "c"]]', b'[["a", "b", 1%s]]' % (b"0" * 999), b"[" * 99_999]
)
async def test_who_answers_nonsense_is_left_out(answer: bytes) -> None:
    cluster = Cluster("a", "b", "c")
    await cluster.commit("c", "g", 5)
    served = cluster.members["b"].served

    async def nonsense(request: bytes) -> bytes:
        return answer

    served[METHOD] = nonsense
    await cluster.starts("a")
    assert cluster.found("a", "g") == 5


@pytest.mark.parametrize(("bound", "value"), [("PAGE_BYTES", 100), ("PAGE_OFFSETS", 2)])
async def test_many_offsets_come_in_parts(monkeypatch: pytest.MonkeyPatch, bound: str, value: int) -> None:
    """Two in each."""
    monkeypatch.setattr(heard_offsets, bound, value)
    cluster = Cluster("a", "b")
    groups = [f"group {number}" for number in range(20)]
    for number, group in enumerate(groups):
        await cluster.commit("b", group, number)
    node = cluster.nodes["b"]
    for name, payload in (("h/all/0", bytes(10_000)), ("h/all/1", OF_OTHERS.encode("utf-16"))):
        node.server.broker.publish(Message(f"{OFFSETS}{name}".encode(), payload, 1, True), node.server.now())
    served = cluster.members["b"].served
    answer, asked = served[METHOD], []

    async def note(request: bytes) -> bytes:
        asked.append(request)
        return await answer(request)

    served[METHOD] = note
    await cluster.starts("a")
    assert len(asked) == len(groups) // 2 + 1
    assert [cluster.found("a", group) for group in groups] == list(range(20))


async def test_answers_leave_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ask at one time, and offsets come and go meanwhile: each hears of all that were there all the time."""
    monkeypatch.setattr(asked_partitions, "TURN_PARTITIONS", 5)
    monkeypatch.setattr(heard_offsets, "PAGE_BYTES", 500)
    cluster = Cluster("a", "b", "c")
    groups = [f"group {number:02}" for number in range(40)]
    for number, group in enumerate(groups):
        await cluster.commit("b", group, number)
    retained = cluster.nodes["b"]._retained
    get, below = retained.get, retained.below
    at_once = at_once_max = 0

    def count() -> None:
        nonlocal at_once, at_once_max
        at_once += 1
        at_once_max = max(at_once, at_once_max)

    def counted_get(topic: bytes) -> Message | None:
        count()
        return get(topic)

    def counted_below(prefix: str, count_max: int) -> Iterator[Message]:
        for message in below(prefix, count_max):
            count()
            yield message

    monkeypatch.setattr(retained, "get", counted_get)
    monkeypatch.setattr(retained, "below", counted_below)
    asking = asyncio.gather(*(cluster.starts(name) for name in ("a", "c")))
    for turn in itertools.count():
        at_once = 0
        await asyncio.sleep(0)
        if asking.done():
            break
        retained.put(f"{OFFSETS}group {turn // 2 % 40}x/all/0".encode(), b"" if turn % 2 else OF_OTHERS.encode())
    assert 0 < at_once_max <= 2 * 2 * 5  # of each the end of a page and the begin of the next
    for name in ("a", "c"):
        assert [cluster.found(name, group) for group in groups] == list(range(40))
