"""ApiServer: addresses, faults of starting, bounds, the end; with a service that does what a test wants."""

from __future__ import annotations

import asyncio
import io
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from google.protobuf.empty_pb2 import Empty

from broker.api import gateway
from broker.api.pb import admin_pb2 as pb
from broker.api.pb.admin_pb2_grpc import PublishServiceStub
from broker.api.server import STOP_SECONDS_MAX, ApiServer
from broker.server.logging import get_logger
from broker.server.start_error import StartError

MakeSettings = Callable[[list[str], list[str]], Any]
PUBLISH = pb.DESCRIPTOR.services_by_name["PublishService"]
REQUEST = pb.PublishRequest(topic_name="a", payload="b")


class Service:
    """PublishService that calls `behave` and remembers what it was given."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()
        self.behave: Callable[[Any], Any] = lambda context: None

    async def Publish(self, request: Any, context: Any) -> Empty:
        self.requests.append(request)
        self.entered.set()
        await self.release.wait()
        result = self.behave(context)
        if result is not None:
            await result
        return Empty()


@pytest.fixture
async def make_api(make_api_settings: MakeSettings) -> AsyncIterator[Callable[..., tuple[ApiServer, Service]]]:
    made: list[ApiServer] = []

    def make(grpc_addresses: list[str], http_addresses: list[str]) -> tuple[ApiServer, Service]:
        api = ApiServer(make_api_settings(grpc_addresses, http_addresses), get_logger("api"))
        service = Service()
        api.register(PUBLISH, service)
        made.append(api)
        return api, service

    yield make
    for api in made:
        await api.stop()


async def publish_grpc(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = PublishServiceStub(channel)
        await stub.Publish(REQUEST, timeout=10)


async def publish_rest(address: str, **options: Any) -> tuple[int, str]:
    connector = aiohttp.UnixConnector(address.removeprefix("unix://")) if address.startswith("unix:") else None
    host = "node" if connector else address
    options = {"data": '{"topic_name":"a","payload":"b"}', **options}
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(f"http://{host}/v1/publish", **options) as response,
    ):
        return response.status, await response.text()


async def test_every_address_serves_every_service(make_api: Any, tmp_path: Path) -> None:
    paths = [f"unix://{tmp_path}/{name}" for name in ("grpc", "http")]
    api, service = make_api(["127.0.0.1:0", "127.0.0.1:0", paths[0]], ["127.0.0.1:0", "tcp://127.0.0.1:0", paths[1]])
    await api.start()
    assert len(set(api.grpc_addresses)) == len(set(api.http_addresses)) == 3
    for address in api.grpc_addresses:
        await publish_grpc(address.replace("unix://", "unix:"))
    for address in api.http_addresses:
        assert await publish_rest(address) == (200, "{}")
    assert service.requests == [REQUEST] * 6
    await api.stop()
    assert os.listdir(tmp_path) == []


async def test_all_interfaces(make_api: Any) -> None:
    api, service = make_api([":0"], [":0"])
    await api.start()
    await publish_grpc(f"127.0.0.1{api.grpc_addresses[0]}")
    assert api.grpc_addresses[0].startswith(":")
    assert api.http_addresses[0].startswith(":")
    assert len(service.requests) == 1


async def test_form_data_is_what_curl_calls_json(make_api: Any) -> None:
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    for content_type in ("application/x-www-form-urlencoded", "application/json", "text/plain"):
        assert await publish_rest(api.http_addresses[0], headers={"Content-Type": content_type}) == (200, "{}")
    assert service.requests == [REQUEST] * 3


# --- starting


@pytest.fixture
async def taken_port() -> AsyncIterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize("kind", ["grpc", "http"])
async def test_a_port_in_use_is_named_with_its_key(make_api: Any, kind: str, taken_port: int) -> None:
    addresses = ["127.0.0.1:0", f"tcp://127.0.0.1:{taken_port}"]
    api, _ = make_api(*((addresses, ["127.0.0.1:0"]) if kind == "grpc" else (["127.0.0.1:0"], addresses)))
    with pytest.raises(StartError, match=rf"^api\.{kind}\[1\]\.address: 127\.0\.0\.1:{taken_port} is in use") as caught:
        await api.start()
    assert "give another port" in str(caught.value)


@pytest.mark.parametrize("kind", ["grpc", "http"])
async def test_two_nodes_do_not_share_a_port(make_api: Any, kind: str) -> None:
    first, _ = make_api(["127.0.0.1:0"], ["127.0.0.1:0"])
    await first.start()
    taken = first.grpc_addresses if kind == "grpc" else first.http_addresses
    second, _ = make_api(*((taken, []) if kind == "grpc" else ([], taken)))
    with pytest.raises(StartError, match=rf"api\.{kind}\[0\]\.address"):
        await second.start()
    await first.stop()
    await second.start()  # what failed has left nothing open


@pytest.mark.parametrize("kind", ["grpc", "http"])
async def test_an_address_of_another_machine(make_api: Any, kind: str) -> None:
    api, _ = make_api(*((["192.0.2.1:0"], []) if kind == "grpc" else ([], ["192.0.2.1:0"])))
    with pytest.raises(StartError, match=rf"api\.{kind}\[0\]\.address: 192\.0\.2\.1:0 is no address of this machine"):
        await api.start()


@pytest.mark.parametrize("kind", ["grpc", "http"])
async def test_socket_files(make_api: Any, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "api"
    address = f"unix://{path}"
    addresses = ([address], []) if kind == "grpc" else ([], [address])
    path.write_text("something else")
    api, _ = make_api(*addresses)
    with pytest.raises(StartError, match=r"is no socket"):
        await api.start()
    assert path.read_text() == "something else"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        with pytest.raises(StartError, match=rf"api\.{kind}\[0\]\.address: unix://.*is in use"):
            await api.start()
        assert path.is_socket()
    await api.start()  # the file of a dead process is in nobody's way
    for far, words in (
        (f"unix://{tmp_path}/no/where", "No such file or directory"),
        (f"unix:///{'a' * 200}", "too long"),
    ):
        api, _ = make_api(*(([far], []) if kind == "grpc" else ([], [far])))
        with pytest.raises(StartError, match=words):
            await api.start()


async def test_a_listener_with_tls_is_not_opened_in_plain_text(make_api_settings: MakeSettings) -> None:
    from dataclasses import replace

    from broker.config.settings import TlsSettings

    settings = make_api_settings(["127.0.0.1:0"], ["127.0.0.1:0"])
    tls = TlsSettings("", "cert.pem", "key.pem")
    settings = replace(
        settings,
        grpc=(replace(settings.grpc[0], tls=tls),),
        http=(replace(settings.http[0], tls=tls), settings.http[0]),
    )
    api = ApiServer(settings, get_logger("api"))
    await api.start()
    assert (api.grpc_addresses, len(api.http_addresses)) == ([], 1)
    await api.stop()


async def test_a_service_is_registered_once(make_api: Any) -> None:
    api, service = make_api([], [])
    with pytest.raises(ValueError, match=r"gmqtt\.admin\.api\.PublishService is registered already"):
        api.register(PUBLISH, service)
    with pytest.raises(AttributeError):
        api.register(pb.DESCRIPTOR.services_by_name["ClientService"], service)


# --- calls


async def test_a_fault_of_a_servicer_is_internal_and_tells_nothing(make_api: Any) -> None:
    def fail(context: Any) -> None:
        raise RuntimeError("secret")

    api, service = make_api(["127.0.0.1:0"], ["127.0.0.1:0"])
    await api.start()
    service.behave = fail
    status, text = await publish_rest(api.http_addresses[0])
    assert (status, '"code": 13' in text, "secret" in text) == (500, True, False)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await publish_grpc(api.grpc_addresses[0])
    assert (caught.value.code(), "secret" in (caught.value.details() or "")) == (grpc.StatusCode.INTERNAL, False)
    service.behave = lambda context: None
    assert (await publish_rest(api.http_addresses[0]))[0] == 200


async def test_abort_of_the_context_means_the_same_over_both(make_api: Any) -> None:
    api, service = make_api(["127.0.0.1:0"], ["127.0.0.1:0"])
    await api.start()
    service.behave = lambda context: context.abort(grpc.StatusCode.ALREADY_EXISTS, "ünder that name")
    status, text = await publish_rest(api.http_addresses[0])
    assert (status, text) == (409, '{"code": 6, "message": "\\u00fcnder that name", "details": []}')
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await publish_grpc(api.grpc_addresses[0])
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.ALREADY_EXISTS, "ünder that name")


async def test_a_body_that_is_too_large(make_api: Any) -> None:
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    status, text = await publish_rest(api.http_addresses[0], data=io.BytesIO(bytes(gateway.REQUEST_BYTES_MAX + 1)))
    assert (status, '"code": 8' in text, "larger than" in text) == (413, True, True)
    assert service.requests == []


async def test_half_a_body_for_ever(make_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "BODY_SECONDS_MAX", 0.05)
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    reader, writer = await asyncio.open_connection(*api.http_addresses[0].split(":"))
    writer.write(b'POST /v1/publish HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"top')
    assert (await reader.readline()).startswith(b"HTTP/1.1 504")
    writer.close()
    assert service.requests == []


async def test_too_many_calls_at_once(make_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "CALLS_MAX", 1)
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    service.release.clear()
    first = asyncio.create_task(publish_rest(api.http_addresses[0]))
    await service.entered.wait()
    status, text = await publish_rest(api.http_addresses[0])
    assert (status, '"code": 8' in text, api.gateway.calls_refused) == (429, True, 1)
    service.release.set()
    assert (await first)[0] == 200


# --- the end


async def test_stop_waits_for_calls_but_not_for_ever(make_api: Any) -> None:
    loop = asyncio.get_running_loop()
    for release in (True, False):
        api, service = make_api(["127.0.0.1:0"], ["127.0.0.1:0"])
        await api.start()
        service.release.clear()
        calls = [
            asyncio.create_task(publish_rest(api.http_addresses[0])),
            asyncio.create_task(publish_grpc(api.grpc_addresses[0])),
        ]
        while len(service.requests) < 2:
            await service.entered.wait()
            service.entered.clear()
        started = loop.time()
        stopping = asyncio.create_task(api.stop())
        if release:
            loop.call_later(0.05, service.release.set)
        await stopping
        assert loop.time() - started < STOP_SECONDS_MAX * 3
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert (results == [(200, "{}"), None]) is release
        service.release.set()
        await api.stop()  # again: nothing happens
