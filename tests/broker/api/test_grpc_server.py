"""The gRPC side of the API: requests that no servicer gets, and requests that do not arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from structlog.testing import capture_logs

from api_calls import REQUEST, publish_grpc
from broker.api import grpc_server
from broker.api.pb import admin_pb2 as pb
from broker.api.pb.admin_pb2_grpc import PublishServiceStub


async def test_an_unknown_service_and_an_oversized_request(channel: grpc.aio.Channel) -> None:
    unknown: Any = channel.unary_unary("/gmqtt.admin.api.NoService/Get")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await unknown(b"")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    publisher: Any = PublishServiceStub(channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await publisher.Publish(pb.PublishRequest(topic_name="a", payload_raw=bytes(5_000_000)))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture
async def half_call() -> AsyncIterator[Callable[[str], Any]]:
    """Begin a call of Publish on an address and send no request; the call is what is returned."""
    never = asyncio.Event()
    channels: list[grpc.aio.Channel] = []

    async def requests() -> AsyncIterator[bytes]:
        await never.wait()
        yield b""

    def begin(address: str) -> Any:
        channels.append(grpc.aio.insecure_channel(address))
        stub: Any = channels[-1].stream_unary("/gmqtt.admin.api.PublishService/Publish")
        return stub(requests())

    yield begin
    for channel in channels:
        await channel.close()


async def test_a_request_that_does_not_arrive_ends_in_time(
    make_api: Any, half_call: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "REQUEST_SECONDS_MAX", 0.05)
    api, service = make_api(["127.0.0.1:0"], [])
    await api.start()
    assert await half_call(api.grpc_addresses[0]).code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert service.requests == []


async def test_requests_that_do_not_arrive_do_not_keep_others_out(
    make_api: Any, half_call: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "REQUESTS_MAX", 2)
    api, service = make_api(["127.0.0.1:0"], [])
    await api.start()
    calls = [half_call(api.grpc_addresses[0]) for _ in range(5)]
    ends = asyncio.as_completed([call.code() for call in calls])
    for _ in range(3):
        assert await next(ends) == grpc.StatusCode.DEADLINE_EXCEEDED
    await publish_grpc(api.grpc_addresses[0])
    assert service.requests == [REQUEST]
    assert api.refused_input()["api_requests_dropped"] >= 3
    for call in calls:
        call.cancel()


async def test_connections_beyond_the_bound_are_closed_and_take_nothing_from_the_others(
    make_api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = {"grpc.max_allowed_incoming_connections": 3}
    assert bound.keys() <= dict(grpc_server.OPTIONS).keys()
    monkeypatch.setattr(grpc_server, "OPTIONS", tuple({**dict(grpc_server.OPTIONS), **bound}.items()))
    api, service = make_api(["127.0.0.1:0"], [])
    await api.start()
    address = api.grpc_addresses[0]
    host, _, port = address.rpartition(":")
    settings = b"\0\0\0\4\0\0\0\0\0"  # an empty frame SETTINGS [RFC 9113 6.5]
    async with grpc.aio.insecure_channel(address) as channel:
        publisher: Any = PublishServiceStub(channel)
        await publisher.Publish(REQUEST)
        others = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
        for _, writer in others:
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)
        firsts = [await _first(reader) for reader, _ in others]
        assert sorted(map(bool, firsts)) == [False] * 3 + [True] * 2, "each that is served gets SETTINGS"
        await publisher.Publish(REQUEST)
        for _, writer in others:
            writer.close()
    assert service.requests == [REQUEST] * 2


async def _first(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1)
    except ConnectionResetError:
        return b""


async def test_a_call_that_ends_without_a_request_does_nothing(make_api: Any) -> None:
    api, service = make_api(["127.0.0.1:0"], [])
    await api.start()

    async def no_requests() -> AsyncIterator[bytes]:
        nothing: tuple[bytes, ...] = ()
        for request in nothing:
            yield request

    async with grpc.aio.insecure_channel(api.grpc_addresses[0]) as channel:
        stub: Any = channel.stream_unary("/gmqtt.admin.api.PublishService/Publish")
        assert await stub(no_requests()).code() == grpc.StatusCode.INVALID_ARGUMENT
    assert service.requests == []


async def test_a_client_that_goes_before_its_request_leaves_no_line(
    make_api: Any, half_call: Callable[[str], Any]
) -> None:
    api, service = make_api(["127.0.0.1:0"], [])
    await api.start()
    with capture_logs() as lines:
        call = half_call(api.grpc_addresses[0])
        await call.wait_for_connection()
        call.cancel()
        await publish_grpc(api.grpc_addresses[0])
        await api.stop()
    assert service.requests == [REQUEST]
    assert [line for line in lines if line["log_level"] != "debug"] == []
