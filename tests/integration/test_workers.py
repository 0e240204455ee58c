"""A node of several processes: it is one broker for its clients, and goes on when one of them dies or hangs."""

from __future__ import annotations

import os
import re
import resource
import signal
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import psutil
import pytest

from broker.codec import properties as props
from broker.codec.packets import ConnAck, PubAck, Publish
from broker.codec.reason_codes import QUOTA_EXCEEDED, SESSION_TAKEN_OVER
from mqtt_client import opened, reached
from session_clients import SessionPublisher, SessionSubscriber
from waiting import eventually, stand_still

if TYPE_CHECKING:
    from pathlib import Path

    from mqtt_client import Clients, MqttClient
    from node_process import Node, Nodes

CONNECTIONS: Final = 1_000
EXPIRY: Final = {props.SESSION_EXPIRY_INTERVAL: 3600}
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
        "mqtt": {"sys_interval": "200ms"},
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
    for publisher in publishers.values():
        await publisher.subscribe("$SYS/broker/clients/connected")
        while int((await publisher.message()).payload) != 7:  # of both workers: those above
            pass
    await events_and_traces_are_those_of_both(node, subscribers)
    await the_api_speaks_for_both(node, subscribers)
    await node.stop()
    assert not [process for process in node.workers().values() if is_running(process)]


async def events_and_traces_are_those_of_both(node: Node, connected: dict[int, MqttClient]) -> None:
    names = {worker: f"s{worker}" for worker in connected}
    status, trace = await node.rest("POST", "/v1/traces", {"topic_filter": "traced"})
    assert status == 200
    async with aiohttp.ClientSession() as session:
        address = node.config["api"]["http"][0]["address"]
        async with session.get(f"http://{address}/v1/events") as answer:
            missing = {f"worker={worker}" for worker in names}
            while missing:  # a line of each worker; the other one is followed soon
                assert (await node.rest("PUT", "/v1/log_level", {"level": "info"}))[0] == 200
                line = ""
                while "level of the log" not in line:
                    line = (await answer.content.readline()).decode()
                missing -= {worker for worker in missing if worker in line}
    for client in connected.values():
        await client.publish("traced", b"", 1)

    async def traced() -> bool:
        lines = (await node.rest("GET", f"/v1/traces/{trace['id']}/lines"))[1]["lines"]
        return len({line["client_id"] for line in lines}) == len(connected)

    await eventually(traced, "packets of clients of both workers are in the trace")


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
    status, refusal = await node.rest("POST", "/v1/federation/leave", {})
    assert (status, refusal["code"]) == (400, 9)
    assert "drain" in refusal["message"]
    for _ in connected:
        name = next(one for one in names if one.startswith("s"))
        names.remove(name)
        assert (await node.rest("GET", f"/v1/clients/{name}"))[0] == 200
        assert (await node.rest("DELETE", f"/v1/clients/{name}"))[0] == 200
    for client in connected.values():
        await client.wait_closed()


async def _is_ready(node: Node) -> bool:
    return (await node.rest_text("GET", "/readyz"))[0] == 200


async def opened_total(node: Node, least: int) -> int:
    """Connections of MQTT until now, 0 while there are less."""
    try:
        text = (await node.rest_text("GET", "/metrics"))[1]
    except OSError:  # worker 0 is being started again
        return 0
    name = "gmqtt_connections_opened_total "
    (found,) = (int(float(line.removeprefix(name))) for line in text.splitlines() if line.startswith(name))
    return found if found >= least else 0


