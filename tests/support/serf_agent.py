"""A real `serf agent` (Debian package `serf`) on loopback sockets."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.config.addresses import Address
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
        members = json.loads(await self.command("members", "-format=json"))["members"]
        return {member["name"]: member for member in members}

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
