"""A durable client of paho-mqtt that connects again by itself, as users write it. A process with the packages of run/clients.

    paho_sessions.py '{"client_id": ..., "version": 4 | 5, "ports": [...], "levels": [1, 2], "rate": 10.0}'

Without levels it subscribes to t/#. It writes what happens as JSON lines on stdout:
    ["served", PORT, SESSION_PRESENT], ["subscribed"], ["sent", TOPIC], ["acknowledged" | "refused", TOPIC, NUMBER],
    ["came", TOPIC, NUMBER], ["done"]
and takes lines from stdin: `go PORT`, and `enough`: publish no more, and say `done` when all is acknowledged. Where its node
refuses it or does not answer, it goes to the next one.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import sys
import threading
import time
from typing import Any, Final

from paho.mqtt import client as mqtt
from paho.mqtt.packettypes import PacketTypes

from paho_properties import to_paho

WINDOW: Final = 20
KEEP_ALIVE: Final = 10
EXPIRY: Final = 7200
TICK_SECONDS: Final = 0.02
RELEASED: Final = (mqtt.mqtt_ms_wait_for_pubcomp, mqtt.mqtt_ms_resend_pubrel)


def tell(*event: object) -> None:
    line = json.dumps(event).encode() + b"\n"
    os.write(1, line)  # one write for each line, from both threads


def keep_released(client: Any) -> None:
    """paho-mqtt 2.2.0 sends a QoS 2 PUBLISH again whose PUBREL it has sent, where the connect fails that follows a lost
    connection (section 4.3.3: MUST NOT). The server has let its identifier go, so it is a message of its own there. With this
    it sends PUBREL."""
    reset = client._messages_reconnect_reset_out

    def reset_but_released() -> None:
        released = [message for message in client._out_messages.values() if message.state in RELEASED]
        reset()
        for message in released:
            message.state = mqtt.mqtt_ms_resend_pubrel

    client._messages_reconnect_reset_out = reset_but_released


class Session:
    def __init__(self, client_id: str, version: int, ports: list[int], levels: list[int], rate: float) -> None:
        self.ports = ports
        self.levels = levels
        self.rate = rate
        self.is_enough = False
        self.acknowledged: queue.Queue[tuple[int, int]] = queue.Queue()
        self.numbers: dict[int, tuple[str, int]] = {}
        self.sent = dict.fromkeys(levels, 0)
        self.topics = {qos: f"t/{client_id}/{qos}" for qos in levels}
        self.is_known = False
        self.is_v5 = version == 5
        self.client: Any = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if self.is_v5 else False,
            protocol=mqtt.MQTTProtocolVersion(version),
        )
        keep_released(self.client)
        self.client.reconnect_delay_set(1, 2)
        self.client.on_connect = self._connected
        self.client.on_connect_fail = lambda _client, _data: self._next_port()
        self.client.on_disconnect = self._disconnected
        self.client.on_message = lambda _client, _data, message: tell("came", message.topic, int(message.payload))
        self.client.on_subscribe = lambda _client, _data, _id, _codes, _properties: tell("subscribed")
        self.client.on_publish = lambda _client, _data, mid, code, _properties: self.acknowledged.put((mid, code.value))
        self._aim()

    def _aim(self) -> None:
        more: dict[str, Any] = {}
        if self.is_v5:
            more = {"clean_start": False, "properties": to_paho(PacketTypes.CONNECT, {"session_expiry": EXPIRY})}
        self.client.connect_async("127.0.0.1", self.ports[0], KEEP_ALIVE, **more)

    def _next_port(self) -> None:
        self.ports.append(self.ports.pop(0))
        self._aim()

    def _connected(self, _client: Any, _data: Any, flags: Any, code: Any, _properties: Any) -> None:
        if code.is_failure:
            self._next_port()
            return
        tell("served", self.ports[0], flags.session_present or not self.is_known)
        self.is_known = True
        if not self.levels and not flags.session_present:
            for message in self.client._in_messages.values():  # taken over with PUBREC, and forgotten with the session
                tell("came", message.topic, int(message.payload))
            self.client._in_messages.clear()
            self.client.subscribe("t/#", 2)

    def _disconnected(self, _client: Any, _data: Any, _flags: Any, code: Any, _properties: Any) -> None:
        if str(code) in ("Use another server", "Keep alive timeout"):
            self._next_port()

    def go(self, port: int) -> None:
        self.ports.remove(port)
        self.ports.insert(0, port)
        self._aim()
        connection = self.client.socket()
        if connection is not None:
            connection.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        self.client.loop_start()
        began_at = time.monotonic()
        while self.levels and not (self.is_enough and not self.numbers):
            time.sleep(TICK_SECONDS)
            while (
                not self.is_enough
                and len(self.numbers) < WINDOW
                and sum(self.sent.values()) < (time.monotonic() - began_at) * self.rate
            ):
                self._publish(self.levels[sum(self.sent.values()) % len(self.levels)])
            while not self.acknowledged.empty():
                mid, code = self.acknowledged.get()
                tell("acknowledged" if code < 0x80 else "refused", *self.numbers.pop(mid))
        tell("done")

    def _publish(self, qos: int) -> None:
        topic = self.topics[qos]
        tell("sent", topic)
        info = self.client.publish(topic, b"%d" % self.sent[qos], qos)
        self.numbers[info.mid] = (topic, self.sent[qos])
        self.sent[qos] += 1


def main() -> None:
    session = Session(**json.loads(sys.argv[1]))
    running = threading.Thread(target=session.run, daemon=True)
    running.start()
    for line in sys.stdin:
        if line.startswith("go "):
            session.go(int(line.removeprefix("go ")))
        else:
            session.is_enough = True


if __name__ == "__main__":
    main()
