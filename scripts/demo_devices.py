"""Simulated devices of a factory: a few hundred MQTT clients with payloads of several kinds, and a few that subscribe.

  demo_devices.py --to 127.0.0.1:1883 --to 127.0.0.1:1884 --to 127.0.0.1:1885

Prints a line when all are connected, and runs until SIGTERM. After SIGUSR1 one thermometer, `SILENT_DEVICE`, publishes
nothing any more; it stays connected.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from broker.codec.packets import MQTT_5, PUBACK, ConnAck, Connect, Publish, SubAck, Subscribe, SubscribeFilter
from broker.codec.properties import encode_publish_properties
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_ack, encode_packet, encode_publish

SILENT_DEVICE: Final = "thermometer-007"
SAMPLES: Final = 64
KEEP_ALIVE: Final = 0
# Client id of a subscriber, the index of its node, its filter. Which node sends how much to which is what `matrix` shows.
SUBSCRIBERS: Final = (
    ("dashboard-halls", 1, "plant/+/thermometer/#"),
    ("dashboard-energy", 0, "plant/grid/#"),
    ("maintenance", 2, "plant/machines/+/vibration"),
    ("historian", 2, "plant/#"),
    ("door-panel", 0, "plant/doors/+"),
)


@dataclass(frozen=True)
class Device:
    """node      index of the address to which the device connects
    seconds   between two messages
    payload   made from seconds since the start, and randomness
    """

    client_id: str
    node: int
    topic: str
    seconds: float
    qos: int
    retain: bool
    content_type: str
    payload: Callable[[float, Random], bytes]


def climate(now: float, random: Random) -> bytes:
    temperature = 21.0 + 2.0 * math.sin(now / 20.0) + random.gauss(0.0, 0.3)
    reading = {"temperature": round(temperature, 2), "humidity": random.randint(35, 55), "battery": 97}
    return json.dumps(reading).encode()


def power(now: float, random: Random) -> bytes:
    return b"%.1f" % (400.0 + 80.0 * math.sin(now / 15.0) + random.gauss(0.0, 10.0))


def vibration(now: float, random: Random) -> bytes:
    return struct.pack(f"<{SAMPLES}h", *(int(random.gauss(0.0, 800.0)) for _ in range(SAMPLES)))


def door(now: float, random: Random) -> bytes:
    return random.choice((b"open", b"closed"))


def make_devices(count: int) -> list[Device]:
    """Half of them thermometers in three halls, a quarter meters, a fifth machines, the rest doors."""
    devices: list[Device] = []
    for number in range(count // 2):
        hall = number % 3
        name = f"thermometer-{number:03d}"
        topic = f"plant/hall{hall + 1}/thermometer/{number:03d}"
        devices.append(Device(name, hall, topic, 2.0, 1, False, "application/json", climate))
    for number in range(count // 4):
        name = f"meter-{number:03d}"
        devices.append(Device(name, 2, f"plant/grid/meter/{number:03d}", 1.0, 0, False, "text/plain", power))
    for number in range(count // 5):
        name = f"machine-{number:03d}"
        topic = f"plant/machines/{number:03d}/vibration"
        devices.append(Device(name, 1, topic, 1.0, 0, False, "application/octet-stream", vibration))
    devices += [
        Device(f"door-{number:02d}", 0, f"plant/doors/{number:02d}", 5.0, 1, True, "text/plain", door)
        for number in range(count - len(devices))
    ]
    return devices


class Client:
    """One connection. It acknowledges what it gets and ignores the rest."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self._packets = PacketReader(MQTT_5)
        self._packet_id = 0

    async def connect(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        self._writer.write(encode_packet(Connect(self.client_id, MQTT_5, True, KEEP_ALIVE), MQTT_5))
        await self._first(ConnAck)

    async def subscribe(self, topic_filter: str) -> None:
        self._writer.write(encode_packet(Subscribe(1, [SubscribeFilter(topic_filter.encode(), 1)]), MQTT_5))
        await self._first(SubAck)

    async def _first(self, kind: type[ConnAck] | type[SubAck]) -> None:
        while not (packets := self._packets.receive_data(await self._some())):
            pass
        if not isinstance(packets[0], kind):
            raise ConnectionError(f"{self.client_id}: {packets[0]!r} instead of {kind.__name__}")

    async def _some(self) -> bytes:
        data = await self._reader.read(65536)
        if not data:
            raise ConnectionError(f"{self.client_id}: the node closed the connection")
        return data

    async def read(self) -> None:
        while True:
            for packet in self._packets.receive_data(await self._some()):
                if isinstance(packet, Publish) and packet.qos == 1:
                    self._writer.write(encode_ack(PUBACK, packet.packet_id, 0, MQTT_5))

    def publish(self, device: Device, payload: bytes) -> None:
        packet_id = 0
        if device.qos:
            self._packet_id = packet_id = self._packet_id % 65535 + 1
        properties = encode_publish_properties(content_type=device.content_type)
        data = encode_publish(
            MQTT_5, device.topic.encode(), payload, device.qos, device.retain, False, packet_id, properties
        )
        self._writer.write(data)


async def run_device(
    device: Device, address: str, connected: asyncio.Semaphore, silence: asyncio.Event, random: Random
) -> None:
    client = Client(device.client_id)
    await client.connect(address)
    connected.release()
    began_at = time.monotonic()
    async with asyncio.TaskGroup() as group:
        group.create_task(client.read())
        await asyncio.sleep(random.uniform(0.0, device.seconds))
        while not (silence.is_set() and device.client_id == SILENT_DEVICE):
            client.publish(device, device.payload(time.monotonic() - began_at, random))
            await asyncio.sleep(device.seconds * random.uniform(0.9, 1.1))


async def run_subscriber(client_id: str, address: str, topic_filter: str, connected: asyncio.Semaphore) -> None:
    client = Client(client_id)
    await client.connect(address)
    await client.subscribe(topic_filter)
    connected.release()
    await client.read()


async def run(addresses: list[str], count: int, seed: int) -> None:
    stopping, silence = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.add_signal_handler(signal.SIGUSR1, silence.set)
    connected = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(run_subscriber(client_id, addresses[node % len(addresses)], topic_filter, connected))
            for client_id, node, topic_filter in SUBSCRIBERS
        ]
        for number, device in enumerate(make_devices(count)):
            address = addresses[device.node % len(addresses)]
            random = Random(seed * 1000 + number)
            tasks.append(group.create_task(run_device(device, address, connected, silence, random)))
        for _ in tasks:
            await connected.acquire()
        print(f"{count} devices and {len(SUBSCRIBERS)} subscribers are connected", flush=True)
        await stopping.wait()
        for task in tasks:
            task.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", action="append", required=True, metavar="HOST:PORT", help="MQTT address of a node")
    parser.add_argument("--devices", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    asyncio.run(run(arguments.to, arguments.devices, arguments.seed))


if __name__ == "__main__":
    main()
