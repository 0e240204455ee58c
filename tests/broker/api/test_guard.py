"""Tokens on every way into the API: REST, gRPC, pages; the role of each method."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
from google.protobuf.descriptor import ServiceDescriptor

from api_calls import PUBLISH, REQUEST, REQUEST_JSON, Rest, Service, api_settings
from broker.api.clients import ClientService
from broker.api.errors import ApiError
from broker.api.guard import LOGIN_SECONDS, ApiGuard
from broker.api.node import NodeService
from broker.api.pages import Page, alive_page, ready_page
from broker.api.pb import admin_pb2
from broker.api.pb.admin_pb2_grpc import PublishServiceStub
from broker.api.publishing import PublishService
from broker.api.server import ApiServer
from broker.api.subscriptions import SubscriptionService
from broker.api.tokens import ROLES, Role, Token, hash_token, read_token_file, write_tokens
from broker.api.traces import TraceService
from broker.auth.pb import account_pb2
from broker.auth.service import AccountService
from broker.event_log.pb import event_log_pb2
from broker.event_log.service import EventLogService
from broker.event_log.sink_service import EventLogSinkService
from broker.server.logging import get_logger
from broker.server.start_error import StartError

SERVICES: dict[ServiceDescriptor, Any] = {
    admin_pb2.DESCRIPTOR.services_by_name["ClientService"]: ClientService,
    admin_pb2.DESCRIPTOR.services_by_name["SubscriptionService"]: SubscriptionService,
    admin_pb2.DESCRIPTOR.services_by_name["NodeService"]: NodeService,
    admin_pb2.DESCRIPTOR.services_by_name["TraceService"]: TraceService,
    admin_pb2.DESCRIPTOR.services_by_name["PublishService"]: PublishService,
    account_pb2.DESCRIPTOR.services_by_name["AccountService"]: AccountService,
    event_log_pb2.DESCRIPTOR.services_by_name["EventLog"]: EventLogService,
    event_log_pb2.DESCRIPTOR.services_by_name["EventLogSink"]: EventLogSinkService,
}
READ_ONLY = ("List", "Get", "Filter", "Describe", "FindOffset", "Alarms", "Rates", "Events", "History")


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_each_method_has_a_role(service: ServiceDescriptor) -> None:
    """Only methods that change nothing and show no payload are for readers."""
    roles = SERVICES[service].roles
    assert sorted(roles) == sorted(method.name for method in service.methods)
    for name, role in roles.items():
        assert role > Role.READ or name in READ_ONLY, name
    if service.name in ("AccountService", "TraceService"):
        assert set(roles.values()) == {Role.ADMIN}


def test_a_method_without_a_role_is_not_served() -> None:
    class Forgetful(Service):
        roles = {}  # type: ignore[misc]  # noqa: RUF012

    api = ApiServer(api_settings([], []), {}, get_logger("api"))
    with pytest.raises(ValueError, match=r"Forgetful\.roles does not say who may call Publish"):
        api.register(PUBLISH, Forgetful())


TOKENS = {name: f"gmqttd_{role.name}" for name, role in ROLES.items()}


def write(path: Path, *names: str) -> None:
    tokens = [Token(name, Role[name.upper()], "", hash_token(TOKENS[name])) for name in names]
    path.write_bytes(write_tokens(tokens))


def test_an_expired_token_is_refused_as_an_unknown_one(tmp_path: Path) -> None:
    """With the reason, from the instant of its end on, without a reload."""
    end = datetime(2027, 1, 31, tzinfo=UTC)
    path = tmp_path / "tokens.yml"
    path.write_bytes(write_tokens([Token("robot", Role.WRITE, "", hash_token("t"), end)]))
    now = end - timedelta(seconds=1)
    guard = ApiGuard(str(path), lambda: now)
    guard.load()
    assert guard.check(["Bearer t"], Role.READ) is Role.WRITE
    now = end
    with pytest.raises(ApiError, match=r'"robot" has expired at 2027-01-31T00:00:00\+00:00') as caught:
        guard.check(["Bearer t"], Role.READ)
    assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
    assert guard.refused == 1


def test_a_login_of_the_page_ends_with_its_time_its_token_and_its_node(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yml"
    now = datetime(2027, 1, 31, tzinfo=UTC)
    robot, other = (Token(name, Role.WRITE, "", hash_token(name)) for name in ("robot.1", "other"))
    path.write_bytes(write_tokens([robot, other]))
    guard, another = (ApiGuard(str(path), lambda: now) for _ in range(2))
    for each in (guard, another):
        each.load()
    login = guard.login_of(robot)
    begin, _, proof = login.rpartition(".")

    def is_known(text: str, by: ApiGuard = guard) -> bool:
        return by.token_of([text]) is not None

    assert guard.check([f"Login {login}"], Role.READ) is Role.WRITE
    assert not is_known(f"Login {login}", another)
    for wrong in (
        f"Bearer {login}",
        f"Login other.{login.split('.', 2)[2]}",
        f"Login {begin}0.{proof}",
        f"Login {login}0",
        f"Login {begin}",
        "Login robot.1.\udc80.\udc80",
        "Login ..",
        "Login",
        "robot.1",
        f"Login {robot.hash}",
    ):
        assert not is_known(wrong), wrong
    now += timedelta(seconds=LOGIN_SECONDS)
    assert not is_known(f"Login {login}")
    now -= timedelta(seconds=1)
    assert is_known(f"Login {login}")
    path.write_bytes(write_tokens([Token("robot.1", Role.WRITE, "", hash_token("made anew")), other]))
    guard.load()
    assert not is_known(f"Login {login}")


def test_a_former_state_of_the_file_does_not_come_after_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two changes at once: a token that was deleted would stay good."""
    path = tmp_path / "tokens.yml"
    write(path, "read", "write")
    guard = ApiGuard(str(path))
    has_read, may_go_on = threading.Event(), threading.Event()

    def read_slowly(path: str) -> dict[str, Token]:
        found = read_token_file(path)
        has_read.set()
        may_go_on.wait(20)
        return found

    monkeypatch.setattr("broker.api.guard.read_token_file", read_slowly)
    former = threading.Thread(target=guard.load)
    former.start()
    assert has_read.wait(20)
    write(path, "read")
    monkeypatch.setattr("broker.api.guard.read_token_file", read_token_file)
    newer = threading.Thread(target=guard.load)
    newer.start()
    newer.join(0.1)  # it waits for the former one; without that it has ended
    may_go_on.set()
    for thread in (former, newer):
        thread.join(20)
    assert guard.token_count == 1


