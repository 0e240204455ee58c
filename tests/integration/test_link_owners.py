"""Links of a cluster: one node runs a link, another takes it over, and each node tells the status of all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Final

import pytest

from link_cluster import all_run, cluster_config, links_of
from mqtt_client import Clients, MqttClient, reached
from node_process import FAILED_SECONDS, PATIENT, Nodes
from waiting import DEADLINE, eventually

PACE_SECONDS: Final = 0.02  # between two rounds of messages: the reader keeps up on a busy machine, too


async def write(writer: MqttClient, count: int) -> None:
    """Publish numbers; the upstream acknowledges each."""
    for number in range(count):
        await writer.publish("s0/n", f"{number}".encode(), qos=1)


async def one_of(reader: MqttClient) -> set[int]:
    """The number of the next message; none for a probe."""
    message = await reader.message(FAILED_SECONDS)
    return {int(message.payload)} if message.topic == b"s0/n" else set()


@pytest.mark.one_process("names the node that runs a link, and each worker may")
async def test_one_node_runs_a_link_and_another_takes_it_over_after_a_kill(nodes: Nodes, clients: Clients) -> None:
    upstream = await nodes.start({"mqtt": {"session_expiry": "1h", "max_queued_messages": 10_000}}, name="upstream")
    cluster = await nodes.federation(3, cluster_config(upstream.port) | PATIENT)
    names = [node.name for node in cluster]
    (row,) = (await all_run(cluster[0], 1, names)).values()
    (owner,) = [node for node in cluster if node.name == row["node"]]
    others = [node for node in cluster if node is not owner]
    reader = await clients.connect(others[0].port, "reader")
    await reader.subscribe("s0/#", qos=1)
    writer = await clients.connect(upstream.port, "writer")
    await reached(writer, "s0/probe", reader)
    count = 3_000
    writing = asyncio.create_task(write(writer, count))
    found: set[int] = set()
    while len(found) < count // 10:
        found |= await one_of(reader)
    await owner.kill()
    await writing
    while len(found) < count:
        found |= await one_of(reader)
    assert found == set(range(count))
    (after,) = (await all_run(others[0], 1, [node.name for node in others])).values()
    assert after["id"] == row["id"]
    assert int(after["epoch"]) > int(row["epoch"])
    assert after["sessions_lost"] == "0"
    assert "secret" not in json.dumps(after)


@pytest.mark.slow
async def test_a_node_that_takes_over_a_link_waits_for_the_address_that_has_its_session(
    nodes: Nodes, clients: Clients
) -> None:
    upstreams = [await nodes.start({"mqtt": {"session_expiry": "1h"}}, name=f"upstream{number}") for number in range(2)]
    by_uri = {f"mqtt://127.0.0.1:{upstream.port}": upstream for upstream in upstreams}
    config = cluster_config(0) | PATIENT
    keys = config["plugins"]["links"]["upstreams"]["up0"]
    keys["uri"] = [f"{uri}?connection_timeout=1000" for uri in by_uri]
    cluster = await nodes.federation(2, config)
    (row,) = (await all_run(cluster[0], 1, [node.name for node in cluster])).values()
    other, owner = sorted(cluster, key=lambda node: node.name == row["node"])
    upstream = by_uri[row["uri"].partition("?")[0]]
    reader = await clients.connect(other.port, "reader")
    await reader.subscribe("s0/#", qos=1)
    writer = await clients.connect(upstream.port, "writer")
    await reached(writer, "s0/probe", reader)
    await owner.kill()
    await write(writer, 10)
    os.kill(upstream.pid, signal.SIGSTOP)
    try:
        for status in ("starting", "error", "starting", "error"):

            async def has_status(status: str = status) -> bool:
                return [found["status"] for found in await links_of(other, "?here=true")] == [status]

            await eventually(has_status, f"the other node has the link in {status}", FAILED_SECONDS)
    finally:
        os.kill(upstream.pid, signal.SIGCONT)
    found: set[int] = set()
    while len(found) < 10:
        found |= await one_of(reader)
    (after,) = (await all_run(other, 1, [other.name])).values()
    assert (after["uri"], after["sessions_lost"]) == (row["uri"], "0")


@pytest.mark.slow
async def test_links_move_to_a_node_that_joins_and_from_one_that_leaves_without_loss(
    nodes: Nodes, clients: Clients
) -> None:
    upstream = await nodes.start({"mqtt": {"session_expiry": "1h", "max_queued_messages": 10_000}}, name="upstream")
    count = 12
    config = cluster_config(upstream.port, count) | PATIENT
    first, second = await nodes.federation(2, config)
    before = await all_run(first, count, [first.name, second.name])
    reader = await clients.connect(first.port, "reader")
    await reader.subscribe("+/n", "+/probe", qos=1)
    writer = await clients.connect(upstream.port, "writer")
    for number in range(count):
        await reached(writer, f"s{number}/probe", reader)
    third = nodes.make_federated([first], config)
    written = dict.fromkeys(range(count), 0)
    is_over = asyncio.Event()

    async def write_all() -> None:
        while not is_over.is_set():
            for number in written:
                await writer.publish(f"s{number}/n", b"%d" % written[number], qos=1)
                written[number] += 1
            await asyncio.sleep(PACE_SECONDS)

    found: dict[int, dict[int, int]] = {number: {} for number in range(count)}

    async def read_all() -> None:
        while True:
            message = await reader.message(FAILED_SECONDS)
            numbers = found[int(message.topic.decode().split("/")[0][1:])]
            numbers[int(message.payload)] = numbers.get(int(message.payload), 0) + 1

    writing = asyncio.create_task(write_all())
    reading = asyncio.create_task(read_all())
    await third.start()
    await nodes.all_alive([first, second, third])

    async def third_has_links() -> bool:
        return any(row["node"] == third.name for row in (await links_of(first)))

    await eventually(third_has_links, "the third node owns links")
    joined = await all_run(third, count, [first.name, second.name, third.name])
    await second.stop()
    after = await all_run(first, count, [first.name, third.name])
    is_over.set()
    await writing
    await eventually(
        lambda: reading.done() or all(len(found[number]) == written[number] for number in found),
        "all messages have come",
        FAILED_SECONDS,
    )
    assert not reading.done()
    reading.cancel()
    for number, counts in found.items():
        assert sorted(counts) == list(range(written[number]))
    for old, new in ((before, joined), (joined, after)):
        for link_id, row in new.items():
            has_moved = row["node"] != old[link_id]["node"]
            assert (int(row["epoch"]) > int(old[link_id]["epoch"])) is has_moved
            if has_moved:
                assert third.name == row["node"] or old[link_id]["node"] == second.name
    assert [row for row in after.values() if row["sessions_lost"] != "0"] == []
    # Each link was drained before the next node has connected: its session had nothing to send again.
    assert [count for counts in found.values() for count in counts.values() if count != 1] == []


@pytest.mark.one_process("names the node that runs a link, and each worker may")
async def test_each_node_tells_the_links_of_all_and_restarts_them(nodes: Nodes, clients: Clients) -> None:
    upstream = await nodes.start({"mqtt": {"session_expiry": "1h"}}, name="upstream")
    cluster = await nodes.federation(2, cluster_config(upstream.port, 4))
    names = [node.name for node in cluster]
    rows = await all_run(cluster[0], 4, names)
    by_node = {node.name: node for node in cluster}
    for node in cluster:
        assert [row["id"] for row in await links_of(node)] == [row["id"] for row in await links_of(cluster[0])]
        assert {row["node"] for row in await links_of(node, "?here=true")} == {node.name}
        assert await links_of(node, "?state=down") == []
    for link_id, row in rows.items():
        owner = by_node[row["node"]]
        (other,) = [node for node in cluster if node is not owner]
        watcher = await clients.connect(owner.port)
        await watcher.subscribe(f"$SYS/broker/federation-links/{link_id}")
        assert await other.rest("POST", f"/v1/federation-links/{link_id}/restart", {}) == (200, {"nodes": [owner.name]})
        told = [json.loads((await watcher.message()).payload) for _ in range(2)]
        assert [(event["before"], event["status"]) for event in told] == [
            ("running", "starting"),
            ("starting", "running"),
        ]
        assert told[0]["event"] == "federation_link_status"
        assert "secret" not in json.dumps(told)
    again = await all_run(cluster[1], 4, names)
    assert {link_id: row["reconnects"] for link_id, row in again.items()} == dict.fromkeys(rows, "1")
    assert {link_id: row["epoch"] for link_id, row in again.items()} == {
        link_id: row["epoch"] for link_id, row in rows.items()
    }
    await upstream.stop()

    async def all_down() -> bool:
        return len(await links_of(cluster[0], "?state=down")) == 4

    await eventually(all_down, "all links are down")
    assert {row["status"] for row in await links_of(cluster[1], "?state=down")} == {"error"}


@pytest.mark.slow
async def test_the_status_of_links_is_watched_until_the_program_is_interrupted(nodes: Nodes) -> None:
    upstream = await nodes.start(name="upstream")
    grpc = f"127.0.0.1:{nodes.free_port()}"
    config = {
        **cluster_config(upstream.port),
        "plugin_order": ["links"],
        "api": {"grpc": [{"address": f"tcp://{grpc}"}]},
    }
    await nodes.start(config)
    watching = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gmqttctl.cli", "links", "list", "--watch", "-o", "json", "--servers", grpc),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert watching.stdout is not None
    assert watching.stderr is not None
    statuses: set[str] = set()
    while "error" not in statuses:
        line = await asyncio.wait_for(watching.stdout.readline(), DEADLINE)
        (row,) = json.loads(line)["links"]
        assert (row["upstream"], row["node"]) == ("up0", "")
        statuses.add(row["status"])
        if row["status"] == "running" and upstream.process is not None:
            await upstream.stop()
    assert statuses >= {"running", "error"}
    watching.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(watching.wait(), DEADLINE) == 0
    assert await watching.stderr.read() == b""
