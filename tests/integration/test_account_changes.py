"""Clients of accounts that change or go while they are connected, or while they log in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from api_calls import Rest
from auth_plugin import passwd, port_of, with_auth
from broker.codec.packets import Auth, ConnAck, Connect
from broker.codec.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD
from broker.codec.reason_codes import NOT_AUTHORIZED
from broker.hooks import ConnectDecider, ConnectRequest
from scram_client import final_message
from waiting import eventually

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

USERS = ("alice", "bob", "carol")


def account(name: str, password: str) -> str:
    return f"- {{username: {name}, password: {password}}}\n"


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("way", ["reload", "API"])
async def test_clients_of_changed_and_deleted_accounts_are_disconnected(
    start_server: StartServer, clients: Clients, tmp_path: Path, way: str, version: int
) -> None:
    """Those of a deleted account and of one with a new password, not those of others."""
    file = tmp_path / "accounts.yml"
    file.write_text("".join(account(name, name[:1]) for name in USERS))
    config = with_auth(hash="plain", new_hash="plain", password_file=str(file))
    server = await start_server({**config, "api": {"http": [{"address": "127.0.0.1:0"}]}})
    opened = {}
    for name in USERS:
        client = opened[name] = await clients.open(port_of(server), version)
        client.send(Connect(name, version, username=name, password=name[:1].encode()))
        client.connack = await client.answer(ConnAck)
        assert client.connack.reason_code == 0
    if way == "reload":
        file.write_text(account("bob", "new") + account("carol", "c"))
        await server.reload(server.settings)
    else:
        assert server.api is not None
        async with aiohttp.ClientSession() as session:
            rest = Rest(session, f"http://{server.api.http_addresses[0]}")
            await rest.post("/v1/accounts/bob", {"password": "new"})
            assert (await rest.call("DELETE", "/v1/accounts/alice"))[0] == 200
    for name in ("alice", "bob"):
        await opened[name].wait_closed()
        disconnect = opened[name].disconnect
        assert (disconnect.reason_code if disconnect else None) == (NOT_AUTHORIZED if version == 5 else None)
    await opened["carol"].ping()
    assert server.refused_input()["logins_ended"] == 2


async def test_an_exchange_of_scram_does_not_end_with_former_keys(
    start_server: StartServer, clients: Clients, tmp_path: Path
) -> None:
    file = str(tmp_path / "accounts.yml")
    assert passwd("-c", "-b", "--scram", file, "alice", "first").returncode == 0
    server = await start_server(with_auth(password_file=file, scram=True))
    client = await clients.open(port_of(server))

    def scram(data: bytes) -> dict[int, Any]:
        return {AUTHENTICATION_METHOD: "SCRAM-SHA-256", AUTHENTICATION_DATA: data}

    first = b"n,,n=alice,r=client"
    client.send(Connect("c", properties=scram(first)))
    challenge = (await client.answer(Auth)).properties[AUTHENTICATION_DATA]
    assert isinstance(challenge, bytes)
    assert passwd("-b", "--scram", file, "alice", "second").returncode == 0
    await server.reload(server.settings)
    client.send(Auth(0x18, scram(final_message(first, challenge, "first"))))
    assert (await client.answer(ConnAck)).reason_code == NOT_AUTHORIZED


class Keeps(ConnectDecider):
    """Another plugin that decides about clients, and answers none of them."""

    def __init__(self) -> None:
        self.asked: list[ConnectRequest] = []

    def decide(self, request: ConnectRequest, now: float) -> None:
        self.asked.append(request)


@pytest.mark.parametrize("waits_for", ["web service", "plugin"])
async def test_a_login_with_scram_that_waits_while_its_account_goes_is_refused(
    start_server: StartServer, clients: Clients, tmp_path: Path, waits_for: str
) -> None:
    """CONNECT did not have the name; the proof was right when it was checked."""
    asked, answers = asyncio.Event(), asyncio.Event()

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        await answers.wait()
        return web.json_response({"result": "allow"})

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    webhook = {"url": f"http://127.0.0.1:{runner.addresses[0][1]}", "timeout": "60s"}
    file = tmp_path / "accounts.yml"
    for name in ("alice", "bob"):
        assert passwd(*(["-c"] if name == "alice" else []), "-b", "--scram", str(file), name, "right").returncode == 0
    keys = with_auth(
        password_file=str(file), scram=True, **({"webhook": webhook} if waits_for == "web service" else {})
    )
    server = await start_server(keys)
    other = Keeps()
    if waits_for == "plugin":
        server.broker.add_connect_decider(other)

    def scram(data: bytes) -> dict[int, Any]:
        return {AUTHENTICATION_METHOD: "SCRAM-SHA-256", AUTHENTICATION_DATA: data}

    first = b"n,,n=alice,r=client"
    client = await clients.open(port_of(server))
    client.send(Connect("c", 5, properties=scram(first)))
    challenge = (await client.answer(Auth)).properties[AUTHENTICATION_DATA]
    assert isinstance(challenge, bytes)
    client.send(Auth(0x18, scram(final_message(first, challenge, "right"))))
    await eventually(lambda: asked.is_set() or bool(other.asked), "the login waits")
    assert passwd("-D", str(file), "alice").returncode == 0
    await server.reload(server.settings)
    assert (await client.answer(ConnAck)).reason_code == NOT_AUTHORIZED
    answers.set()
    await runner.cleanup()
    assert "c" not in server.broker.sessions
