"""A node of several processes: it is one broker for its clients, and goes on when one of them dies or hangs."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING, Any, Final

import psutil
import pytest

from broker.codec import properties as props
from broker.codec.packets import ConnAck
from broker.codec.reason_codes import SESSION_TAKEN_OVER
from mqtt_client import opened, reached
from session_clients import SessionPublisher, SessionSubscriber
from waiting import eventually, stand_still

if TYPE_CHECKING:
    from pathlib import Path

    from mqtt_client import Clients, MqttClient
    from node_process import Node, Nodes

CONNECTIONS: Final = 1_000
EXPIRY: Final = {props.SESSION_EXPIRY_INTERVAL: 3600}
STARTED: Final = re.compile(r"supervisor: worker started worker=(\d+) process=(\d+)")
CONNECTED: Final = re.compile(r"client: connected client_id=(\S+) .* worker=(\d+)")


def is_present(client: MqttClient) -> bool:
    return isinstance(client.connack, ConnAck) and client.connack.session_present


async def start(nodes: Nodes, tmp_path: Path, workers: int = 2, **more: Any) -> Node:
    node = nodes.make({"workers": workers, "data_dir": str(tmp_path / "data"), **more})
    node.spawn()
    await serving(node)
    return node


async def serving(node: Node, times: int = 1) -> None:
    """Wait until all workers of the node have started, and have streams to each other."""
    await eventually(lambda: node.log().count("supervisor: serving") >= times, f"{node.name} serves")
    await eventually(lambda: node.log().count("event stream to a node") >= 2 * times, "workers know each other")


def processes(node: Node) -> dict[int, int]:
    """The newest process of each worker."""
    return {int(worker): int(process) for worker, process in STARTED.findall(node.log())}


def is_running(process: int) -> bool:
    """Whether the process has not ended; nobody may have waited for it yet."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def worker_of(node: Node, client_id: str) -> int:
    """The worker that the client has connected to last."""

    def found() -> list[str]:
        return [worker for name, worker in CONNECTED.findall(node.log()) if name == client_id]

    return int((await eventually(found, f"{client_id} in the log"))[-1])


async def one_at_each(node: Node, clients: Clients, prefix: str) -> dict[int, MqttClient]:
    """A client at each of two workers."""
    found: dict[int, MqttClient] = {}
    for number in range(200):
        name = f"{prefix}{number}"
        client = await clients.connect(node.port, name)
        worker = await worker_of(node, name)
        if worker in found:
            await client.close()
        else:
            found[worker] = client
        if len(found) == 2:
            return found
    raise AssertionError("the kernel gives all connections to one worker")


