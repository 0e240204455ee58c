"""A client of paho-mqtt with its network thread."""

from __future__ import annotations

import asyncio
from typing import Any

from paho.mqtt import client as mqtt
from paho.mqtt.packettypes import PacketTypes

from driver import CALL_SECONDS, serve, tell, tell_message
from paho_properties import from_paho, subscribe_arguments, to_paho


class PahoClient:
    """Answers of the broker come on paho's thread, and are passed to the loop."""

    def __init__(self) -> None:
        self._client: Any = None
        self._version = 4
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

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
    ) -> bool:
        self._version = version
        client: Any = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if version == 5 else clean,
            protocol=mqtt.MQTTProtocolVersion(version),
            transport="websockets" if transport in ("ws", "wss") else "tcp",
            reconnect_on_failure=False,
        )
        self._client = client
        client.on_connect = lambda _client, _data, flags, code, _properties: self._answer((code, flags.session_present))
        client.on_connect_fail = lambda _client, _data: self._answer(("no connection", False))
        client.on_disconnect = lambda _client, _data, _flags, code, _properties: tell("ended", str(code))
        client.on_message = self._message
        client.on_subscribe = lambda _client, _data, _id, codes, _properties: self._answer([c.value for c in codes])
        client.on_unsubscribe = lambda _client, _data, _id, codes, _properties: self._answer([c.value for c in codes])
        if cafile:
            client.tls_set(cafile)
        if will is not None:
            delay = {"will_delay": will["delay"]} if version == 5 else {}
            of_will = to_paho(PacketTypes.WILLMESSAGE, delay)
            client.will_set(will["topic"], will["payload"], will["qos"], will["retain"], of_will)
        arguments: dict[str, Any] = {}
        if version == 5:
            arguments = {"clean_start": clean, "properties": to_paho(PacketTypes.CONNECT, properties)}
        client.connect_async("127.0.0.1", port, keep_alive, **arguments)
        client.loop_start()
        code, session_present = await self._answers.get()
        if code != "Success":
            raise ConnectionRefusedError(str(code))
        return bool(session_present)

    def _answer(self, value: object) -> None:
        self._loop.call_soon_threadsafe(self._answers.put_nowait, value)

    def _message(self, _client: Any, _data: Any, message: Any) -> None:
        properties = from_paho(message.properties) if self._version == 5 else {}
        tell_message(message.topic, message.payload, message.qos, message.retain, properties)

    async def subscribe(self, filters: list[str], qos: int, identifier: int) -> list[int]:
        arguments = subscribe_arguments(self._version, qos, identifier)
        if self._version == 5:
            options = arguments.pop("options")
            self._client.subscribe([(topic_filter, options) for topic_filter in filters], **arguments)
        else:
            self._client.subscribe([(topic_filter, qos) for topic_filter in filters])
        codes: list[int] = await self._answers.get()
        return codes

    async def unsubscribe(self, filters: list[str]) -> None:
        self._client.unsubscribe(filters)
        await self._answers.get()

    async def publish(self, topic: str, payload: bytes, qos: int, retain: bool, properties: dict[str, Any]) -> None:
        """Returns when the message is acknowledged, with QoS 0 when it is written."""
        given = to_paho(PacketTypes.PUBLISH, properties)
        info = self._client.publish(topic, payload, qos, retain, given)
        await asyncio.to_thread(info.wait_for_publish, CALL_SECONDS)
        assert info.is_published()

    async def disconnect(self) -> None:
        self._client.disconnect()


async def main() -> None:
    await serve(PahoClient())


if __name__ == "__main__":
    asyncio.run(main())
