"""A client of aiomqtt."""

from __future__ import annotations

import asyncio
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes

from driver import serve, tell, tell_message
from paho_properties import from_paho, subscribe_arguments, to_paho


class AiomqttClient:
    """Its library does not tell whether a session was present: `connect` gives None."""

    def __init__(self) -> None:
        self._client: Any = None
        self._version = 4
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
        self._version = version
        arguments: dict[str, Any] = {"clean_session": clean}
        if version == 5:
            arguments = {"clean_start": clean, "properties": to_paho(PacketTypes.CONNECT, properties)}
        if will is not None:
            delay = {"will_delay": will["delay"]} if version == 5 else {}
            of_will = to_paho(PacketTypes.WILLMESSAGE, delay)
            arguments["will"] = aiomqtt.Will(will["topic"], will["payload"], will["qos"], will["retain"], of_will)
        if transport in ("ws", "wss"):
            arguments["transport"] = "websockets"
        if cafile:
            arguments["tls_params"] = aiomqtt.TLSParameters(ca_certs=cafile)
        protocol = aiomqtt.ProtocolVersion(version)
        self._client = aiomqtt.Client(
            "127.0.0.1", port, identifier=client_id, protocol=protocol, keepalive=keep_alive, **arguments
        )
        await self._client.__aenter__()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for message in self._client.messages:
                properties = from_paho(message.properties) if self._version == 5 else {}
                tell_message(str(message.topic), message.payload, message.qos, message.retain, properties)
        except aiomqtt.MqttError as error:
            tell("ended", str(error))

    async def subscribe(self, filters: list[str], qos: int, identifier: int) -> list[int]:
        codes: list[int] = []
        for topic_filter in filters:
            granted = await self._client.subscribe(topic_filter, **subscribe_arguments(self._version, qos, identifier))
            codes += [int(getattr(code, "value", code)) for code in granted]
        return codes

    async def unsubscribe(self, filters: list[str]) -> None:
        await self._client.unsubscribe(filters)

    async def publish(self, topic: str, payload: bytes, qos: int, retain: bool, properties: dict[str, Any]) -> None:
        """Returns when the message is acknowledged, with QoS 0 when it is written."""
        given = to_paho(PacketTypes.PUBLISH, properties)
        await self._client.publish(topic, payload, qos, retain, given)

    async def disconnect(self) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await self._client.__aexit__(None, None, None)


async def main() -> None:
    await serve(AiomqttClient())


if __name__ == "__main__":
    asyncio.run(main())
