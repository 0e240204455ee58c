"""`$stream/` on a node that is a process: history and then what is new, for mosquitto_sub and for a session over a kill."""

from __future__ import annotations

import asyncio
import random
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.codec import properties as props
from broker.codec.packets import PubAck, Publish
from mqtt_client import Clients, MqttClient
from repository import ROOT
from waiting import eventually

if TYPE_CHECKING:
    from mosquitto_process import Mosquitto
    from node_process import Node, Nodes

PAGE = ROOT / "docs" / "replay.md"
WINDOW = 20  # Receive Maximum
ANSWER_SECONDS = 5.0  # of a node to CONNECT: it may be killed before it answers


def with_log(folder: Path, **settings: Any) -> dict[str, Any]:
    return {
        "plugin_order": ["event_log"],
        "plugins": {"event_log": {"dir": str(folder / "log"), "node_name": "n1", **settings}},
        "data_dir": str(folder / "data"),
    }


async def publish(client: MqttClient, first: int, end: int) -> None:
    await client.publish_all([(f"sensors/{number % 3}", b"%d" % number, 1) for number in range(first, end)])


async def durable(clients: Clients, port: int, **options: Any) -> MqttClient:
    properties = {props.SESSION_EXPIRY_INTERVAL: 3600, props.RECEIVE_MAXIMUM: WINDOW}
    return await clients.connect(port, "durable", clean_start=False, properties=properties, **options)


