"""The admin plugin in a whole node: MQTT clients on real sockets, the API beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from api_calls import api_settings
from broker.api.plugin import AdminPlugin
from broker.codec.packets import ConnAck, Connect, Disconnect, Packet, Publish, SubAck, Subscribe, SubscribeFilter
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.config.addresses import Address
from broker.config.settings import Settings
from broker.config.settings_listeners import ListenerSettings
from broker.server import lifecycle

VERSION = 5


class MqttClient:
    """As much of a client as these tests need."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.packets = PacketReader(VERSION)
        self.waiting: list[Packet] = []

    def send(self, packet: Packet) -> None:
        self.writer.write(encode_packet(packet, VERSION))

    async def receive(self, kind: type[Packet]) -> Any:
        async with asyncio.timeout(10):
            while not self.waiting:
                data = await self.reader.read(65536)
                assert data, "connection closed"
                self.waiting = self.packets.receive_data(data)
        packet = self.waiting.pop(0)
        assert isinstance(packet, kind), packet
        return packet


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[lifecycle.Server]:
    monkeypatch.setattr(lifecycle, "load_plugin", {"admin": AdminPlugin}.get)
    settings = Settings(
        listeners=(ListenerSettings(Address("tcp", "127.0.0.1", 0)),),
        api=api_settings(["127.0.0.1:0"], ["127.0.0.1:0"]),
        plugin_order=("admin",),
    )
    server = lifecycle.Server(settings)
    await server.start()
    yield server
    await server.stop()


async def test_a_client_and_the_api(server: lifecycle.Server) -> None:
    host, port = server.listeners.addresses[0].split(":")
    client = MqttClient(*await asyncio.open_connection(host, int(port)))
    client.send(Connect("c1", VERSION, True, 0, None, None, None, {}))
    await client.receive(ConnAck)
    client.send(Subscribe(1, [SubscribeFilter(b"a/b", 1)]))
    await client.receive(SubAck)
    assert server.api is not None
    base = f"http://{server.api.http_addresses[0]}/v1"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{base}/clients") as response:
            (shown,) = (await response.json())["clients"]
        assert shown["client_id"] == "c1"
        assert shown["remote_addr"] == "{}:{}".format(*client.writer.get_extra_info("sockname"))
        wish = {"client_id": "c1", "subscriptions": [{"topic_name": "x/#"}]}
        async with session.post(f"{base}/subscribe", json=wish) as response:
            assert await response.json() == {"new": [True]}
        for topic in ("a/b", "x/y"):
            async with session.post(f"{base}/publish", json={"topic_name": topic, "payload": "hi"}) as response:
                assert await response.json() == {}
            publish = await client.receive(Publish)
            assert (publish.topic, publish.payload) == (topic.encode(), b"hi")
        async with session.delete(f"{base}/clients/c1") as response:
            assert response.status == 200
        assert (await client.receive(Disconnect)).reason_code == 0x98
    client.writer.close()


async def test_the_plugin_starts_without_api_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "load_plugin", {"admin": AdminPlugin}.get)
    server = lifecycle.Server(Settings(listeners=(), plugin_order=("admin",)))
    await server.start()
    assert server.api is None
    await server.stop()
