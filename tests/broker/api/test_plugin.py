"""The admin plugin in a whole node: MQTT clients on real sockets, the API beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from api_calls import api_settings
from broker.api.plugin import AdminPlugin
from broker.config.addresses import Address
from broker.config.settings import Settings
from broker.config.settings_listeners import ListenerSettings
from broker.server import lifecycle
from mqtt_client import MqttClient


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
    client = await MqttClient.connect(int(server.listeners.addresses[0].split(":")[1]), "c1")
    await client.subscribe("a/b", qos=1)
    assert server.api is not None
    base = f"http://{server.api.http_addresses[0]}/v1"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{base}/clients") as response:
            (shown,) = (await response.json())["clients"]
        assert shown["client_id"] == "c1"
        assert shown["remote_addr"].startswith("127.0.0.1:")
        wish = {"client_id": "c1", "subscriptions": [{"topic_name": "x/#"}]}
        async with session.post(f"{base}/subscribe", json=wish) as response:
            assert await response.json() == {"new": [True]}
        for topic in ("a/b", "x/y"):
            async with session.post(f"{base}/publish", json={"topic_name": topic, "payload": "hi"}) as response:
                assert await response.json() == {}
            publish = await client.message()
            assert (publish.topic, publish.payload) == (topic.encode(), b"hi")
        async with session.delete(f"{base}/clients/c1") as response:
            assert response.status == 200
    await client.wait_closed()
    assert client.disconnect is not None
    assert client.disconnect.reason_code == 0x98
    await client.close()


async def test_the_plugin_starts_without_api_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "load_plugin", {"admin": AdminPlugin}.get)
    server = lifecycle.Server(Settings(listeners=(), plugin_order=("admin",)))
    await server.start()
    assert server.api is None
    await server.stop()
