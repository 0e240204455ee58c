"""The API by TLS: both protocols, certificates of clients, and new certificates while it runs."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest

from api_calls import PUBLISH, REQUEST, REQUEST_JSON, Service, api_settings
from broker.api import http_server
from broker.api.pb.admin_pb2_grpc import PublishServiceStub
from broker.api.server import ApiServer
from broker.config.settings_listeners import TlsSettings
from broker.server.logging import get_logger
from broker.server.start_error import StartError
from certificates import Authority, Pair
from waiting import DEADLINE

ONE = "127.0.0.1:0"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def start(tls: TlsSettings) -> tuple[ApiServer, Service]:
    settings = api_settings([ONE], [ONE])
    settings = replace(settings, grpc=(replace(settings.grpc[0], tls=tls),), http=(replace(settings.http[0], tls=tls),))
    api = ApiServer(settings, {}, get_logger("api"))
    service = Service()
    api.register(PUBLISH, service)
    await api.start()
    return api, service


async def call_rest(api: ApiServer, authority: Authority, pair: Pair | None) -> int:
    context = ssl.create_default_context(cafile=authority.cacert)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"https://{api.http_addresses[0]}/v1/publish"
        async with session.post(url, data=REQUEST_JSON) as answer:
            return answer.status


async def call_grpc(api: ApiServer, authority: Authority, pair: Pair | None) -> None:
    files = [authority.cacert] if pair is None else [authority.cacert, pair.key, pair.cert]
    credentials = grpc.ssl_channel_credentials(*[content(path) for path in files])
    async with grpc.aio.secure_channel(api.grpc_addresses[0], credentials) as channel:
        await PublishServiceStub(channel).Publish(REQUEST, timeout=DEADLINE)


async def test_handshakes_that_do_not_begin_keep_nobody_out(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have places as connections have: the oldest make room."""
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 3)
    pair = authority.pair("localhost")
    api, _ = await start(TlsSettings(cert=pair.cert, key=pair.key))
    host, _, port = api.http_addresses[0].removeprefix("tcp://").rpartition(":")
    try:
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
        assert await call_rest(api, authority, None) == 200
        async with asyncio.timeout(DEADLINE):
            for reader, _ in silent[:3]:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
        assert not any(reader.at_eof() for reader, _ in silent[3:])
        assert api.refused_input()["api_connections_dropped"] == 3
    finally:
        await api.stop()
    async with asyncio.timeout(DEADLINE):
        for reader, writer in silent:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()


async def test_a_client_that_closes_tls_is_answered_so(authority: Authority) -> None:
    """It waits for that before it closes its socket."""
    pair = authority.pair("localhost")
    api, _ = await start(TlsSettings(cert=pair.cert, key=pair.key))
    host, _, port = api.http_addresses[0].removeprefix("tcp://").rpartition(":")
    context = ssl.create_default_context(cafile=authority.cacert)
    try:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost")
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(DEADLINE):
            assert (await reader.readline()).startswith(b"HTTP/1.1 ")
            writer.close()
            await writer.wait_closed()
        assert reader.exception() is None
    finally:
        await api.stop()


async def test_both_protocols(authority: Authority) -> None:
    pair = authority.pair("localhost")
    api, service = await start(TlsSettings(cert=pair.cert, key=pair.key))
    try:
        assert await call_rest(api, authority, None) == 200
        await call_grpc(api, authority, None)
        assert service.requests == [REQUEST] * 2
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://{api.http_addresses[0]}/v1/publish")
        with pytest.raises(grpc.aio.AioRpcError):
            async with grpc.aio.insecure_channel(api.grpc_addresses[0]) as channel:
                await PublishServiceStub(channel).Publish(REQUEST, timeout=DEADLINE)
    finally:
        await api.stop()


async def test_certificates_of_clients(authority: Authority, tmp_path: Path) -> None:
    pair = authority.pair("localhost")
    api, service = await start(TlsSettings(authority.cacert, pair.cert, pair.key, verify=True))
    operator = authority.pair("operator")
    stranger = Authority(tmp_path / "stranger", "stranger").pair("operator")
    try:
        assert await call_rest(api, authority, operator) == 200
        await call_grpc(api, authority, operator)
        for wrong in (None, stranger):
            with pytest.raises(aiohttp.ClientError):
                await call_rest(api, authority, wrong)
            with pytest.raises(grpc.aio.AioRpcError):
                await call_grpc(api, authority, wrong)
        assert len(service.requests) == 2
    finally:
        await api.stop()


async def test_new_certificates(authority: Authority, tmp_path: Path) -> None:
    """Calls after `renew_tls` use the new ones: a client of the old authority refuses them. Bad files change nothing."""
    pair = authority.pair("localhost", "server")
    api, _ = await start(TlsSettings(cert=pair.cert, key=pair.key))
    try:
        assert await call_rest(api, authority, None) == 200
        await call_grpc(api, authority, None)
        second = Authority(tmp_path / "second", "second")
        copied = second.pair("localhost", "server")
        for source, target in ((copied.cert, pair.cert), (copied.key, pair.key)):
            copy(source, target)
        api.renew_tls()
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await call_rest(api, authority, None)
        with pytest.raises(grpc.aio.AioRpcError):
            await call_grpc(api, authority, None)
        assert await call_rest(api, second, None) == 200
        await call_grpc(api, second, None)
        copy(pair.cert, pair.key)
        api.renew_tls()
        assert await call_rest(api, second, None) == 200
        await call_grpc(api, second, None)
    finally:
        await api.stop()


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def copy(source: str, target: str) -> None:
    Path(target).write_bytes(content(source))


@pytest.mark.parametrize("kind", ["grpc", "http"])
async def test_wrong_files_name_the_key(authority: Authority, kind: str) -> None:
    pair, other = authority.pair("one"), authority.pair("other")
    settings = api_settings([ONE], [ONE])
    tls: Any = (replace(getattr(settings, kind)[0], tls=TlsSettings(cert=pair.cert, key=other.key)),)
    api = ApiServer(replace(settings, **{kind: tls}), {}, get_logger("api"))
    with pytest.raises(StartError, match=rf"^api\.{kind}\[0\]\.tls\.key: {other.key} is not the key"):
        await api.start()
