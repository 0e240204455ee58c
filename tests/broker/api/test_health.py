"""grpc.health.v1 on the gRPC API of a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import grpc.aio
import pytest

from api_calls import api_settings
from broker.api.health import HealthService
from broker.api.pb import health_pb2
from broker.api.pb.health_pb2 import HealthCheckRequest, HealthCheckResponse, HealthListRequest
from broker.api.pb.health_pb2_grpc import HealthStub
from broker.api.server import ApiServer
from broker.api.token_command import TokenFile
from broker.config.addresses import Address
from broker.config.settings import Settings
from broker.config.settings_listeners import ListenerSettings
from broker.plugins import Plugin
from broker.server import lifecycle
from broker.server.logging import get_logger
from waiting import DEADLINE, eventually


class PluginStates(Plugin):
    reasons: ClassVar[list[str]] = []

    def not_ready(self) -> list[str]:
        return self.reasons


async def probe(channel: grpc.aio.Channel) -> bytes:
    """The answer to an empty request, by the path of the protocol."""
    call: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
    return bytes(await call(b"", timeout=DEADLINE))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[lifecycle.Server]:
    """A node whose API needs tokens."""
    file = tmp_path / "tokens.yml"
    TokenFile(str(file)).create("", "read")
    settings = Settings(
        listeners=(ListenerSettings(Address("tcp", "127.0.0.1", 0)),),
        api=replace(api_settings(["127.0.0.1:0"], []), token_file=str(file)),
    )
    server = lifecycle.Server(settings)
    await server.start()
    yield server
    await server.stop()


async def test_a_node_that_serves_says_so_without_a_token(server: lifecycle.Server) -> None:
    assert server.api is not None
    async with grpc.aio.insecure_channel(server.api.grpc_addresses[0]) as channel:
        answer = await probe(channel)
        assert HealthCheckResponse.FromString(answer).status == HealthCheckResponse.SERVING


async def test_a_service_that_the_node_does_not_have(server: lifecycle.Server) -> None:
    assert server.api is not None
    async with grpc.aio.insecure_channel(server.api.grpc_addresses[0]) as channel:
        stub = HealthStub(channel)
        known = await stub.Check(HealthCheckRequest(service="grpc.health.v1.Health"), timeout=DEADLINE)
        assert known.status == HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(HealthCheckRequest(service="a.B"), timeout=DEADLINE)
        assert (caught.value.code(), caught.value.details()) == (
            grpc.StatusCode.NOT_FOUND,
            'there is no service "a.B"',
        )


async def test_all_services_with_their_status(server: lifecycle.Server) -> None:
    assert server.api is not None
    async with grpc.aio.insecure_channel(server.api.grpc_addresses[0]) as channel:
        found = (await HealthStub(channel).List(HealthListRequest(), timeout=DEADLINE)).statuses
    assert {name: answer.status for name, answer in found.items()} == {
        "": HealthCheckResponse.SERVING,
        "grpc.health.v1.Health": HealthCheckResponse.SERVING,
    }


async def test_a_watch_tells_each_change_and_ends_with_the_node(
    server: lifecycle.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.api.health.WATCH_SECONDS", 0.01)
    assert server.api is not None
    async with grpc.aio.insecure_channel(server.api.grpc_addresses[0]) as channel, asyncio.timeout(30):
        stub = HealthStub(channel)
        unknown = stub.Watch(HealthCheckRequest(service="a.B"))
        assert (await anext(aiter(unknown))).status == HealthCheckResponse.SERVICE_UNKNOWN
        unknown.cancel()
        answers = aiter(stub.Watch(HealthCheckRequest()))
        assert (await anext(answers)).status == HealthCheckResponse.SERVING
        reasons = ["the store takes nothing"]
        monkeypatch.setattr(PluginStates, "reasons", reasons)
        server.plugins.append(PluginStates(server))
        assert (await anext(answers)).status == HealthCheckResponse.NOT_SERVING
        reasons.clear()
        assert (await anext(answers)).status == HealthCheckResponse.SERVING
        stopping = asyncio.ensure_future(server.stop())
        assert [answer.status async for answer in answers] == [HealthCheckResponse.NOT_SERVING]
        await stopping


async def test_the_number_of_watches_is_bounded(server: lifecycle.Server) -> None:
    assert server.api is not None
    async with grpc.aio.insecure_channel(server.api.grpc_addresses[0]) as channel, asyncio.timeout(60):
        stub = HealthStub(channel)
        streams = server.api.calls.open_streams  # those that need a token have places of their own
        streams.running_max = 3
        watches = [stub.Watch(HealthCheckRequest()) for _ in range(3)]
        for watch in watches:
            await anext(aiter(watch))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(stub.Watch(HealthCheckRequest())))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.refused_input()["api_calls_refused"] == 1
        server.api.calls.unary.running = server.api.calls.unary.running_max
        assert (await stub.Check(HealthCheckRequest(), timeout=DEADLINE)).status == HealthCheckResponse.SERVING
        watches.pop().cancel()
        await eventually(lambda: streams.running < 3, "one has ended")
        assert (await anext(aiter(stub.Watch(HealthCheckRequest())))).status == HealthCheckResponse.SERVING


async def test_a_node_that_is_not_ready() -> None:
    api = ApiServer(api_settings(["127.0.0.1:0"], []), {}, get_logger("api"))
    reasons = ["the node is stopping"]
    api.register(health_pb2.DESCRIPTOR.services_by_name["Health"], HealthService(lambda: reasons, api.services))
    await api.start()
    async with grpc.aio.insecure_channel(api.grpc_addresses[0]) as channel:
        stub = HealthStub(channel)
        assert (await stub.Check(HealthCheckRequest(), timeout=DEADLINE)).status == HealthCheckResponse.NOT_SERVING
        reasons.clear()
        assert (await stub.Check(HealthCheckRequest(), timeout=DEADLINE)).status == HealthCheckResponse.SERVING
    await api.stop()
