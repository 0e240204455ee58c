"""The membership of a node in this process whose gossip has keys, with an API over REST and gRPC."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp

from api_calls import api_settings
from broker.api.server import ApiServer
from broker.broker import Broker
from broker.config.settings import MqttSettings
from broker.server.logging import get_logger
from federation.api.keys import KeysService
from federation.gossip.config import LAN
from federation.gossip.keyring import key_text
from federation.membership import FederationMembership
from federation.node import Node
from federation.pb import keys_pb2
from federation.serf.config import SerfConfig
from federation.serf.serf import Serf
from federation.settings import FederationSettings
from federation.shell.gossip_sockets import bind_gossip
from federation.shell.keyring_file import KeyringFile


async def _nothing() -> None:
    """Before a leave."""


class KeyedMember:
    """`path`: the keyring file; None: the keys are in memory alone."""

    def __init__(self, name: str, *keys: bytes, path: Path | None = None, compression: bool = False) -> None:
        self.name = name
        self.path = path
        self._keys = keys
        self._profile = replace(LAN, compression=compression)
        self._file: KeyringFile | None = None
        if path is not None:
            path.touch(0o600)
            path.write_text(json.dumps([key_text(key) for key in keys]))
            self._file = KeyringFile(str(path), "keyring_file")
        settings = FederationSettings(node_name=name)
        node = Node(name, Broker(MqttSettings(), random.Random(1), 0.0), settings, random.Random(2))
        self.membership = FederationMembership(
            node, settings, lambda: None, _nothing, lambda reason: None, "plugins.federation", False
        )
        self.api = ApiServer(api_settings(["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:0"]), {}, get_logger("api"))
        self.api.register(keys_pb2.DESCRIPTOR.services_by_name["Keys"], KeysService(self.membership))
        self.address = ""

    async def start(self) -> None:
        sockets = bind_gossip("127.0.0.1", 0)
        self.address = f"127.0.0.1:{sockets.port}"
        config = SerfConfig(
            self.name,
            "127.0.0.1",
            sockets.port,
            encrypt_keys=self._keys,
            keeps_keys=self._file is not None,
            profile=self._profile,
        )
        serf = Serf(config, random.Random(self.name), asyncio.get_running_loop().time())
        await self.membership.start(serf, sockets, self._file)
        await self.api.start()

    async def stop(self) -> None:
        await self.api.stop()
        await self.membership.stop()

    @property
    def serf(self) -> Serf:
        assert self.membership.serf is not None
        return self.membership.serf

    @property
    def keys(self) -> tuple[bytes, ...]:
        assert self.serf.keyring is not None
        return self.serf.keyring.keys

    def kept(self) -> Any:
        assert self.path is not None
        return json.loads(self.path.read_text())

    async def call(self, method: str, path: str, **body: str) -> tuple[int, dict[str, Any]]:
        url = f"http://{self.api.http_addresses[0]}/v1/federation/{path}"
        data = json.dumps(body) if method == "POST" else None
        async with aiohttp.ClientSession() as session, session.request(method, url, data=data) as response:
            return response.status, await response.json()


@asynccontextmanager
async def running(*members: KeyedMember) -> AsyncIterator[None]:
    """All members join the first one."""
    begun: list[KeyedMember] = []
    try:
        for member in members:
            await member.start()
            begun.append(member)
            if member is not members[0]:
                await member.membership.join([members[0].address])
        yield
    finally:
        for member in begun:
            await member.stop()
