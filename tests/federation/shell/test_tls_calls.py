"""Services between nodes that prove their names: who may call them, under which name, and how a call fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from certificates import Authority, Pair
from federation.definitions.pb.definitions_pb2 import ExchangeAnswer, ExchangeRequest
from federation.extension import Extension
from federation.shell.member_calls import MemberAway, MemberCalls
from stations import Station
from waiting import DEADLINE

METHOD = "/test.Names/Take"

StartNode = Callable[..., Awaitable[Station]]


class Names(Extension):
    """Notes the field `node` of each request."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def services(self) -> dict[str, dict[str, Any]]:
        makers: Any = grpc
        handler = makers.unary_unary_rpc_method_handler(
            self.take,
            request_deserializer=ExchangeRequest.FromString,
            response_serializer=ExchangeAnswer.SerializeToString,
        )
        return {"test.Names": {"Take": handler}}

    async def take(self, request: ExchangeRequest, context: Any) -> ExchangeAnswer:
        self.names.append(request.node)
        return ExchangeAnswer()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def taken() -> Names:
    """What n1 takes."""
    return Names()


@pytest.fixture
async def start_node(authority: Authority, taken: Names) -> AsyncIterator[StartNode]:
    async with AsyncExitStack() as stack:

        async def start(name: str, pair: Pair | None = None, has_tls: bool = True) -> Station:
            station = Station(
                name,
                extensions=[taken] if name == "n1" else [],
                pair=(pair or authority.node(name)) if has_tls else None,
                cacert=authority.cacert,
            )
            stack.push_async_callback(station.stop)
            return await station.start()

        yield start


@pytest.fixture
async def call() -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """A call of one node to another that says it comes from `name`."""
    async with AsyncExitStack() as stack:
        made: dict[Station, MemberCalls] = {}

        async def call(source: Station, target: Station, name: str) -> None:
            source.members.tags[target.name] = target.tags
            if source not in made:
                made[source] = MemberCalls(source.members, source.dialer)
                stack.push_async_callback(made[source].close)
            request = ExchangeRequest(node=name)
            await made[source].call(target.name, METHOD, request, ExchangeAnswer.FromString, DEADLINE)

        yield call


Call = Callable[[Station, Station, str], Awaitable[None]]


async def test_a_node_calls_under_its_own_name(start_node: StartNode, call: Call, taken: Names) -> None:
    one, other = await start_node("n1"), await start_node("n2")
    for _ in range(2):
        await call(other, one, "n2")
    assert taken.names == ["n2", "n2"]
    assert len(one.streams.connections) == 2, "one connection for both calls, and its half towards gRPC"


async def test_a_call_under_another_name_is_refused_and_named(start_node: StartNode, call: Call, taken: Names) -> None:
    one, other = await start_node("n1"), await start_node("n2")
    with pytest.raises(MemberAway, match=r"n2.*n3") as fault:
        await call(other, one, "n3")
    assert fault.value.code is grpc.StatusCode.UNAUTHENTICATED
    assert taken.names == []
    assert one.refusals.totals["name"] == 1
    (reason,) = one.log.values("refused a node", "reason")
    assert "n2" in reason
    assert "n3" in reason


async def test_callers_are_told_apart(start_node: StartNode, call: Call, taken: Names) -> None:
    """Each connection of gRPC has the name of its own certificate."""
    one = await start_node("n1")
    others = [await start_node(name) for name in ("n2", "n3", "n4")]
    for _ in range(3):
        for other in others:
            await call(other, one, other.name)
    assert taken.names == ["n2", "n3", "n4"] * 3
    assert not any(one.refusals.totals.values())


async def test_without_tls_nothing_is_called_at_a_node_that_has_it(
    start_node: StartNode, call: Call, taken: Names
) -> None:
    one, plain = await start_node("n1"), await start_node("n2", has_tls=False)
    with pytest.raises(MemberAway, match=r"plugins\.federation\.tls"):
        await call(plain, one, "n2")
    assert taken.names == []
    assert one.refusals.totals["plain"] == 1


async def test_a_node_with_tls_calls_one_without(start_node: StartNode, call: Call, taken: Names) -> None:
    one, other = await start_node("n1", has_tls=False), await start_node("n2")
    await call(other, one, "n2")
    assert taken.names == ["n2"]


async def test_a_call_to_a_node_of_another_name_fails_with_both_names(
    start_node: StartNode, call: Call, authority: Authority
) -> None:
    one, other = await start_node("n1"), await start_node("n2")
    one.members.node_name = one.name = "n9"
    with pytest.raises(MemberAway, match=r"for n1; that of n9") as fault:
        await call(other, one, "n2")
    assert fault.value.code is grpc.StatusCode.UNAVAILABLE
    assert other.refusals.totals["name"] >= 1


async def test_a_call_fails_with_the_reason_for_which_a_certificate_is_refused(
    start_node: StartNode, call: Call, authority: Authority, tmp_path: Path, taken: Names
) -> None:
    one = await start_node("n1")
    other = await start_node("n2", authority.node("n2", age_days=5))
    with pytest.raises(MemberAway, match="this node: certificate expired"):
        await call(other, one, "n2")
    authority.node("n2")  # the same files
    assert other.tls is not None
    other.tls.renew()
    calls = MemberCalls(other.members, other.dialer)  # without the wait of gRPC before its next connection
    await calls.call("n1", METHOD, ExchangeRequest(node="n2"), ExchangeAnswer.FromString, DEADLINE)
    await calls.close()
    assert taken.names == ["n2"], "the next connection uses the new certificate"


async def test_a_member_that_has_gone_is_said_to_have_gone(start_node: StartNode, call: Call) -> None:
    one, other = await start_node("n1"), await start_node("n2")
    await call(other, one, "n2")
    addr = one.tls_addr
    await one.stop()
    other.members.tags["n1"] = {}
    calls = MemberCalls(other.members, other.dialer)
    with pytest.raises(MemberAway) as fault:
        await calls.call("n1", METHOD, ExchangeRequest(), ExchangeAnswer.FromString, DEADLINE)
    assert fault.value.code is grpc.StatusCode.NOT_FOUND
    assert other.dialer is not None
    channel = grpc.aio.insecure_channel(await other.dialer.target("n1", addr, True))
    unary: Any = channel.unary_unary(METHOD, request_serializer=ExchangeRequest.SerializeToString)
    with pytest.raises(grpc.aio.AioRpcError):
        await unary(ExchangeRequest(), timeout=DEADLINE)
    await channel.close()
    other.dialer.members_changed()
    await calls.close()