async def test_a_worker_that_dies_comes_back_with_its_sessions(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    api = {"http": [{"address": f"127.0.0.1:{nodes.free_port()}"}]}
    prometheus = {"prometheus": {"listen_address": f"127.0.0.1:{nodes.free_port()}"}}
    path = tmp_path / "mqtt"
    listeners = [{"address": f"127.0.0.1:{nodes.free_port()}"}, {"address": f"unix://{path}"}]
    node = await start(
        nodes, tmp_path, api=api, plugin_order=["admin", "prometheus"], plugins=prometheus, listeners=listeners
    )
    durable = await clients.connect(node.port, "durable", clean_start=False, properties=EXPIRY)
    await durable.subscribe("d", qos=1)
    worker = await worker_of(node, "durable")
    await durable.close(goodbye=False)
    others = await one_at_each(node, clients, "p")
    await others[1 - worker].publish_all([("d", b"1", 1)])
    first = node.workers()
    totals = await eventually(lambda: opened_total(node, 3), "all connections are counted")
    os.kill(first[worker], signal.SIGKILL)
    await others[1 - worker].ping()  # the other one goes on
    await others[1 - worker].publish_all([("d", b"2", 1)])
    await eventually(lambda: node.workers()[worker] != first[worker], "the worker is started again")
    back = await clients.connect(path, "durable", clean_start=False, properties=EXPIRY)
    came = {(await back.message()).payload}
    while came != {b"1", b"2"}:
        came.add((await back.message()).payload)
    await eventually(lambda: opened_total(node, totals + 1), "the counters go on from where they were")
    assert (await node.rest("GET", "/v1/node"))[1]["clients_connected"] == 2
    await node.reload()
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
    await eventually(lambda: 1 in node.workers() and "sessions go to the other workers" in node.log(), "it leaves")
    os.kill(node.pid, signal.SIGKILL)
    await node.wait_ended()
    await eventually(lambda: not any(map(is_running, node.workers().values())), "its workers end with it")
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
    first = node.workers()
    there = await one_at_each(node, clients, "c")
    await stand_still(first[1])
    await there[0].ping()
    await eventually(lambda: node.workers()[1] != first[1], "it is started again")
    assert "a worker is killed" in node.log()
    await there[1].wait_closed()
    await node.logged(f"server: serving process={node.workers()[1]}")
    assert set(await one_at_each(node, clients, "d")) == {0, 1}
    await node.stop()


@pytest.mark.slow
async def test_a_full_disk_of_one_worker_is_that_of_its_clients_only(
    nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    """RLIMIT_FSIZE stands for the end of the space. What is acknowledged comes when there is room again."""
    node = await start(nodes, tmp_path, mqtt={"max_queued_messages": 100_000})
    senders = await one_at_each(node, clients, "sender")
    name, away = "", senders[1]
    for number in range(100):
        name = f"away{number}"
        away = await clients.connect(node.port, name, clean_start=False, properties=EXPIRY)
        if await worker_of(node, name) == 1:
            break
        await away.close()
    await away.subscribe("a", qos=1)
    await reached(senders[0], "a", away)
    await away.close()
    process = node.workers()[1]
    resource.prlimit(process, resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    acknowledged: dict[int, list[bytes]] = {0: [], 1: []}
    refused = False
    for number in range(100):
        for worker, sender in senders.items():
            payload = b"%d %d " % (worker, number)
            sender.send(Publish(b"a", payload + bytes(50_000), 1, packet_id=1))
            answer = await sender.answer(PubAck)
            if answer.reason_code == 0:
                acknowledged[worker].append(payload)
            else:
                assert (worker, answer.reason_code) == (1, QUOTA_EXCEEDED)
                refused = True
        if refused and len(acknowledged[0]) > 30:
            break
    assert refused
    resource.prlimit(process, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await node.logged("the store takes changes again")
    back = await clients.connect(node.port, name, clean_start=False, properties=EXPIRY)
    assert is_present(back)
    missing = {payload for payloads in acknowledged.values() for payload in payloads}
    while missing:
        missing.discard((await back.message()).payload.rstrip(b"\0"))
    assert node.workers()[1] == process
    await node.stop()


@pytest.mark.slow
async def test_killed_workers_lose_and_double_nothing(nodes: Nodes, tmp_path: Path) -> None:
    """QoS 1 and 2 of clients that keep their sessions, while single workers are killed by turns."""
    node = await start(nodes, tmp_path)
    # No order: a publisher goes on at the other worker while the killed one has messages of it (docs/reliability.md).
    subscribers = [SessionSubscriber(node.port, f"subscriber{number}", is_ordered=False) for number in range(3)]
    publishers = [SessionPublisher(node.port, f"publisher{number}", rate=100.0) for number in range(3)]
    for client in subscribers:
        client.start()
        await client.subscribed.wait()
    for publisher in publishers:
        publisher.start()
    for kill in range(4):
        worker = kill % 2
        before = [publisher.acknowledged for publisher in publishers]
        first = node.workers()[worker]
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: node.workers()[worker] != first, "it is started again")  # noqa: B023
        await node.logged(f"server: serving process={node.workers()[worker]}")

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


@pytest.mark.slow
async def test_a_node_with_workers_is_drained_as_one(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """Also when a worker dies meanwhile: the next process of it goes on with the drain."""
    node = nodes.make_federated(overrides={"workers": 2, "data_dir": str(tmp_path / "data")})
    other = nodes.make_federated([node], {"data_dir": str(tmp_path / "other")})
    for one in (node, other):
        one.spawn()
        await eventually(one.serves, f"{one.name} serves clients")
    await nodes.all_alive([node, other], [node.name, f"{node.name}/1", other.name])
    names = [f"c{number}" for number in range(12)]
    publisher = await clients.connect(other.port, "p")
    for name in names:
        client = await clients.connect(node.port, name, clean_start=False, properties=EXPIRY)
        await client.subscribe(f"to/{name}", qos=1)
        await client.close()
    assert {await worker_of(node, name) for name in names} == {0, 1}
    await publisher.publish_all([(f"to/{name}", name.encode(), 1) for name in names])
    path = "/v1/federation/drain"

    async def begins() -> bool:
        return (await node.rest("POST", path, {"rate": 4}))[0] == 200

    await eventually(begins, "the drain begins")
    first = node.workers()[1]
    os.kill(first, signal.SIGKILL)

    async def is_drained() -> bool:
        status, found = await node.rest("GET", path)
        return status == 200 and found["state"] == "drained"

    await eventually(is_drained, "both workers are drained")
    assert node.workers()[1] != first
    for name in names:
        client = await clients.connect(other.port, name, clean_start=False, properties=EXPIRY)
        assert is_present(client)
        assert (await client.message()).payload == name.encode()
    status, found = await node.rest("POST", "/v1/federation/undrain", {})
    assert (status, found["state"]) == (200, "serving")
    await (await clients.connect(node.port, "again")).ping()