async def test_two_workers_are_one_broker(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    api, metrics = f"127.0.0.1:{nodes.free_port()}", f"127.0.0.1:{nodes.free_port()}"
    more: dict[str, Any] = {
        "api": {"http": [{"address": api}]},
        "plugin_order": ["admin", "prometheus"],
        "plugins": {"prometheus": {"listen_address": metrics}},
    }
    node = await start(nodes, tmp_path, **more)
    subscribers = await one_at_each(node, clients, "s")
    publishers = await one_at_each(node, clients, "p")
    for subscriber in subscribers.values():
        await subscriber.subscribe("t/#", qos=1)
        await subscriber.subscribe("$share/group/job", qos=1)
    for publisher in publishers.values():
        await reached(publisher, "t/x", *subscribers.values())
    # Each message once at each subscriber; one copy for a group.
    jobs = [("job", b"%d" % number, 1) for number in range(20)]
    for publisher in publishers.values():
        await publisher.publish_all(jobs)
        await publisher.publish_all([("t/end", b"", 1)])
    done: list[bytes] = []
    for subscriber in subscribers.values():
        ends = 0
        while ends < len(publishers):
            message = await subscriber.message()
            ends += message.topic == b"t/end"
            done += [message.payload] * (message.topic == b"job")
    assert sorted(done) == sorted(payload for _, payload, _ in jobs for _ in publishers)
    await publishers[1].publish("t/r", b"kept", 1, retain=True)
    late = await one_at_each(node, clients, "late")
    for client in late.values():
        await client.subscribe("t/r")
        assert (await client.message()).payload == b"kept"
    # One owner of a client id.
    old = await clients.connect(node.port, "twice", clean_start=False, properties=EXPIRY)
    for _ in range(6):
        new = await clients.connect(node.port, "twice", clean_start=False, properties=EXPIRY)
        assert is_present(new)
        await old.wait_closed()
        assert old.disconnect is not None
        assert old.disconnect.reason_code == SESSION_TAKEN_OVER
        old = new
    await the_api_speaks_for_both(node, subscribers)
    await node.stop()
    assert not [process for process in processes(node).values() if is_running(process)]


async def the_api_speaks_for_both(node: Node, connected: dict[int, MqttClient]) -> None:
    status, answer = await node.rest("GET", "/v1/clients?page_size=1000")
    assert status == 200
    names = [client["client_id"] for client in answer["clients"]]
    assert len(names) == len(set(names)) == answer["total_count"] >= 7
    pages = [(await node.rest("GET", f"/v1/clients?page_size=3&page={page}"))[1]["clients"] for page in range(1, 5)]
    assert [client["client_id"] for page in pages for client in page] == names[:12]
    status, about = await node.rest("GET", "/v1/node")
    assert about["clients_connected"] == len(names)
    status, text = await node.rest_text("GET", "/metrics")
    assert status == 200
    assert 'gmqtt_worker_restarts_total{worker="1"} 0.0' in text
    await eventually(lambda: _is_ready(node), "both are ready")
    for _ in connected:
        name = next(one for one in names if one.startswith("s"))
        names.remove(name)
        assert (await node.rest("GET", f"/v1/clients/{name}"))[0] == 200
        assert (await node.rest("DELETE", f"/v1/clients/{name}"))[0] == 200
    for client in connected.values():
        await client.wait_closed()


async def _is_ready(node: Node) -> bool:
    return (await node.rest_text("GET", "/readyz"))[0] == 200


async def test_a_worker_that_dies_comes_back_with_its_sessions(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    node = await start(nodes, tmp_path)
    durable = await clients.connect(node.port, "durable", clean_start=False, properties=EXPIRY)
    await durable.subscribe("d", qos=1)
    worker = await worker_of(node, "durable")
    await durable.close(goodbye=False)
    others = await one_at_each(node, clients, "p")
    await others[1 - worker].publish_all([("d", b"1", 1)])
    first = processes(node)
    os.kill(first[worker], signal.SIGKILL)
    await others[1 - worker].ping()  # the other one goes on
    await others[1 - worker].publish_all([("d", b"2", 1)])
    await eventually(lambda: processes(node)[worker] != first[worker], "the worker is started again")
    back = await clients.connect(node.port, "durable", clean_start=False, properties=EXPIRY)
    came = {(await back.message()).payload}
    while came != {b"1", b"2"}:
        came.add((await back.message()).payload)
    node.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    await eventually(lambda: node.log().count("configuration reloaded") >= 2, "both read the file again")
    await node.stop()


async def test_sessions_of_workers_that_are_no_more_go_to_the_others(
    nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    """Also when the start in which they do is cut off."""
    node = await start(nodes, tmp_path)
    names = [f"c{number}" for number in range(12)]
    publisher = await clients.connect(node.port, "p")
    for name in names:
        client = await clients.connect(node.port, name, clean_start=False, properties=EXPIRY)
        await client.subscribe(f"to/{name}", qos=1)
        await client.close(goodbye=False)
    homes = {name: await worker_of(node, name) for name in names}
    assert set(homes.values()) == {0, 1}
    await publisher.publish_all([(f"to/{name}", name.encode(), 1) for name in names])
    await node.stop()
    node.config["workers"] = 1
    node.spawn()
    await eventually(lambda: "workers of an earlier start" in node.log(), "the former worker is found")
    await eventually(lambda: 1 in processes(node) and "sessions go to the other workers" in node.log(), "it leaves")
    await node.kill()
    await eventually(lambda: not any(map(is_running, processes(node).values())), "its workers end with it")
    node.spawn()
    await eventually(lambda: "its folder is removed" in node.log(), "the other one has all sessions")
    assert not (tmp_path / "data" / "worker-1").exists()
    for name in names:
        client = await clients.connect(node.port, name, clean_start=False, properties=EXPIRY)
        assert is_present(client)
        assert (await client.message()).payload == name.encode()
    await node.stop()
    node.spawn()  # without a supervisor by now
    await eventually(lambda: node.log().rstrip().splitlines()[-1].count("serving process"), "the node serves")
    assert node.log().count("workers start") == 3


async def test_a_port_that_another_node_has_ends_the_start(nodes: Nodes, tmp_path: Path) -> None:
    """Also where that node has workers, which would let others share the port."""
    first = await start(nodes, tmp_path)
    second = nodes.make({"workers": 2, "listeners": [{"address": f"127.0.0.1:{first.port}"}]})
    second.spawn()
    assert await second.wait_ended() == 1
    assert "listeners[0].address" in second.log()
    assert str(first.port) in second.log()
    await first.stop()


@pytest.mark.slow
async def test_connections_are_spread_evenly(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """Within 10 % of each other at 1,000, and no more than the node may have."""
    metrics = f"127.0.0.1:{nodes.free_port()}"
    node = await start(
        nodes,
        tmp_path,
        mqtt={"max_connections": CONNECTIONS},
        api={"http": [{"address": metrics}]},
        plugin_order=["prometheus"],
        plugins={"prometheus": {"listen_address": f"127.0.0.1:{nodes.free_port()}"}},
    )
    for _ in range(CONNECTIONS):
        await clients.connect(node.port)

    async def counts() -> list[float]:
        text = (await node.rest_text("GET", "/metrics"))[1]
        found = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("gmqtt_clients_current{")]
        return found if sum(found) == CONNECTIONS else []

    found = [count for count in await eventually(counts, "all are counted") if count]
    assert len(found) == 2
    assert max(found) <= 1.1 * min(found)
    reader, writer = await opened(node.port)
    assert await reader.read() == b""
    writer.close()
    await node.stop()


@pytest.mark.slow  # 8 s of silence
async def test_a_worker_that_stands_still_is_ended_and_started_again(
    nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    node = await start(nodes, tmp_path)
    first = processes(node)
    there = await one_at_each(node, clients, "c")
    await stand_still(first[1])
    await there[0].ping()
    await eventually(lambda: processes(node)[1] != first[1], "it is started again")
    assert "a worker is killed" in node.log()
    await there[1].wait_closed()
    await node.logged(f"server: serving process={processes(node)[1]}")
    assert set(await one_at_each(node, clients, "d")) == {0, 1}
    await node.stop()


@pytest.mark.slow
async def test_killed_workers_lose_and_double_nothing(nodes: Nodes, tmp_path: Path) -> None:
    """QoS 1 and 2 of clients that keep their sessions, while single workers are killed by turns."""
    node = await start(nodes, tmp_path)
    subscribers = [SessionSubscriber(node.port, f"subscriber{number}") for number in range(3)]
    publishers = [SessionPublisher(node.port, f"publisher{number}", rate=100.0) for number in range(3)]
    for client in subscribers:
        client.start()
        await client.subscribed.wait()
    for publisher in publishers:
        publisher.start()
    for kill in range(4):
        worker = kill % 2
        before = [publisher.acknowledged for publisher in publishers]
        first = processes(node)[worker]
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: processes(node)[worker] != first, "it is started again")  # noqa: B023
        await node.logged(f"server: serving process={processes(node)[worker]}")

        def go_on(before: list[int] = before) -> bool:
            now = [publisher.acknowledged for publisher in publishers]
            return all(count > old + 20 for old, count in zip(before, now, strict=True))

        await eventually(go_on, "publishers go on")
    for publisher in publishers:
        publisher.enough()
        await publisher.done.wait()
    sent = {topic: count for publisher in publishers for topic, count in publisher.sent.items()}
    await eventually(lambda: all(client.has_all(sent) for client in subscribers), "all have come")
    for one in (*subscribers, *publishers):
        await one.stop()
    assert [fault for client in subscribers for fault in client.broken_promises(sent)] == []
    await node.stop()
