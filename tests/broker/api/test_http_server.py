"""The REST side over real sockets: who is refused, half requests, clients that hang up or do not read."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from api_calls import REQUEST, REQUEST_JSON, publish_rest
from broker.api import http_server
from broker.api.gateway import REQUEST_BYTES_MAX
from waiting import eventually

Connect = Callable[[Any, bytes], Any]
HALF = b'POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"top'


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Open a connection to the API, send bytes; the answer is read from what is returned."""
    writers: list[asyncio.StreamWriter] = []

    async def connect(api: Any, data: bytes) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(*api.http_addresses[0].split(":"))
        writers.append(writer)
        writer.write(data)
        return reader

    connect.writers = writers  # type: ignore[attr-defined]
    yield connect
    for writer in writers:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> None:
    """Until the API has closed the connection, whatever it has sent."""
    async with asyncio.timeout(10):
        try:
            await reader.read()
        except ConnectionError:
            return


async def test_json_with_the_content_type_of_curl_is_read(make_api: Any) -> None:
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    for content_type in ("application/x-www-form-urlencoded", "application/json", "text/plain"):
        assert await publish_rest(api.http_addresses[0], headers={"Content-Type": content_type}) == (200, "{}")
    assert service.requests == [REQUEST] * 3


# --- web pages of others


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
    ],
    ids=["Origin", "Sec-Fetch-Site", "Host"],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/publish"), ("GET", "/v1/openapi.json"), ("GET", "/docs"), ("GET", "/v1/x"), ("OPTIONS", "/v1/x")],
)
async def test_a_foreign_page_gets_403_for_reads_too(
    make_api: Any, connect: Connect, headers: dict[str, str], method: str, path: str
) -> None:
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    lines = {"Host": "localhost", "Content-Length": "0", **headers}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    reader = await connect(api, f"{method} {path} HTTP/1.1\r\n{text}Connection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    assert answer.startswith("HTTP/1.1 403")
    assert '{"code": 7, "message": ' in answer
    assert "Access-Control" not in answer
    assert service.requests == []
    assert api.refused_input()["api_web_pages_refused"] == 1


async def test_a_name_of_allowed_hosts_is_served(make_api: Any) -> None:
    api, _ = make_api([], ["127.0.0.1:0"], ("ops.example.com",))
    await api.start()
    for host, status in (("ops.example.com", 200), ("evil.example", 403), ("localhost:1", 200)):
        assert (await publish_rest(api.http_addresses[0], headers={"Host": host}))[0] == status


async def test_only_a_listener_on_loopback_asks_for_the_name(make_api: Any) -> None:
    api, _ = make_api([], ["0.0.0.0:0"])
    await api.start()
    assert (await publish_rest(api.http_addresses[0], headers={"Host": "node1.example"}))[0] == 200
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert (await publish_rest(api.http_addresses[0], headers=headers))[0] == 403


# --- bodies


async def test_a_body_that_is_too_large(make_api: Any) -> None:
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    status, text = await publish_rest(api.http_addresses[0], data=io.BytesIO(bytes(REQUEST_BYTES_MAX + 1)))
    assert (status, '"code": 8' in text, "larger than" in text) == (413, True, True)
    assert service.requests == []


async def test_a_body_after_100_continue(make_api: Any, connect: Connect) -> None:
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    head = f"POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(REQUEST_JSON)}\r\n"
    reader = await connect(api, f"{head}Expect: 100-continue\r\n\r\n".encode())
    assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
    await reader.readline()
    connect.writers[0].write(REQUEST_JSON.encode())  # type: ignore[attr-defined]
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    assert service.requests == [REQUEST]


async def test_a_body_with_a_broken_encoding(make_api: Any, connect: Connect) -> None:
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    head = b"POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    with capture_logs() as lines:
        for broken in (
            b"Transfer-Encoding: chunked\r\n\r\nno number\r\n",
            b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain",
        ):
            assert b" 400 " in await (await connect(api, head + broken)).readline()
    assert service.requests == []
    assert [line for line in lines if line["log_level"] != "debug"] == []


async def test_half_a_body_for_ever(make_api: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "BODY_SECONDS_MAX", 0.05)
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    assert (await (await connect(api, HALF)).readline()).startswith(b"HTTP/1.1 504")
    assert service.requests == []


async def test_a_client_that_hangs_up_in_its_body_leaves_no_line(make_api: Any) -> None:
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    with capture_logs() as lines:
        for cut in (False, True):
            _, writer = await asyncio.open_connection(*api.http_addresses[0].split(":"))
            writer.write(HALF)
            await writer.drain()
            assert (await publish_rest(api.http_addresses[0]))[0] == 200  # the half body has arrived before
            if cut:
                writer.transport.abort()
            else:
                writer.close()
            assert (await publish_rest(api.http_addresses[0]))[0] == 200
        await api.stop()
    assert service.requests == [REQUEST] * 4
    assert [line for line in lines if line["log_level"] != "debug"] == []


# --- bounds


@pytest.mark.parametrize("begin", [b"", b"POST /v1/publish HT", HALF], ids=["nothing", "half a header", "half a body"])
async def test_connections_that_wait_do_not_keep_others_out(
    make_api: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 4)
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    readers = [await connect(api, begin) for _ in range(10)]
    assert (await publish_rest(api.http_addresses[0]))[0] == 200
    for reader in readers[:7]:  # the oldest ones gave way
        await ended(reader)
    assert not any(reader.at_eof() for reader in readers[7:])
    assert api.refused_input()["api_connections_dropped"] == 7
    assert service.requests == [REQUEST]


async def test_a_connection_that_runs_a_call_does_not_give_way(
    make_api: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 2)
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    service.release.clear()
    first = asyncio.create_task(publish_rest(api.http_addresses[0]))
    await service.entered.wait()
    for _ in range(5):
        await connect(api, HALF)
    service.release.set()
    assert (await first)[0] == 200


async def test_bodies_that_arrive_have_a_bound_together(
    make_api: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "BODIES_BYTES_MAX", 100_000)
    api, service = make_api([], ["127.0.0.1:0"])
    await api.start()
    large = b"POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\n" + b" " * 60_000
    first = await connect(api, large)
    second = await connect(api, large)
    await ended(first)
    assert api.refused_input()["api_connections_dropped"] == 1
    connect.writers[1].write(REQUEST_JSON.encode().ljust(30_000))  # type: ignore[attr-defined]
    assert (await second.readline()).startswith(b"HTTP/1.1 200")
    assert service.requests == [REQUEST]


async def test_a_client_that_does_not_take_its_answer(make_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "ANSWER_SECONDS_MAX", 0.05)
    api, _ = make_api([], ["127.0.0.1:0"])
    await api.start()
    host, port = api.http_addresses[0].split(":")
    with socket.create_connection((host, int(port))) as client:
        # More answers than the buffers of both sockets hold; nobody reads them.
        client.sendall(b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 30)

        async def is_dropped() -> bool:
            return bool(api.refused_input()["api_connections_dropped"])

        await eventually(is_dropped, "the connection is closed")
    assert (await publish_rest(api.http_addresses[0]))[0] == 200