def damage(path: Path) -> None:
    path.write_text("damaged")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "tokens.yml"
    write(found, *TOKENS)
    return found


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def api(path: Path, service: Service) -> AsyncIterator[ApiServer]:
    guard = ApiGuard(str(path))
    guard.load()
    pages = {
        "/healthz": alive_page,
        "/readyz": lambda: ready_page([]),
        "/metrics": lambda: Page(200, "text/plain", b"{}"),
    }
    made = ApiServer(api_settings(["127.0.0.1:0"], ["127.0.0.1:0"]), pages, get_logger("api"), guard)
    made.register(PUBLISH, service)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def rest(api: ApiServer) -> AsyncIterator[Rest]:
    async with aiohttp.ClientSession() as session:
        yield Rest(session, f"http://{api.http_addresses[0]}")


@pytest.fixture
async def stub(api: ApiServer) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(api.grpc_addresses[0]) as channel:
        yield PublishServiceStub(channel)


WRITE_CALLS = [  # the header, the status of REST, the code of gRPC
    (None, 401, 16),
    ("Bearer", 401, 16),
    ("Bearer ", 401, 16),
    ("Bearer wrong", 401, 16),
    (f"Basic {TOKENS['admin']}", 401, 16),
    (TOKENS["admin"], 401, 16),
    (f"Bearer {TOKENS['admin']}x", 401, 16),
    (f"Bearer {hash_token(TOKENS['admin'])}", 401, 16),
    (f"Bearer {TOKENS['read']}", 403, 7),
    (f"Bearer {TOKENS['write']}", 200, 0),
    (f"bearer {TOKENS['write']}", 200, 0),
    (f"Bearer {TOKENS['admin']}", 200, 0),
]