async def test_a_durable_subscription_loses_nothing_over_a_kill(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """Only what was not acknowledged comes again; a slow reader holds up no publisher."""
    node = await nodes.start(with_log(tmp_path))
    publisher = await clients.connect(node.port, "p")
    await publish(publisher, 0, 300)
    got: list[int] = []
    client = await durable(clients, node.port, acknowledges=False)
    assert await client.subscribe("$stream/earliest/sensors/#", qos=1) == [1]
    unacknowledged: list[Publish] = []
    for _ in range(100):
        unacknowledged.append(await client.message())
        if len(unacknowledged) == WINDOW:
            first = unacknowledged.pop(0)
            got.append(int(first.payload))
            client.send(PubAck(first.packet_id))
    await publish(publisher, 300, 400)
    await client.subscribe("none", qos=1)  # the answer comes when the store has all of this
    await node.kill()
    await node.start()
    client = await durable(clients, node.port)
    got += [int(message.payload) for message in await client.take(400 - len(got))]
    assert got == list(range(400)), "in order, and once"
    publisher = await clients.connect(node.port, "p")
    await publish(publisher, 400, 403)
    assert [int(message.payload) for message in await client.take(3)] == [400, 401, 402]


async def test_the_lines_of_the_page_work(nodes: Nodes, mosquitto: Mosquitto, clients: Clients, tmp_path: Path) -> None:
    node = await nodes.start(with_log(tmp_path))
    publisher = await clients.connect(node.port, "p")
    await publish(publisher, 0, 9)
    lines = re.findall(r"^mosquitto_sub (.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) >= 4
    subs = []
    for line in lines:
        options = [re.sub(r"\d{4}-\d{2}-\d{2}T", "2020-01-01T", option) for option in shlex.split(line, comments=True)]
        subs.append((options, await mosquitto.sub(node.port, *options, version="mqttv5")))
    for options, sub in subs:
        wanted = [b"6", b"7", b"8"] if any("last" in option for option in options) else [b"%d" % n for n in range(9)]
        assert await sub.payloads(len(wanted)) == wanted, options
    await publish(publisher, 9, 10)
    for options, sub in subs:
        assert await sub.payloads(1) == [b"9"], options


def logging_member(nodes: Nodes, folder: Path, join: list[Node]) -> Node:
    name = f"node{len(nodes.all) + 1}"
    own = {
        "plugin_order": ["admin", "federation", "event_log"],
        "plugins": {"event_log": {"dir": str(folder / f"log-{name}")}},
        "data_dir": str(folder / f"data-{name}"),
    }
    return nodes.make_federated(join, own)


@pytest.mark.one_process("names the log of a member, and each worker has one")
async def test_the_logs_of_all_members_are_one_history(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """Each log comes whole and in order, over the kill of the other node, and when the client
    goes to that."""
    first = await logging_member(nodes, tmp_path, []).start()
    second = await logging_member(nodes, tmp_path, [first]).start()
    await nodes.all_alive([first, second])
    sent: dict[str, list[int]] = {"node1": [], "node2": []}

    async def publish_on(node: Node, start: int, end: int) -> None:
        publisher = await clients.connect(node.port, f"p-{node.name}")
        await publish(publisher, start, end)
        sent[node.name] += range(start, end)

    for turn in range(3):
        await publish_on(first, 200 * turn, 200 * turn + 50)
        await publish_on(second, 200 * turn + 100, 200 * turn + 150)
    client = await durable(clients, first.port)
    assert await client.subscribe("$stream/earliest/sensors/#", qos=1) == [1]
    got = await client.take(300)
    assert [int(message.payload) for message in got] == sorted(sent["node1"] + sent["node2"]), "in the order of time"
    last = await clients.connect(first.port, "last")
    await last.subscribe("$stream/last/sensors/#", qos=1)
    newest = {number % 3: number for number in sorted(sent["node1"] + sent["node2"])}
    assert [int(message.payload) for message in await last.take(3)] == sorted(newest.values())
    await publish_on(second, 1000, 1010)
    got += await client.take(10)
    await second.kill()
    await publish_on(first, 1100, 1110)
    got += await client.take(10)
    await second.start()
    await publish_on(second, 1200, 1210)
    got += await client.take(10)
    client = await durable(clients, second.port)
    await publish_on(first, 1300, 1310)
    await publish_on(second, 1400, 1410)
    got += await client.take(20)
    for name, numbers in sent.items():
        assert [int(one.payload) for one in got if place_of(one)["node"] == name] == numbers
    large = bytes(17 * 2**20)  # more than an answer of gRPC has elsewhere
    publisher = await clients.connect(second.port, "large")
    await publisher.publish("large", large, qos=1)
    reader = await clients.connect(first.port, "reader")
    await reader.subscribe("$stream/earliest/large", qos=1)
    assert (await reader.message()).payload == large


def place_of(message: Publish) -> dict[str, str]:
    """The User Properties that tell the record."""
    return dict(props.get_user_properties(props.publish_properties_to_dict(message.properties)))


async def test_a_node_without_a_log_says_so(nodes: Nodes, clients: Clients) -> None:
    node = await nodes.start()
    client = await clients.connect(node.port, "c")
    assert await client.subscribe("$stream/earliest/#") == [0x83]


async def test_a_follower_does_not_wait_for_the_interval_of_syncs(
    nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    node = await nodes.start(with_log(tmp_path, sync="interval", sync_interval="1h"))
    client = await clients.connect(node.port, "c")
    await client.subscribe("$stream/latest/#")
    publisher = await clients.connect(node.port, "p")
    for number in range(3):
        await publisher.publish("a", b"%d" % number, 0)
        assert (await client.message()).payload == b"%d" % number


class Traffic:
    """Publishes QoS 1 on one node without end, through its deaths. `acknowledged` are the payloads with a PUBACK."""

    def __init__(self, clients: Clients, node: Node) -> None:
        self.acknowledged: list[bytes] = []
        self.is_over = False
        self._clients = clients
        self._node = node

    async def run(self) -> None:
        number = 0
        while not self.is_over:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    client = await self._clients.connect(self._node.port, f"p-{self._node.name}")
                while not self.is_over:
                    payload = b"%s/%d" % (self._node.name.encode(), number)
                    number += 1
                    client.send(Publish(b"t/%d" % (number % 7), payload, 1, packet_id=1))
                    await answered(client)
                    self.acknowledged.append(payload)
            except OSError:
                await asyncio.sleep(0.05)


async def answered(client: MqttClient) -> None:
    """The next PUBACK came. Raises ConnectionError where the connection ends before."""
    ended = asyncio.create_task(client.closed.wait())
    answer = asyncio.create_task(client.answer(PubAck))
    await asyncio.wait([ended, answer], return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if not answer.done():
        answer.cancel()
        raise ConnectionError
    await answer


class Reader:
    """A durable subscription at one node, through its deaths. `got` are (node, offset, payload) in the order in which they came
    first; `repeated` counts the others."""

    def __init__(self, clients: Clients, node: Node) -> None:
        self.got: dict[tuple[str, int], bytes] = {}
        self.repeated = 0
        self._clients = clients
        self._node = node

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    client = await durable(self._clients, self._node.port)
                await client.subscribe("$stream/earliest/#", qos=1)
                while not client.closed.is_set() or not client.messages.empty():
                    try:
                        message = await client.message(0.2)
                    except TimeoutError:
                        continue
                    place = place_of(message)
                    key = place["node"], int(place["offset"])
                    self.repeated += key in self.got
                    self.got.setdefault(key, message.payload)
            except OSError:
                await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_kills_at_random_lose_nothing(nodes: Nodes, clients: Clients, tmp_path: Path, seed: int) -> None:
    """Of what was acknowledged, on two nodes that are killed, for a subscriber of one of them."""
    rng = random.Random(seed)
    first = await logging_member(nodes, tmp_path, []).start()
    second = await logging_member(nodes, tmp_path, [first]).start()
    await nodes.all_alive([first, second])
    traffic = [Traffic(clients, node) for node in (first, second)]
    reader = Reader(clients, first)
    tasks = [asyncio.create_task(work) for work in (*[each.run() for each in traffic], reader.run())]
    kills = 0  # of the node of the reader
    for _ in range(6):
        had = len(reader.got) + rng.randrange(50, 500)
        await eventually(lambda had=had: len(reader.got) >= had, "messages come")
        node = rng.choice((first, second))
        kills += node is first
        await node.kill()
        await node.start()
    for each in traffic:
        each.is_over = True
    await asyncio.gather(*tasks[:2])
    acknowledged = {payload for each in traffic for payload in each.acknowledged}
    await eventually(lambda: acknowledged <= set(reader.got.values()), "all that was acknowledged comes")
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for node in (first, second):
        offsets = [offset for name, offset in reader.got if name == node.name]
        assert offsets == list(range(len(offsets))), "each log whole and in order"
    assert reader.repeated <= kills * WINDOW, "what was not acknowledged, as far as the store knows"
