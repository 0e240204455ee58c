"""Services of extensions between nodes: calls reach them on the address of the event streams, and each fault has its node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from broker.errors import MemberFault, MethodUnknown
from broker.hooks import Members, OtherNode
from federation.extension import Extension
from federation.shell.member_calls import ANSWER_BYTES_MAX, MemberAway, MemberCalls
from federation.shell.plugin_calls import PluginCalls
from stations import Station
from waiting import DEADLINE

METHOD = "/test.Echo/Say"


class Echo(Extension):
    """Answers with the text and its own name; refuses a text that is empty."""

    def __init__(self, name: str) -> None:
        self.name = name

    def services(self) -> dict[str, dict[str, Any]]:
        makers: Any = grpc
        handler = makers.unary_unary_rpc_method_handler(
            self.say, request_deserializer=StringValue.FromString, response_serializer=StringValue.SerializeToString
        )
        return {"test.Echo": {"Say": handler}}

    async def say(self, request: StringValue, context: Any) -> StringValue:
        if not request.value:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "nothing to say")
        return StringValue(value=f"{request.value} of {self.name}")


class Known(Members):
    """Members as a test names them."""

    def __init__(self) -> None:
        super().__init__("a")
        self.addrs: dict[str, str] = {}

    def others(self) -> list[OtherNode]:
        return [OtherNode(name, "ALIVE", {"fed_addr": addr} if addr else {}) for name, addr in self.addrs.items()]


@pytest.fixture
async def members() -> Known:
    return Known()


@pytest.fixture
async def calls(members: Known) -> AsyncIterator[MemberCalls]:
    calls = MemberCalls(members)
    yield calls
    await calls.close()


async def say(calls: MemberCalls, name: str, text: str) -> str:
    answer = await calls.call(name, METHOD, StringValue(value=text), StringValue.FromString, DEADLINE)
    return answer.value


async def test_an_answer_is_as_large_as_the_caller_allows(members: Known, calls: MemberCalls) -> None:
    station = await Station("b", extensions=[Echo("y" * ANSWER_BYTES_MAX)]).start()
    members.addrs["b"] = station.addr
    larger = MemberCalls(members, None, ANSWER_BYTES_MAX + 2**20)
    try:
        with pytest.raises(MemberAway, match="larger") as away:
            await say(calls, "b", "hello")
        assert away.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(await say(larger, "b", "hello")) > ANSWER_BYTES_MAX
    finally:
        await larger.close()
        await station.stop()


async def test_a_member_is_called_where_it_is_now(members: Known, calls: MemberCalls) -> None:
    first = await Station("b", extensions=[Echo("first")]).start()
    second = await Station("b", extensions=[Echo("second")]).start()
    try:
        members.addrs["b"] = first.addr
        assert await say(calls, "b", "hello") == "hello of first"
        members.addrs["b"] = second.addr
        assert await say(calls, "b", "hello") == "hello of second"
    finally:
        await first.stop()
        await second.stop()


async def test_members_that_go_at_one_time_disturb_no_other_call(members: Known, calls: MemberCalls) -> None:
    members.addrs.update(b="127.0.0.1:1", c="127.0.0.1:1")
    for name in ("b", "c"):
        with pytest.raises(MemberAway):
            await say(calls, name, "hello")
    members.addrs.clear()
    results = await asyncio.gather(*(say(calls, "d", "hello") for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [MemberAway] * 3


async def test_a_fault_has_the_name_and_the_reason(members: Known, calls: MemberCalls) -> None:
    station = await Station("b", extensions=[Echo("b")]).start()
    without = await Station("c").start()
    members.addrs.update(b=station.addr, c=without.addr, d="")
    try:
        with pytest.raises(MemberAway, match="node b: nothing to say") as fault:
            await say(calls, "b", "")
        assert fault.value.code is grpc.StatusCode.FAILED_PRECONDITION
        with pytest.raises(MemberAway, match="node c: ") as fault:
            await say(calls, "c", "hello")
        assert fault.value.code is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(MemberAway, match="node d: it is no member, or it tells no address"):
            await say(calls, "d", "hello")
        await station.stop()
        with pytest.raises(MemberAway, match="node b: ") as fault:
            await say(calls, "b", "hello")
        assert fault.value.code is grpc.StatusCode.UNAVAILABLE
        del members.addrs["b"]
        with pytest.raises(MemberAway, match="node b: it is no member"):
            await say(calls, "b", "hello")
    finally:
        await station.stop()
        await without.stop()


async def test_plugins_hear_that_a_member_has_no_such_method(members: Known) -> None:
    """At once: it is no use to ask again, as it is with one that is not reached."""
    station = await Station("b", extensions=[Echo("b")]).start()
    members.addrs = {"b": station.addr, "c": "", "d": "127.0.0.1:1"}
    plugins = PluginCalls(members, None, ANSWER_BYTES_MAX)
    for name in ("b", "c"):
        with pytest.raises(MethodUnknown):
            await plugins.call(name, "kafka.Offsets", b"", DEADLINE)
    with pytest.raises(MemberFault) as found:
        await plugins.call("d", "kafka.Offsets", b"", DEADLINE)
    assert not isinstance(found.value, MethodUnknown)
    await plugins.stop()
    await station.stop()