@pytest.mark.parametrize(("header", "status", "code"), WRITE_CALLS)
async def test_a_call_needs_its_role(
    api: ApiServer, rest: Rest, stub: Any, service: Service, header: str | None, status: int, code: int
) -> None:
    """A refused one does not reach the service, and its answer has nothing of the token."""
    headers = {} if header is None else {"Authorization": header}
    async with rest.session.post(f"{rest.base}/v1/publish", data=REQUEST_JSON, headers=headers) as response:
        text = await response.text()
        assert response.status == status, text
        assert (response.headers.get("WWW-Authenticate") == "Bearer") == (status == 401)
    metadata = () if header is None else (("authorization", header),)
    if code == 0:
        await stub.Publish(REQUEST, metadata=metadata)
        assert len(service.requests) == 2
        return
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Publish(REQUEST, metadata=metadata)
    assert caught.value.code().value[0] == code
    assert service.requests == []
    assert "gmqttd_" not in text + (caught.value.details() or "")
    assert api.refused_input()["api_calls_unauthorized"] == 2


async def test_two_tokens_are_none(rest: Rest, stub: Any) -> None:
    headers = [("Authorization", f"Bearer {TOKENS['admin']}")] * 2
    assert (await rest.call("POST", "/v1/publish", REQUEST_JSON, headers=headers))[0] == 401
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Publish(REQUEST, metadata=[(name.lower(), value) for name, value in headers])


@pytest.mark.parametrize(
    ("path_", "needs_token"),
    [
        ("/healthz", False),
        ("/readyz", False),
        ("/docs", False),
        ("/v1/openapi.json", False),
        ("/metrics", True),
        ("/v1/publish", True),
    ],
)
async def test_pages_that_need_no_token(rest: Rest, path_: str, needs_token: bool) -> None:
    method = "POST" if path_ == "/v1/publish" else "GET"
    async with rest.session.request(method, rest.base + path_, data=b"{}" if method == "POST" else None) as response:
        assert (response.status == 401) is needs_token, await response.text()
    if path_ == "/metrics":
        headers = {"Authorization": f"Bearer {TOKENS['read']}"}
        async with rest.session.get(rest.base + path_, headers=headers) as response:
            assert response.status == 200


async def test_the_description_says_that_a_token_is_needed(rest: Rest) -> None:
    found = await rest.get("/v1/openapi.json")
    assert found["security"] == [{"token": []}]
    assert found["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}


async def test_tokens_are_read_again(api: ApiServer, rest: Rest, path: Path) -> None:
    """A deleted token is none; a damaged file changes nothing."""
    headers = {"Authorization": f"Bearer {TOKENS['write']}"}
    write(path, "read")
    api.guard.load()
    assert (await rest.call("POST", "/v1/publish", REQUEST_JSON, headers=headers))[0] == 401
    write(path, "write")
    api.guard.load()
    assert (await rest.call("POST", "/v1/publish", REQUEST_JSON, headers=headers))[0] == 200
    damage(path)
    with pytest.raises(StartError, match=r"api\.token_file: .*line 1"):
        api.guard.load()
    assert (await rest.call("POST", "/v1/publish", REQUEST_JSON, headers=headers))[0] == 200
    write(path)
    api.guard.load()
    assert (await rest.call("POST", "/v1/publish", REQUEST_JSON, headers=headers))[0] == 401


def test_no_call_needs_a_token_where_no_file_is_named() -> None:
    guard = ApiGuard()
    guard.load()
    assert guard.check([], Role.READ) is Role.ADMIN
    guard.check([], Role.ADMIN)
    guard.check(["Bearer whatever"], Role.ADMIN)
    assert (guard.is_on, guard.refused) == (False, 0)
