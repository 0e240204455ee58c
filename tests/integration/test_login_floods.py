"""Failed logins by the thousand: what they cost, and whom they do not concern."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from aiohttp import web

from auth_plugin import connack_of, passwd, port_of, with_auth
from broker.codec.packets import Auth, ConnAck, Connect
from broker.codec.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD
from broker.codec.reason_codes import CONNECTION_RATE_EXCEEDED, NOT_AUTHORIZED, SERVER_BUSY
from broker.codec.writer import encode_packet
from scram_client import final_message
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

GUESSES: Final = 1_000
AT_ONCE: Final = 100


async def test_a_thousand_wrong_passwords(start_server: StartServer, clients: Clients, tmp_path: Path) -> None:
    """From one address, while users of the same address log in: the known one at any time, and nobody waits for the flood.
    All but some of the wrong ones are refused without a check."""
    file = str(tmp_path / "accounts.yml")
    for user in ("alice", "bob"):
        assert passwd(*(["-c"] if user == "alice" else []), "-b", file, user, "right").returncode == 0
    # On a busy machine a check may wait for longer than clients usually have for their login.
    patient = {"mqtt": {"connect_timeout": f"{DEADLINE:.0f}s"}}
    server = await start_server(with_auth(password_file=file, threads=1) | patient)
    port = port_of(server)
    assert (await connack_of(await clients.open(port), "bob", b"right")).reason_code == 0

    async def guess(number: int) -> int:
        client = await clients.open(port)
        client.send(Connect(f"guess{number}", 5, username=f"user{number % 50}", password=b"%d" % number))
        code = (await client.answer(ConnAck)).reason_code
        await client.close(goodbye=False)
        return code

    async def guesses(first: int) -> list[int]:
        return [await guess(number) for number in range(first, GUESSES, AT_ONCE)]

    flood = asyncio.gather(*(guesses(first) for first in range(AT_ONCE)))
    for _ in range(5):
        assert (await connack_of(await clients.open(port), "bob", b"right")).reason_code == 0
    codes = [code for found in await flood for code in found]
    assert set(codes) <= {NOT_AUTHORIZED, CONNECTION_RATE_EXCEEDED, SERVER_BUSY}
    assert codes.count(NOT_AUTHORIZED) < GUESSES / 4
    refused = server.plugins[0].refused_input()
    assert refused["logins_slowed"] + refused["logins_busy"] + codes.count(NOT_AUTHORIZED) >= len(codes)
    assert server.broker.connecting == {}
    assert (await connack_of(await clients.open(port), "bob", b"wrong")).reason_code == NOT_AUTHORIZED


class UserService:
    """A web service that allows nobody but alice. It answers while `opened` is set."""

    def __init__(self) -> None:
        self.usernames: list[str] = []
        self.opened = asyncio.Event()
        self.url = ""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        username = (await request.json())["username"]
        self.usernames.append(username)
        await self.opened.wait()
        return web.json_response({"result": "allow" if username == "alice" else "deny"})


@pytest.fixture
async def users() -> AsyncIterator[UserService]:
    made = UserService()
    runner = web.ServerRunner(web.Server(made.answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    made.opened.set()
    await runner.cleanup()


async def flood_of(port: int, packets: Iterable[Connect]) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """CONNECT packets from another address than that of all other clients."""
    flood = []
    for packet in packets:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        writer.write(encode_packet(packet, 5))
        flood.append((reader, writer))
    return flood


async def codes_of(flood: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> list[int]:
    """Reason codes of their CONNACK packets."""
    codes = []
    for reader, writer in flood:
        codes.append((await reader.readexactly(4))[3])
        writer.close()
    return codes


async def test_a_web_service_is_asked_about_the_addresses_in_turns(
    start_server: StartServer, clients: Clients, users: UserService
) -> None:
    webhook = {"url": users.url, "timeout": "30s"}
    server = await start_server(with_auth(password_file="", failures_per_address=0, webhook=webhook))
    port = port_of(server)

    def waiting() -> float:
        return server.plugins[0].metrics()[2].samples[()]

    flood = await flood_of(port, (Connect(f"c{i}", 5, username=f"user{i}", password=b"x") for i in range(100)))
    await eventually(lambda: len(users.usernames) == 32 and waiting() == 68, "the flood waits")
    alice = [await clients.open(port) for _ in range(4)]
    for client in alice:
        client.send(Connect("", 5, username="alice", password=b"right"))
    await eventually(lambda: waiting() == 72, "alice waits")
    users.opened.set()
    for client in alice:
        assert (await client.answer(ConnAck)).reason_code == 0
    assert users.usernames[32:40].count("alice") >= 3, "each address has its turn"
    assert set(await codes_of(flood)) == {NOT_AUTHORIZED}
    assert server.broker.connecting == {}


async def test_few_proofs_of_scram_are_checked_at_once(
    start_server: StartServer, clients: Clients, tmp_path: Path
) -> None:
    """The exchanges have begun before the first of them fails."""
    file = str(tmp_path / "accounts.yml")
    assert passwd("-c", "-b", "--scram", file, "alice", "right").returncode == 0
    server = await start_server(with_auth(password_file=file, scram=True))

    def scram(data: bytes) -> dict[int, Any]:
        return {AUTHENTICATION_METHOD: "SCRAM-SHA-256", AUTHENTICATION_DATA: data}

    first = b"n,,n=alice,r=client"
    begun = []
    for number in range(20):
        client = await clients.open(port_of(server))
        client.send(Connect(f"c{number}", 5, properties=scram(first)))
        challenge = (await client.answer(Auth)).properties[AUTHENTICATION_DATA]
        assert isinstance(challenge, bytes)
        begun.append((client, challenge))
    codes = []
    for client, challenge in begun:
        client.send(Auth(0x18, scram(final_message(first, challenge, "wrong"))))
        codes.append((await client.answer(ConnAck)).reason_code)
    assert (codes.count(NOT_AUTHORIZED), codes.count(CONNECTION_RATE_EXCEEDED)) == (5, 15)
