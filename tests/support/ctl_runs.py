"""Runs of `gmqttctl` against a node in this process."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from click.testing import CliRunner, Result

from gmqttctl.cli import main

if TYPE_CHECKING:
    from broker.server.lifecycle import Server

# What ends commands that go on.
LIVE: Final = {
    "top": ("-n", "1", "--seconds", "1"),
    "topics": ("--seconds", "1"),
    "subscribe": ("-n", "1", "--retained"),
    "log tail": ("-F",),
}


class Ctl:
    """Runs gmqttctl; a client of gRPC would block the loop of the node."""

    def __init__(self, server: Server) -> None:
        assert server.api is not None
        self.address = server.api.grpc_addresses[0]

    async def run(self, *arguments: str, text: str | bytes | None = None, **environment: str) -> Result:
        names = {"GMQTTCTL_SERVERS": self.address, **environment}
        return await asyncio.to_thread(
            CliRunner().invoke, main, arguments, input=text, env=names, catch_exceptions=False
        )

    async def done(self, *arguments: str, text: str | bytes | None = None) -> str:
        result = await self.run(*arguments, text=text)
        assert result.exit_code == 0, result.output
        return result.output

    async def values(self, *arguments: str) -> Any:
        return json.loads(await self.done(*arguments, "-o", "json"))
