"""Clients that come and go at a node by TCP, TLS and WebSocket, and the sums that its metrics must give at the end."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, Final

import psutil
from prometheus_client.parser import text_string_to_metric_families

from broker.codec.packets import SubscribeFilter
from broker.counters import COPY_DROP_REASONS
from certificates import Authority
from node_process import Node, free_port
from soak_client import SoakClient, open_way
from waiting import eventually

TRANSPORTS: Final = ("tcp", "tls", "ws")
CLIENTS_PER_TOPIC: Final = 8  # so many subscribe to each, besides shared groups
SILENT_KEEP_ALIVE: Final = 1  # of clients that leave by silence
KEPT_SECONDS: Final = 7 * 24 * 3600  # of sessions that stay: longer than any soak
MEMORY_GROWTH_MAX: Final = 0.15  # from the first third of a soak to its end, beside MEMORY_SLACK
MEMORY_SLACK: Final = 10 * 2**20
STEADY_SECONDS: Final = 120.0  # in a third of a shorter run the queues of sessions that stay are not full yet
PAGE: Final = 500
QUEUE_MAX: Final = (
    20  # messages of a session: a queue is full within seconds, and memory does not follow the pauses of clients
)


def node_of(directory: Path) -> tuple[Node, dict[str, int], ssl.SSLContext]:
    """A node, not started, its ports by transport, and what its TLS clients trust."""
    authority = Authority(directory / "certificates")
    pair = authority.pair("localhost")
    ports = {transport: free_port() for transport in TRANSPORTS}
    metrics, http = free_port(), free_port()
    node = Node(
        directory,
        "soaked",
        {
            "listeners": [
                {"address": f"127.0.0.1:{ports['tcp']}"},
                {"address": f"127.0.0.1:{ports['tls']}", "tls": {"cert": pair.cert, "key": pair.key}},
                {"address": f"127.0.0.1:{ports['ws']}", "websocket": {"path": "/mqtt"}},
            ],
            "mqtt": {"max_queued_messages": QUEUE_MAX, "max_inflight": QUEUE_MAX},
            "api": {"http": [{"address": f"tcp://127.0.0.1:{http}"}]},
            "plugins": {"prometheus": {"listen_address": f"127.0.0.1:{metrics}"}},
            "plugin_order": ["admin", "prometheus"],
            "log": {"level": "warn"},
        },
    )
    return node, ports, ssl.create_default_context(cafile=authority.cacert)


class Soak:
    """A run with so many clients at a time. `left` counts the ways in which they left."""

    def __init__(self, directory: Path, clients: int, seconds: float, seed: int) -> None:
        self.node, self._ports, self._tls = node_of(directory)
        self._clients = clients
        self._topics = max(1, clients // CLIENTS_PER_TOPIC)
        self._seconds = seconds
        self._seed = seed
        self._until = 0.0
        self.left: Counter[str] = Counter()
        self.received = 0
        self.acknowledged = 0
        self.memory: list[int] = []
        self.descriptors: list[int] = []

    async def run(self) -> dict[str, float]:
        """The whole run; the metrics at its end. Raises AssertionError for what does not add up."""
        await self.node.start()
        try:
            await self._nobody()
            await self._sessions()  # what the first call of the API opens is no leak
            self.descriptors.append(self._open_files())
            self._until = time.monotonic() + self._seconds
            measuring = asyncio.create_task(self._measure())
            await asyncio.gather(*(self._lives(number) for number in range(self._clients)))
            await measuring
            await self._nobody()
            metrics = await self._adds_up()
            await self._forget_sessions()
            await eventually(lambda: self._open_files() <= self.descriptors[0], "no descriptor leaks")
            self.descriptors.append(self._open_files())
            self.memory.append(self.node.resident_bytes())
            bound = self.memory[0] * (1 + MEMORY_GROWTH_MAX) + MEMORY_SLACK
            steady = self._seconds < STEADY_SECONDS or self.memory[-1] <= bound
            assert steady, f"memory grows from {self.memory[0]} to {self.memory[-1]} bytes"
        finally:
            await self.node.finish()
        assert not self.node.unclean, self.node.unclean
        return metrics

    async def _measure(self) -> None:
        """Memory when a third of the time has passed."""
        await asyncio.sleep(self._seconds / 3)
        self.memory.append(self.node.resident_bytes())

    def _open_files(self) -> int:
        return int(psutil.Process(self.node.pid).num_fds())

    # --- clients ---

    async def _lives(self, number: int) -> None:
        """Connections of one client id, one after the other, until the time is over."""
        rng = random.Random(f"{self._seed} {number}")
        await asyncio.sleep(rng.random() * min(2.0, self._seconds / 4))
        while True:
            await self._life(rng, number)
            if time.monotonic() >= self._until:
                return

    async def _life(self, rng: random.Random, number: int) -> None:
        transport = rng.choice(TRANSPORTS)
        version = rng.choice((4, 5))
        stays = number % 4 == 0  # its session outlives its connections
        leave = rng.choice(("disconnect", "disconnect", "cut", "silence"))
        way = await open_way(transport, self._ports[transport], self._tls)
        client = SoakClient(way, version)
        try:
            keep_alive = SILENT_KEEP_ALIVE if leave == "silence" else 0
            await client.connect(f"soak-{number}", not stays, keep_alive, KEPT_SECONDS if stays else 0)
            own = (
                number + rng.randrange(2)
            ) % self._topics  # of two, so that a session that stays does not collect more
            filters = [SubscribeFilter(b"soak/%d" % own, rng.randrange(3))]
            if rng.random() < 0.3:
                filters.append(SubscribeFilter(b"$share/g%d/soak/+" % rng.randrange(3), rng.randrange(3)))
            await client.subscribe(filters)
            for _ in range(rng.randint(1, 20)):
                topic = b"soak/%d" % rng.randrange(self._topics)
                await client.publish(topic, rng.randbytes(rng.choice((10, 100, 2000))), rng.randrange(3))
                await asyncio.sleep(rng.random() * 0.05)
            if leave == "disconnect":
                await client.disconnect()
            elif leave == "cut":
                client.cut()
            else:
                client.fall_silent()
                await client.wait_ended()
        except ConnectionError:
            if leave != "silence":  # on a busy machine it may be silent before it wants to be
                raise
        finally:
            self.left[f"{leave} {transport}"] += 1
            self.received += client.received
            self.acknowledged += client.acknowledged
            await client.close()

    # --- the end ---

    async def metrics(self) -> dict[str, float]:
        """Values by name, and sums over the labels; by reason for drops."""
        address = self.node.config["plugins"]["prometheus"]["listen_address"]
        text = await asyncio.to_thread(fetched, f"http://{address}/metrics")
        values: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
                for label in ("reason", "qos"):
                    if label in sample.labels:
                        name = f"{sample.name} {sample.labels[label]}"
                        values[name] = values.get(name, 0.0) + sample.value
        return values

    async def _nobody(self) -> None:
        """Wait until the node has no connections."""

        async def is_so() -> bool:
            try:
                return (await self.metrics())["gmqtt_sessions_active_current"] == 0
            except OSError:
                return False  # clients are served before the metrics are

        await eventually(is_so, "all clients have left")

    async def _adds_up(self) -> dict[str, float]:
        """What is queued is counted in the sessions themselves, not from the other sums."""
        found = await self.metrics()
        sessions = await self._sessions()
        waiting = sum(session["queue_len"] + session["inflight_len"] for session in sessions)
        dropped = sum(found.get(f"gmqtt_messages_dropped_total {reason}", 0.0) for reason in COPY_DROP_REASONS)
        ended = found["gmqtt_messages_sent_total 0"] + found["gmqtt_messages_acknowledged_total"]
        ended += found["gmqtt_messages_redelivered_total"]
        copies = found["gmqtt_message_copies_total"]
        assert copies == ended + dropped + waiting, f"{copies} copies, {ended} ended, {dropped} dropped, {waiting} wait"
        assert copies > 0
        assert len(sessions) == found["gmqtt_sessions_inactive_current"]
        published = sum(found[f"gmqtt_messages_received_total {qos}"] for qos in (1, 2))
        assert published >= self.acknowledged, f"{published} messages of QoS 1 and 2, {self.acknowledged} acknowledged"
        assert found["gmqtt_messages_sent_total"] >= self.received
        return {**found, "waiting": waiting, "dropped": dropped}

    async def _sessions(self) -> list[dict[str, Any]]:
        sessions: list[dict[str, Any]] = []
        while True:
            status, answer = await self.node.rest(
                "GET", f"/v1/clients?page_size={PAGE}&page={len(sessions) // PAGE + 1}"
            )
            assert status == 200, answer
            sessions += answer["clients"]
            if len(answer["clients"]) < PAGE:
                return sessions

    async def _forget_sessions(self) -> None:
        """End the sessions that stay; nothing waits and nothing is subscribed then."""
        for session in await self._sessions():
            status, answer = await self.node.rest("DELETE", f"/v1/clients/{session['client_id']}?clean_session=true")
            assert status == 200, answer
        found = await self.metrics()
        for name in ("sessions_inactive", "subscriptions", "messages_queued"):
            assert found[f"gmqtt_{name}_current"] == 0, name


def fetched(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as answer:
        text: str = answer.read().decode()
    return text
