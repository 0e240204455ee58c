"""Failed logins by the thousand: what they cost, and whom they do not concern."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auth_plugin import connack_of, passwd, port_of, with_auth
from broker.codec.packets import ConnAck, Connect
from broker.codec.reason_codes import CONNECTION_RATE_EXCEEDED, NOT_AUTHORIZED, SERVER_BUSY, SERVER_UNAVAILABLE
from broker.codec.writer import encode_packet
from waiting import eventually

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]


async def test_thousands_of_wrong_passwords(start_server: StartServer, clients: Clients, tmp_path: Path) -> None:
    """From one address, while users of the same address log in: the known one at any time, and nobody waits for the flood.
    All but some of the wrong ones are refused without a check."""
    file = str(tmp_path / "accounts.yml")
    for user in ("alice", "bob"):
        assert passwd(*(["-c"] if user == "alice" else []), "-b", file, user, "right").returncode == 0
    server = await start_server(with_auth(password_file=file, threads=1))
    port = port_of(server)
    assert (await connack_of(await clients.open(port), "bob", b"right")).reason_code == 0

    async def guess(number: int) -> int:
        client = await clients.open(port)
        client.send(Connect(f"guess{number}", 5, username=f"user{number % 50}", password=b"%d" % number))
        code = (await client.answer(ConnAck)).reason_code
        await client.close(goodbye=False)
        return code

    async def guesses(first: int) -> list[int]:
        return [await guess(number) for number in range(first, 2000, 100)]

    flood = asyncio.gather(*(guesses(first) for first in range(100)))
    for _ in range(5):
        assert (await connack_of(await clients.open(port), "bob", b"right")).reason_code == 0
    codes = [code for found in await flood for code in found]
    assert set(codes) <= {NOT_AUTHORIZED, CONNECTION_RATE_EXCEEDED, SERVER_BUSY}
    assert codes.count(NOT_AUTHORIZED) < 500
    refused = server.plugins[0].refused_input()
    assert refused["logins_slowed"] + refused["logins_busy"] + codes.count(NOT_AUTHORIZED) >= len(codes)
    assert server.broker.connecting == {}
    assert (await connack_of(await clients.open(port), "bob", b"wrong")).reason_code == NOT_AUTHORIZED


async def test_a_flood_from_one_address_leaves_the_others_their_turns(
    start_server: StartServer, clients: Clients, tmp_path: Path
) -> None:
    """300 logins wait for the only thread when a user logs in for the first time from another address."""
    file = str(tmp_path / "accounts.yml")
    assert passwd("-c", "-b", file, "alice", "right").returncode == 0
    server = await start_server(with_auth(password_file=file, threads=1, failures_per_address=0))
    port = port_of(server)
    flood = []
    for number in range(300):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        packet = Connect(f"c{number}", 5, username=f"user{number}", password=b"wrong")
        writer.write(encode_packet(packet, 5))
        flood.append((reader, writer))

    def waiting() -> float:
        return server.plugins[0].metrics()[1].samples[()]

    await eventually(lambda: waiting() > 100, "the flood waits")
    alice = await clients.open(port)
    assert (await connack_of(alice, "alice", b"right")).reason_code == 0
    assert waiting() > 0, "she has overtaken others"
    for reader, writer in flood:
        assert (await reader.readexactly(4))[0] == 0x20
        writer.close()


async def test_a_user_is_slowed_down_after_failed_logins(
    start_server: StartServer, clients: Clients, tmp_path: Path
) -> None:
    file = str(tmp_path / "accounts.yml")
    (tmp_path / "accounts.yml").write_text(
        "- {username: root, password: secret}\n- {username: other, password: secret}"
    )
    server = await start_server(with_auth(hash="plain", password_file=file, failures_per_user=3))
    codes = []
    for version in (5, 5, 5, 5, 4):
        client = await clients.open(port_of(server), version)
        codes.append((await connack_of(client, "root", b"wrong")).reason_code)
    assert codes == [NOT_AUTHORIZED] * 3 + [CONNECTION_RATE_EXCEEDED, SERVER_UNAVAILABLE]
    client = await clients.open(port_of(server))
    assert (await connack_of(client, "root", b"secret")).reason_code == CONNECTION_RATE_EXCEEDED
    assert (await connack_of(await clients.open(port_of(server)), "other", b"secret")).reason_code == 0
    assert server.plugins[0].refused_input()["logins_slowed"] == 3
    events, waiting = server.plugins[0].metrics()
    assert (events.samples[("logins_slowed",)], waiting.samples) == (3, {(): 0})
