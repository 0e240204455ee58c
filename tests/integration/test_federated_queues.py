"""Federated queues over three domains with real processes: consumers come and go, every job is done once, and nearly all of
them where they were published while a consumer was free there."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import pytest

from broker.codec.packets import PubAck
from broker.codec.properties import RECEIVE_MAXIMUM
from broker.workers.shares import PORT_STEP
from mqtt_client import Clients, MqttClient
from node_process import LANE_WORKERS, Node, Nodes, free_port
from waiting import eventually

GROUP: Final = "$share/workers/jobs/#"
NAMES: Final = ("east", "north", "west")
JOBS: Final = 300  # of each domain
AT_HOME_MIN: Final = 0.95


def domain_config(name: str, ports: dict[str, int], upstreams: list[str], folder: Path | None) -> dict[str, Any]:
    grpc, http = free_port(), free_port()
    return {
        "api": {
            "grpc": [{"address": f"tcp://127.0.0.1:{grpc}"}],
            "http": [{"address": f"tcp://127.0.0.1:{http}", "map": f"tcp://127.0.0.1:{grpc}"}],
        },
        "plugin_order": ["admin", "links"],
        "data_dir": "" if folder is None else str(folder / f"data-{name}"),
        "plugins": {
            "links": {
                "domain": name,
                "upstreams": {
                    f"{other}{worker or ''}": {
                        "uri": f"mqtt://127.0.0.1:{ports[other] + worker * PORT_STEP}",
                        "reconnect-delay": 0.2,
                    }
                    for other in upstreams
                    for worker in range(LANE_WORKERS)
                },
            }
        },
    }


async def started(nodes: Nodes, edges: list[tuple[str, str]], folder: Path | None = None) -> dict[str, Node]:
    """A node for each domain, linked by (downstream, upstream). The policies are written by the API. `folder`: of stores."""
    names = sorted({name for edge in edges for name in edge})
    made = {name: nodes.make(name=name) for name in names}
    ports = {name: free_port() for name in names}  # each worker has one of its own
    for name, node in made.items():
        node.config["listeners"].append({"address": f"127.0.0.1:{ports[name]}", "each_worker": True})
        upstreams = [upstream for downstream, upstream in edges if downstream == name]
        node.config.update(domain_config(name, ports, upstreams, folder))
        node.spawn()
    for name, node in made.items():
        await eventually(node.serves, f"{node.name} serves clients")
        has_upstreams = any(downstream == name for downstream, _ in edges)
        definition = {"federation-upstream-set": "all"} if has_upstreams else {"max-length": 1_000}
        body = {"pattern": GROUP, "apply-to": "queues", "definition": definition}
        status, answer = await node.rest("PUT", "/v1/policies/jobs", body)
        assert status == 200, answer
    return made


async def link_states(node: Node) -> list[str]:
    status, answer = await node.rest("GET", "/v1/federation-links")
    assert status == 200, answer
    return [link["status"] for link in answer["links"] if link["type"] == "queues"]


async def are_up(made: dict[str, Node]) -> bool:
    states = [state for node in made.values() for state in await link_states(node)]
    return all(state in ("running", "paused") for state in states)


async def queue(node: Node) -> dict[str, Any]:
    status, answer = await node.rest("GET", "/v1/group-queues")
    assert status == 200, answer
    (found,) = answer["queues"]
    return dict(found)


class Worker:
    """One job at a time, each with a time of its own. It leaves only without a job."""

    def __init__(self, place: str, client: MqttClient, done: list[tuple[bytes, str]], rng: random.Random) -> None:
        self.place = place
        self.is_busy = False
        self.client = client
        self._done = done
        self._rng = rng
        self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while True:
            job = await self.client.messages.get()
            self.is_busy = True
            await asyncio.sleep(self._rng.uniform(0.001, 0.02))  # the work
            self._done.append((job.payload, self.place))
            self.client.send(PubAck(job.packet_id))
            self.is_busy = False

    async def leave(self) -> None:
        """Take no more jobs, finish the one that came, and disconnect."""
        await self.client.unsubscribe(GROUP)
        await eventually(lambda: not self.is_busy and self.client.messages.empty(), "the last job is done")
        self._task.cancel()
        await self.client.close()


class Workers:
    def __init__(self, made: dict[str, Node], clients: Clients, rng: random.Random) -> None:
        self.done: list[tuple[bytes, str]] = []
        self.working: list[Worker] = []
        self._made = made
        self._clients = clients
        self._rng = rng

    async def come(self, place: str, count: int = 1) -> None:
        for _ in range(count):
            client = await self._clients.connect(self._made[place].port, properties={RECEIVE_MAXIMUM: 1})
            client.acknowledges = False
            await client.subscribe(GROUP, qos=1)
            self.working.append(Worker(place, client, self.done, self._rng))

    async def leave(self, worker: Worker) -> None:
        self.working.remove(worker)
        await worker.leave()

    async def are_free(self, place: str, published: int) -> bool:
        """Whether there are consumers in the place. Returns when no job is left of those that were published, and their node
        has the acknowledgements."""
        await eventually(lambda: len(self.done) >= published, "every job is done")
        here = [worker for worker in self.working if worker.place == place]
        for worker in here:
            await worker.client.ping()
        return bool(here)

    def counts(self) -> Counter[bytes]:
        return Counter(payload for payload, _ in self.done)


async def has_messages(node: Node, count: str) -> bool:
    return bool((await queue(node))["messages"] == count)


async def test_jobs_outlive_both_ends(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """Each end is killed once, with jobs that wait there and jobs on their way."""
    made = await started(nodes, [("east", "west")], tmp_path)
    await eventually(lambda: are_up(made), "the link runs")
    writer = await clients.connect(made["west"].port)
    for number in range(100):
        await writer.publish("jobs/a", b"%d" % number, qos=1)
    holder = await clients.connect(made["east"].port, "holder", properties={RECEIVE_MAXIMUM: 10})
    holder.acknowledges = False
    await holder.subscribe(GROUP, qos=1)
    await holder.take(10)
    for node in made.values():
        await node.kill()
        await node.start()
    await eventually(lambda: are_up(made), "the link runs again")
    workers = Workers(made, clients, random.Random(4))
    await workers.come("east", 3)
    await eventually(lambda: len(workers.counts()) == 100, "every job is done, also those that a consumer held")


@pytest.mark.slow
async def test_every_node_of_a_cluster_consumes_for_its_own_consumers(nodes: Nodes, clients: Clients) -> None:
    """A cluster of two nodes has the upstream; jobs that wait on one of its nodes move to the other one, too."""
    gossip = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    west = nodes.make(name="west")
    west.config.update(domain_config("west", {}, [], None))
    pair = [nodes.make(name=f"east{number}") for number in range(2)]
    for number, node in enumerate(pair):
        node.config.update(domain_config("east", {"west": west.port}, ["west"], None))
        node.config["plugin_order"].append("federation")
        node.config["plugins"]["federation"] = {
            "node_name": node.name,
            "fed_addr": f"127.0.0.1:{free_port()}",
            "gossip_addr": gossip[number],
            "retry_join": [gossip[1 - number]],
        }
    for node in (west, *pair):
        definition = {} if node is west else {"federation-upstream-set": "all"}
        node.config["plugins"]["links"]["policies"] = {"jobs": {"pattern": GROUP, "definition": definition}}
        await node.start()
    made = {node.name: node for node in (west, *pair)}
    await eventually(lambda: has_consumers(west, "2"), "both nodes consume")
    workers = Workers(made, clients, random.Random(5))
    for number, node in enumerate(pair):
        writer = await clients.connect(west.port)
        await workers.come(node.name)
        await writer.publish("jobs/a", b"%d" % number, qos=1)
        await eventually(lambda expected=number + 1: len(workers.done) == expected, "the job is done")
        await workers.leave(workers.working[0])
    assert workers.done == [(b"0", "east0"), (b"1", "east1")]
    writer = await clients.connect(pair[0].port)
    await writer.publish("jobs/a", b"here", qos=1)
    await eventually(lambda: has_messages(pair[0], "1"), "the job waits where it was published")
    await workers.come("east1")
    await eventually(lambda: (b"here", "east1") in workers.done, "it moves to the node with a consumer")
    links = (await pair[0].rest("GET", "/v1/federation-links"))[1]["links"]
    (link_id,) = {link["id"] for link in links if link["upstream"] == "west"}
    answer = await pair[0].rest("POST", f"/v1/federation-links/{link_id}/restart", {})
    assert answer == (200, {"nodes": ["east0", "east1"]})
    await workers.leave(workers.working[0])
    holder = await clients.connect(pair[0].port, properties={RECEIVE_MAXIMUM: 1})
    holder.acknowledges = False
    await holder.subscribe(GROUP, qos=1)
    for number in range(5):
        await writer.publish("jobs/a", b"beside %d" % number, qos=1)
    await holder.take(1)
    await eventually(lambda: has_messages(pair[0], "4"), "jobs wait behind the one that is held")
    await workers.come("east1")
    await eventually(lambda: len(workers.done) == 7, "they move to the other node, whose consumer is free")
    assert workers.counts() == dict.fromkeys(workers.counts(), 1)
    assert await down(pair[0]) == []


async def down(node: Node) -> list[Any]:
    status, answer = await node.rest("GET", "/v1/federation-links?state=down")
    assert status == 200, answer
    return list(answer["links"])


async def has_consumers(node: Node, count: str) -> bool:
    return bool((await queue(node))["remote_consumers"] == count)


@pytest.mark.slow
async def test_every_job_is_done_once_and_at_home_while_consumers_are_free(nodes: Nodes, clients: Clients) -> None:
    made = await started(nodes, list(permutations(NAMES, 2)))
    await eventually(lambda: are_up(made), "the links run")
    rng = random.Random(3)
    workers = Workers(made, clients, random.Random(4))
    for name in NAMES:
        await workers.come(name, 2)
    writers = {name: await clients.connect(node.port) for name, node in made.items()}
    published: list[bytes] = []
    was_free: list[bytes] = []  # jobs that were published where consumers were free
    for number in range(JOBS):
        await asyncio.sleep(rng.uniform(0.0, 0.02))  # the consumers of a domain are sometimes busy, and sometimes free
        for name in rng.sample(NAMES, len(NAMES)):
            payload = f"{name} {number}".encode()
            is_first = number % 4 == 0 and len(published) == number * len(NAMES)
            if is_first and workers.working and await workers.are_free(name, len(published)):
                was_free.append(payload)
            published.append(payload)
            await writers[name].publish("jobs/a", payload, qos=1)
        if number % 10 == 5:
            if rng.random() < 0.5 and workers.working:
                await workers.leave(rng.choice(workers.working))
            else:
                await workers.come(rng.choice(NAMES))
    for worker in list(workers.working):
        await workers.leave(worker)
    await workers.come("north", 2)
    await eventually(lambda: len(workers.done) >= len(published), "every job is done")
    assert workers.counts() == dict.fromkeys(published, 1), "none twice"
    places = dict(workers.done)
    at_home = [places[job] == job.split()[0].decode() for job in was_free]
    assert len(at_home) > JOBS // 10, "consumers are free often enough to tell"
    assert sum(at_home) >= AT_HOME_MIN * len(at_home)
    assert any(places[job] != job.split()[0].decode() for job in published), "jobs move to where consumers are"
