"""Kafka clients of other people against nodes that are processes: kafka-python, confluent-kafka (librdkafka), kcat.

These are long tests: each library waits for its own timeouts when a node is killed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from auth_plugin import passwd
from broker.event_log.plugin import EventLogPlugin
from broker.message import Message
from broker.server.lifecycle import Server
from client_library import PYTHON, SUPPORT, driver_environment, missing_library
from kafka_client import KafkaClient
from kafka_server import publish as publish_here
from kafka_server import with_kafka
from mqtt_client import Clients
from node_process import Node, Nodes, free_port
from waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LIBRARIES = ["kafka", "confluent_kafka", "kcat"]
EMPTY_ANSWERS = 14
"""librdkafka doubles what it fetches from 1 MiB to 1 GiB, and reports an error at the next one."""
Found = tuple[int, int, str, str]  # partition, offset, key, value


def check_library(library: str) -> None:
    if library == "kcat":
        missing = "" if shutil.which("kcat") else "kcat (Debian package) is missing"
    else:
        missing = missing_library(library)
    if missing:
        pytest.skip(missing)


async def consume(library: str, ports: list[int], group: str, topic: str, count: int, *sasl: str) -> str:
    """What a new member of the group prints."""
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    if library == "kcat":
        shape = '[%p, %o, "%k", "%s"]\n'
        options = (
            "-X",
            "auto.offset.reset=earliest",
            "-X",
            "session.timeout.ms=6000",
            "-c",
            str(count),
            "-q",
            "-f",
            shape,
        )
        command = ["kcat", "-b", servers, "-G", group, *options, topic]
    else:
        driver = str(SUPPORT / "kafka_consumer_driver.py")
        command = [str(PYTHON), driver, library, servers, group, topic, str(count), *sasl]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=driver_environment()
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 150.0)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode()


def rows_of(output: str) -> list[Found]:
    return [tuple(json.loads(line)) for line in output.splitlines() if line.startswith("[")]


def kafka_settings(folder: Path, name: str, port: int, plugins: list[str]) -> dict[str, Any]:
    return {
        "data_dir": str(folder / f"data-{name}"),
        "persistence": {"type": "sqlite"},
        "plugin_order": [*plugins, "event_log", "kafka"],
        "plugins": {
            "event_log": {"dir": str(folder / f"log-{name}")},
            "kafka": {"listeners": [f"127.0.0.1:{port}"], "topics": {"all": "#", "sensors": "sensors/#"}},
        },
    }


async def publish(clients: Clients, node: Node, count: int, first: int) -> set[tuple[str, str]]:
    """Every second message is one of the topic `sensors`; those are returned."""
    client = await clients.connect(node.port, f"{node.name}-{first}")
    wanted = set()
    for number in range(first, first + count):
        topic = f"{'sensors' if number % 2 else 'other'}/{node.name}"
        await client.publish(topic, b"%s-%d" % (node.name.encode(), number), 1)
        if number % 2:
            wanted.add((topic, f"{node.name}-{number}"))
    return wanted


async def three_nodes(nodes: Nodes, folder: Path) -> tuple[list[Node], list[int]]:
    ports = [free_port() for _ in range(3)]
    made: list[Node] = []
    for number, port in enumerate(ports, 1):
        settings = kafka_settings(folder, f"n{number}", port, ["admin", "federation"])
        made.append(nodes.make_federated(made[:1], settings))
    for node in made:
        await node.start()
    await nodes.all_alive(made)

    async def same_partitions() -> bool:
        found = []
        for port in ports:
            async with KafkaClient(f"127.0.0.1:{port}") as client:
                metadata = await client.metadata("sensors")
            leaders = [each["leader_id"] for each in metadata["topics"][0]["partitions"]]
            found.append((leaders, [(each["node_id"], each["port"]) for each in metadata["brokers"]]))
        return found[0] == found[1] == found[2] and found[0][0] == [0, 1, 2]

    await eventually(same_partitions, "all nodes tell the same three partitions")
    return made, ports


@pytest.mark.parametrize("library", LIBRARIES)
async def test_each_record_once_over_kills_of_nodes(
    nodes: Nodes, clients: Clients, tmp_path: Path, library: str
) -> None:
    """A member reads a part and commits; a node is killed, one after the other, and starts again; the next member reads on."""
    check_library(library)
    made, ports = await three_nodes(nodes, tmp_path)
    wanted: set[tuple[str, str]] = set()
    found: list[Found] = []
    for turn, victim in enumerate(made):
        for node in made:
            wanted |= await publish(clients, node, 40, 40 * turn)
        found += rows_of(await consume(library, ports, "g", "sensors", 40))
        await victim.kill()
        await victim.start()
        await nodes.all_alive(made)
    found += rows_of(await consume(library, ports, "g", "sensors", len(wanted) - len(found)))
    assert len({row[:2] for row in found}) == len(found) == len(wanted)
    assert {row[2:] for row in found} == wanted


@pytest.mark.parametrize("library", LIBRARIES)
async def test_answers_without_records_are_no_errors(
    start_server: Callable[[dict[str, Any]], Awaitable[Server]], tmp_path: Path, library: str
) -> None:
    """A consumer of a topic of which little comes: most answers say only how far the log is."""
    check_library(library)
    port = free_port()
    server = await start_server(kafka_settings(tmp_path, "n1", port, []))

    def fetches() -> float:
        metric = next(each for each in server.metrics() if each.name == "gmqtt_kafka_requests_total")
        return dict(metric.samples).get(("Fetch",), 0.0)

    def publish_one(topic: bytes) -> None:
        server.broker.publish(Message(topic, b"x", 1, False), server.now())
        server.flush_soon()

    publish_one(b"sensors/1")
    reading = asyncio.create_task(consume(library, [port], "g", "sensors", 2))
    for _ in range(EMPTY_ANSWERS):
        before = fetches()
        publish_one(b"other")
        await eventually(lambda before=before: reading.done() or fetches() > before, "the next Fetch")
    publish_one(b"sensors/2")
    output = await reading
    assert [row[2] for row in rows_of(output)] == ["sensors/1", "sensors/2"], output
    assert all(line.startswith("[") for line in output.splitlines()), output


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_reader_that_the_retention_has_passed(
    start_server: Callable[[dict[str, Any]], Awaitable[Server]], tmp_path: Path, library: str
) -> None:
    """What the group has not read is gone: OFFSET_OUT_OF_RANGE, and the member begins where its reset says, at the first record
    that is left."""
    check_library(library)
    port = free_port()
    server = await start_server(with_kafka(tmp_path, port, segment_bytes="64KiB", retention={"bytes": "128KiB"}))
    log = next(each for each in server.plugins if isinstance(each, EventLogPlugin)).log
    assert log is not None
    records = [("sensors/1", b"%04d" % number * 2_500) for number in range(40)]
    await publish_here(server, *records[:5])
    first = rows_of(await consume(library, [port], "g", "sensors", 5))
    for record in records[5:]:
        await publish_here(server, record)
    log._retain()
    assert log.first_offset > 5
    left = rows_of(await consume(library, [port], "g", "sensors", 40 - log.first_offset))
    assert [row[1] for row in (*first, *left)] == [*range(5), *range(log.first_offset, 40)]
    assert [row[3].encode() for row in left] == [payload for _, payload in records[log.first_offset :]]


@pytest.mark.parametrize("library", ["kafka", "confluent_kafka"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_logins(nodes: Nodes, clients: Clients, tmp_path: Path, library: str, mechanism: str) -> None:
    check_library(library)
    accounts, rules, port = tmp_path / "accounts", tmp_path / "rules", free_port()
    assert passwd("-c", "-b", "--scram", str(accounts), "reader", "secret").returncode == 0
    rules.write_text("topic write #\nuser reader\ntopic read sensors/#\n")
    settings = kafka_settings(tmp_path, "n1", port, ["auth"])
    auth = {"password_file": str(accounts), "scram": True, "acl_file": str(rules)}
    settings["plugins"]["auth"] = auth | {"allow_anonymous": True}
    node = await nodes.start(settings)
    wanted = await publish(clients, node, 20, 0)
    output = await consume(library, [port], "g", "all", len(wanted), mechanism, "reader", "secret")
    assert {row[2:] for row in rows_of(output)} == wanted
    refused = await consume(library, [port], "h", "all", 1, mechanism, "reader", "wrong")
    assert rows_of(refused) == []
    assert "rror" in refused  # kafka-python 3.0 names a bootstrap that failed, librdkafka the login
    await node.logged("kafka_logins_refused")
