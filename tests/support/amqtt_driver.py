"""A client of amqtt, which speaks MQTT 3.1.1 only."""

from __future__ import annotations

import asyncio
from typing import Any

from amqtt.client import MQTTClient

from driver import serve, tell_message


class AmqttClient:
    """Its library does not tell whether a session was present: `connect` gives None. Nor does it tell that the connection
    has ended."""

    def __init__(self) -> None:
        self._client: Any = None
        self._reading: asyncio.Task[None] | None = None

    async def connect(
        self,
        port: int,
        client_id: str,
        version: int,
        clean: bool,
        keep_alive: int,
        will: dict[str, Any] | None,
        properties: dict[str, Any],
        transport: str,
        cafile: str,
    ) -> None:
        assert version == 4
        # The library announces keep_alive - ping_delay, and pings that often.
        config: dict[str, Any] = {"keep_alive": keep_alive + 1, "ping_delay": 1, "auto_reconnect": False}
        if will is not None:
            names = ("topic", "qos", "retain")
            config["will"] = {**{name: will[name] for name in names}, "message": will["payload"]}
        self._client = MQTTClient(client_id, config)
        scheme = {"tcp": "mqtt", "tls": "mqtts"}.get(transport, transport)
        path = "/mqtt" if transport in ("ws", "wss") else ""
        await self._client.connect(f"{scheme}://127.0.0.1:{port}{path}", cleansession=clean, cafile=cafile or None)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            message = await self._client.deliver_message()
            tell_message(message.topic, bytes(message.data), message.qos, message.retain, {})

    async def subscribe(self, filters: list[str], qos: int, identifier: int) -> list[int]:
        codes: list[int] = await self._client.subscribe([(topic_filter, qos) for topic_filter in filters])
        return codes

    async def unsubscribe(self, filters: list[str]) -> None:
        await self._client.unsubscribe(filters)

    async def publish(self, topic: str, payload: bytes, qos: int, retain: bool, properties: dict[str, Any]) -> None:
        """Returns when the message is acknowledged, with QoS 0 when it is written."""
        await self._client.publish(topic, payload, qos, retain)

    async def disconnect(self) -> None:
        await self._client.disconnect()


async def main() -> None:
    await serve(AmqttClient())


if __name__ == "__main__":
    asyncio.run(main())
