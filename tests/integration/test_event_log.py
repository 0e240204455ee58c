"""The event log of a node that is a process: nothing acknowledged is lost by a kill, a stop is graceful, faults are named."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.codec.packets import MQTT_5, MQTT_311, PubAck, Publish, Will
from broker.codec.reason_codes import QUOTA_EXCEEDED
from broker.event_log.recovery import Recovered
from broker.event_log.settings import EventLogSettings
from event_log_reader import AppendingLog, Record, read_all
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
    log = AppendingLog(EventLogSettings(dir=str(folder), **settings), "n1")
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


@pytest.mark.one_process("reads one folder of the event log; each worker has one")
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


@pytest.mark.one_process("reads one folder of the event log; each worker has one")
async def test_a_stop_is_clean_while_clients_publish(nodes: Nodes, clients: Clients) -> None:
    """With a log in a `data_dir` that the start makes; both begin at the configuration file."""
    node = await nodes.start({**with_log(Path("state/log")), "data_dir": "state"})
    folder = node.config_path.parent / "state/log"
    publisher = Publisher(await clients.connect(node.port, "p"), "p", 500)
    task = asyncio.create_task(publisher.run())
    await publisher.progress.wait()
    await node.stop()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert json.loads((folder / "log.json").read_text())["clean"] is True
    found, records = await records_of(folder)
    assert (found.lost, found.torn_bytes, found.damaged) == ("", 0, [])
    assert set(publisher.acknowledged) <= {record.payload for record in records}


@pytest.mark.one_process("reads one folder of the event log; each worker has one")
async def test_records_of_every_kind_are_read_back_after_a_restart(
    nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    folder = tmp_path / "log"
    node = await nodes.start(with_log(folder, exclude=["secret/#"]))
    client = await clients.connect(node.port, "c", MQTT_311)
    await client.publish("a", b"0", 0)
    await client.publish("a", b"1", 1, retain=True)
    await client.publish("secret/a", b"-", 1)
    await client.publish("a", b"2", 2)
    await node.stop()
    await node.start()
    client = await clients.connect(node.port, "c5", will=Will(b"a", b"will", 1))
    await client.publish("a", b"3", 1)
    client.abort()
    watch = await clients.connect(node.port, "w")
    await watch.publish("a", b"4", 2)
    await node.stop()
    _, records = await records_of(folder)
    found = [(record.payload, record.flags, record.client_id) for record in records if record.payload != b"will"]
    assert found == [(b"0", 0, "c"), (b"1", 5, "c"), (b"2", 2, "c"), (b"3", 1, "c5"), (b"4", 2, "w")]
    assert [record.client_id for record in records if record.payload == b"will"] == ["c5"]


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        (lambda folder: None, "cannot be made; make the folder above it"),
        (lambda folder: folder.parent.write_bytes(b""), "Not a directory"),
    ],
)
async def test_a_folder_that_cannot_be_used_is_named(
    nodes: Nodes, tmp_path: Path, prepare: Callable[[Path], object], text: str
) -> None:
    folder = tmp_path / "missing" / "log"
    prepare(folder)
    node = nodes.make(with_log(folder))
    node.spawn()
    assert await node.wait_ended() == 1
    assert f"plugins.event_log.dir: {folder}" in node.log()
    assert text in node.log()


@pytest.mark.one_process("reads one folder of the event log; each worker has one")
async def test_a_full_disk_refuses_and_is_found_to_have_room_again(
    nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    """A limit of the size of files stands for the disk. The node's own output is below it."""
    folder = tmp_path / "log"
    node = await nodes.start(with_log(folder, on_full="refuse_publishes"))
    client = await clients.connect(node.port, "c")
    await client.publish("t", b"before", 1)
    limits = resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    accepted = bytes(100_000)  # before the fault is known
    client.send(Publish(b"t", accepted, 1, packet_id=100))
    await node.logged("the disk takes no records")
    other = await clients.connect(node.port, "other")
    other.send(Publish(b"t", b"refused", 1, packet_id=7))
    assert (await other.answer(PubAck)).reason_code == QUOTA_EXCEEDED
    old = await clients.connect(node.port, "old", MQTT_311)
    old.send(Publish(b"t", b"waits", 1, packet_id=8))
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, limits)
    assert (await client.answer(PubAck)).packet_id == 100
    assert (await old.answer(PubAck)).packet_id == 8
    await other.publish("t", b"after", 1)
    await node.stop()
    _, records = await records_of(folder)
    assert [record.payload for record in records] == [b"before", accepted, b"waits", b"after"]


@pytest.mark.one_process("reads one folder of the event log; each worker has one")
@pytest.mark.parametrize("on_full", ["refuse_publishes", "stop_logging"])
async def test_a_folder_that_is_deleted_under_a_running_node(
    nodes: Nodes, clients: Clients, tmp_path: Path, on_full: str
) -> None:
    """A publisher works all the time. Once the node says so, nothing is acknowledged as if it were in the log."""
    folder = tmp_path / "log"
    grpc, http = (f"tcp://127.0.0.1:{nodes.free_port()}" for _ in range(2))
    api = {"api": {"grpc": [{"address": grpc}], "http": [{"address": http}]}}
    node = await nodes.start({**with_log(folder, on_full=on_full), **api})
    client = await clients.connect(node.port, "c")
    publisher = Publisher(client, "p", 200)
    task = asyncio.create_task(publisher.run())
    await publisher.progress.wait()
    shutil.rmtree(folder)
    await node.logged("the disk takes no records")
    assert str(folder) in node.log()
    status, reasons = await node.rest_text("GET", "/readyz")
    assert status == 503
    assert "event log is not written" in reasons
    other = await clients.connect(node.port, "other")
    other.send(Publish(b"t", b"later", 1, packet_id=7))
    answer = await other.answer(PubAck)
    _, described = await node.rest("GET", "/v1/event_log")
    assert str(folder) in described["stopped"]
    assert (answer.reason_code == QUOTA_EXCEEDED) is (on_full == "refuse_publishes")
    assert (int(described.get("records_lost", 0)) > 0) is (on_full == "stop_logging")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await node.kill()
    assert not folder.exists()
    await node.start()
    await (await clients.connect(node.port, "again")).publish("t", b"anew", 1)
    assert (await node.rest_text("GET", "/readyz"))[0] == 200
