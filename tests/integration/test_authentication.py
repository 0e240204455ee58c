"""SCRAM-SHA-256 over real sockets, by a decider that looks its users up in a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from broker.auth.scram import (
    METHOD,
    Credentials,
    ScramFault,
    ServerExchange,
    derive_credentials,
    parse_client_first,
    unknown_credentials,
)
from broker.codec.packets import Auth, ConnAck, Connect
from broker.codec.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD
from broker.codec.reason_codes import NOT_AUTHORIZED
from broker.hooks import AuthenticationRequest, ConnectDecider, ConnectRequest
from scram_client import final_message

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients, MqttClient

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]


class ScramDecider(ConnectDecider):
    """Users with passwords, which a task looks up."""

    def __init__(self, server: Server, users: dict[str, Credentials]) -> None:
        self._server = server
        self._users = users
        self._tasks: set[asyncio.Task[None]] = set()
        server.broker.add_connect_decider(self)

    def methods(self) -> tuple[str, ...]:
        return (METHOD,)

    def decide(self, request: ConnectRequest, now: float) -> None:
        self._begin(request)

    def reauthenticate(self, request: AuthenticationRequest, now: float) -> None:
        self._begin(request)

    def _begin(self, request: AuthenticationRequest) -> None:
        task = asyncio.create_task(self._challenge(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _challenge(self, request: AuthenticationRequest) -> None:
        await asyncio.sleep(0)
        try:
            first = parse_client_first(request.data)
        except ScramFault as fault:
            request.refuse(NOT_AUTHORIZED, str(fault))
        else:
            credentials = self._users.get(first.username) or unknown_credentials(b"secret", first.username)
            request.username = first.username
            request.exchange = exchange = ServerExchange(first, credentials, "server")
            request.challenge(exchange.challenge)
        self._server.flush_soon()

    def continue_authentication(self, request: AuthenticationRequest, now: float) -> None:
        assert isinstance(request.exchange, ServerExchange)
        try:
            request.accept(request.exchange.finish(request.data))
        except ScramFault as fault:
            request.refuse(NOT_AUTHORIZED, str(fault))


def scram(data: bytes) -> dict[int, Any]:
    return {AUTHENTICATION_METHOD: METHOD, AUTHENTICATION_DATA: data}


async def log_in(client: MqttClient, first: bytes, password: str) -> ConnAck:
    client.send(Connect("c", properties=scram(first)))
    challenge = await client.answer(Auth)
    assert challenge.reason_code == 0x18
    data = challenge.properties[AUTHENTICATION_DATA]
    assert isinstance(data, bytes)
    client.send(Auth(0x18, scram(final_message(first, data, password))))
    return await client.answer(ConnAck)


@pytest.mark.parametrize(
    ("user", "password", "reason_code"), [("user", "right", 0), ("user", "wrong", 0x87), ("nobody", "right", 0x87)]
)
async def test_clients_log_in_with_scram(
    start_server: StartServer, clients: Clients, user: str, password: str, reason_code: int
) -> None:
    """The challenge of an unknown user looks like that of any other. A client that is in authenticates again."""
    server = await start_server({})
    ScramDecider(server, {"user": derive_credentials("right", b"0123456789abcdef")})
    client = await clients.open(int(server.listeners.addresses[0].rpartition(":")[2]))
    first = f"n,,n={user},r=client".encode()
    connack = await log_in(client, first, password)
    assert connack.reason_code == reason_code
    if reason_code:
        await client.wait_closed()
        assert server.broker.sessions == {}
        return
    assert connack.properties[AUTHENTICATION_METHOD] == METHOD
    signature = connack.properties[AUTHENTICATION_DATA]
    assert isinstance(signature, bytes)
    assert signature.startswith(b"v=")
    assert server.broker.sessions["c"].username == "user"
    await client.ping()
    client.send(Auth(0x19, scram(first)))
    challenge = await client.answer(Auth)
    data = challenge.properties[AUTHENTICATION_DATA]
    assert isinstance(data, bytes)
    client.send(Auth(0x18, scram(final_message(first, data, "wrong"))))
    await client.wait_closed()
    assert client.disconnect is not None
    assert client.disconnect.reason_code == 0x87
