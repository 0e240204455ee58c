"""Calls of the API over REST and gRPC, and a service whose behaviour a test defines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import aiohttp
import grpc.aio
from google.protobuf.empty_pb2 import Empty
from yarl import URL

from broker.api.pb import admin_pb2 as pb
from broker.api.pb.admin_pb2_grpc import PublishServiceStub
from broker.api.tokens import Role
from broker.auth.pb import account_pb2
from broker.config.addresses import parse_address
from broker.config.settings import ApiSettings
from broker.config.settings_listeners import ApiListener
from broker.event_log.pb import event_log_pb2
from federation.definitions.pb import definitions_pb2
from federation.links.pb import link_status_pb2
from federation.pb import federation_pb2
from waiting import DEADLINE

PUBLISH: Final = pb.DESCRIPTOR.services_by_name["PublishService"]
REQUEST: Final = pb.PublishRequest(topic_name="a", payload="b")
REQUEST_JSON: Final = '{"topic_name":"a","payload":"b"}'

# For servicers of tests that have methods of any service.
READERS: Final = {
    method.name: Role.READ
    for file in (pb, account_pb2, definitions_pb2, event_log_pb2, federation_pb2, link_status_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}

# method, path, body, HTTP status, gRPC code, words of the message
ErrorCase = tuple[str, str, str | bytes | None, int, int, str]


def api_settings(grpc_addresses: list[str], http_addresses: list[str]) -> ApiSettings:
    return ApiSettings(
        grpc=tuple(ApiListener(parse_address(text)) for text in grpc_addresses),
        http=tuple(ApiListener(parse_address(text)) for text in http_addresses),
    )


class Service:
    """PublishService that calls `behave` and keeps the requests that it gets."""

    roles: Final = {"Publish": Role.WRITE}

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


class Rest:
    """REST calls to one address; each gives status and decoded JSON."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        data = body if body is None or isinstance(body, bytes | str) else aiohttp.JsonPayload(body)
        url = URL(self.base + path, encoded=True)
        async with self.session.request(method, url, data=data, allow_redirects=False, **options) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        status, answer = await self.call("GET", path)
        assert status == 200, answer
        return answer

    async def post(self, path: str, body: Any) -> Any:
        status, answer = await self.call("POST", path, body)
        assert status == 200, answer
        return answer

    async def fails(self, case: ErrorCase) -> None:
        """Check that the call fails as expected and that the node works afterwards."""
        method, path, body, status, code, words = case
        got_status, answer = await self.call(method, path, body)
        assert (got_status, answer["code"], answer["details"]) == (status, code, [])
        assert words in answer["message"]
        assert len(answer["message"]) < 1000
        assert list(answer) == ["code", "message", "details"]
        assert (await self.call("GET", "/v1/clients"))[0] == 200


async def publish_grpc(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = PublishServiceStub(channel)
        await stub.Publish(REQUEST, timeout=DEADLINE)


async def publish_rest(address: str, **options: Any) -> tuple[int, str]:
    connector = aiohttp.UnixConnector(address.removeprefix("unix://")) if address.startswith("unix:") else None
    host = "node" if connector else address
    options = {"data": REQUEST_JSON, **options}
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(f"http://{host}/v1/publish", **options) as response,
    ):
        return response.status, await response.text()
