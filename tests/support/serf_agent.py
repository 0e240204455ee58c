"""A real `serf agent` (Debian package `serf`) on loopback sockets."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from broker.config.addresses import Address
from federation.gossip.addresses import ip_text
from node_process import free_port
from waiting import eventually

SERF = shutil.which("serf")
needs_serf = pytest.mark.skipif(SERF is None, reason="the program `serf` (Debian package serf) is not installed")


class Agent:
    """A running `serf agent`."""

    def __init__(self, process: asyncio.subprocess.Process, name: str, port: int, rpc_port: int) -> None:
        self.process = process
        self.name = name
        self.port = port
        self.rpc_port = rpc_port

    async def begin(self, name: str, *arguments: str) -> asyncio.subprocess.Process:
        assert SERF is not None
        return await asyncio.create_subprocess_exec(
            SERF,
            name,
            f"-rpc-addr=127.0.0.1:{self.rpc_port}",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def command(self, name: str, *arguments: str) -> str:
        process = await self.begin(name, *arguments)
        output, _ = await process.communicate()
        return output.decode()

    async def members(self) -> dict[str, dict[str, object]]:
        """By name, as `serf members -format=json` shows them. Tests ask again and again: a process for each time would take
        more of the machine than all else."""
        unpacker = msgpack.Unpacker(raw=True)
        found: list[Any] = []
        reader, writer = await asyncio.open_connection("127.0.0.1", self.rpc_port)
        try:
            for request in (
                {"Command": "handshake", "Seq": 1},
                {"Version": 1},
                {"Command": "members", "Seq": 2},
            ):
                writer.write(msgpack.packb(request))
            while len(found) < 3:  # two headers, and a body
                data = await reader.read(1 << 16)
                assert data, f"the agent {self.name} has closed its RPC: {found}"
                unpacker.feed(data)
                found += unpacker
        finally:
            writer.close()
        members = [{key.decode(): value for key, value in member.items()} for member in found[2][b"Members"]]
        return {
            member["Name"].decode(): {
                "name": member["Name"].decode(),
                "addr": Address("tcp", ip_text(member["Addr"]), member["Port"]).host_port,
                "tags": {tag.decode(): value.decode() for tag, value in member["Tags"].items()},
                "status": member["Status"].decode(),
            }
            for member in members
        }

    async def status(self, name: str) -> object:
        return (await self.members()).get(name, {}).get("status")


@asynccontextmanager
async def running_agent(name: str, *options: str, host: str = "127.0.0.1") -> AsyncIterator[Agent]:
    assert SERF is not None
    port, rpc_port = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        SERF,
        "agent",
        f"-node={name}",
        f"-bind={Address('tcp', host, port).host_port}",
        f"-rpc-addr=127.0.0.1:{rpc_port}",
        *options,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    agent = Agent(process, name, port, rpc_port)
    try:
        await eventually(lambda: is_listening(rpc_port), "the agent listens")
        yield agent
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True
