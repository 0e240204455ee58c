"""The event log of a node that is a process: nothing acknowledged is lost by a kill, a stop is graceful, faults are named."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.codec.packets import MQTT_5, MQTT_311, PubAck, Publish
from broker.event_log.log import EventLog
from broker.event_log.recovery import Recovered
from broker.event_log.settings import EventLogSettings
from event_log_reader import Record, read_all
from mqtt_client import Clients, MqttClient
from node_process import Nodes

WINDOW = 50  # messages of a publisher that are not acknowledged


def with_log(folder: Path, **settings: Any) -> dict[str, Any]:
    return {
        "plugin_order": ["event_log"],
        "plugins": {"event_log": {"dir": str(folder), "node_name": "n1", **settings}},
    }


async def records_of(folder: Path, **settings: Any) -> tuple[Recovered, list[Record]]:
    """What a start finds in the folder of a node that does not run."""
    log = EventLog(EventLogSettings(dir=str(folder), **settings), "n1")
    found = await log.start()
    records = await read_all(log)
    await log.stop()
    return found, records


class Publisher:
    """Publishes QoS 1 without end, WINDOW at a time. `acknowledged` are the payloads with a PUBACK; `progress` is set when
    there are `wanted`."""

    def __init__(self, client: MqttClient, name: str, wanted: int) -> None:
        self.acknowledged: list[bytes] = []
        self.progress = asyncio.Event()
        self._client = client
        self._name = name
        self._wanted = wanted

    async def run(self) -> None:
        sent: dict[int, bytes] = {}
        number = 0
        while True:
            while len(sent) < WINDOW:
                packet_id = number % 1000 + 1
                sent[packet_id] = f"{self._name}/{number}".encode()
                self._client.send(Publish(b"t/%d" % (number % 3), sent[packet_id], 1, packet_id=packet_id))
                number += 1
            answer = await self._client.answer(PubAck)
            self.acknowledged.append(sent.pop(answer.packet_id))
            if len(self.acknowledged) == self._wanted:
                self.progress.set()


@pytest.mark.parametrize("wanted", [1, 300, 1234])
async def test_acknowledged_messages_are_in_the_log_after_a_kill(
    nodes: Nodes, clients: Clients, tmp_path: Path, wanted: int
) -> None:
    folder = tmp_path / "log"
    node = await nodes.start(with_log(folder, segment_bytes="64KiB"))
    publishers = [
        Publisher(await clients.connect(node.port, f"p{number}", version), f"p{number}", wanted)
        for number, version in enumerate((MQTT_5, MQTT_311, MQTT_5))
    ]
    tasks = [asyncio.create_task(publisher.run()) for publisher in publishers]
    await asyncio.gather(*(publisher.progress.wait() for publisher in publishers))
    await node.kill()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    found, records = await records_of(folder)
    assert (found.lost, found.damaged) == ("", [])
    logged = [record.payload for record in records]
    assert len(set(logged)) == len(logged)
    assert [record.offset for record in records] == list(range(len(records)))
    for publisher in publishers:
        assert set(publisher.acknowledged) <= set(logged)
