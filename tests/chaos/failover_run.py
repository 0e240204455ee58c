"""`scripts/chaos failover`: four nodes with a link, whose node is killed, and the one that took it over some seconds later.

A failover ends when a message that was published at the upstream after the kill is at a subscriber of the cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from link_cluster import all_run, cluster_config, falls_to
from mqtt_client import Clients, MqttClient, reached
from node_process import FAILED_SECONDS, Node, Nodes

NODES: Final = 4
PAUSES: Final = (10.0, 20.0)  # seconds between two kills
FAILOVER_SECONDS_MAX: Final = 7.5  # a probe, a suspicion, gossip, CONNECT
PUBLISH_SECONDS: Final = 0.05


@dataclass
class FailoverReport:
    """`seconds` of each failover, by the pause between two kills: the first and the second of each round."""

    seconds: dict[float, list[tuple[float, float]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.faults

    @property
    def claim(self) -> str:
        return f"each failover took at most {FAILOVER_SECONDS_MAX} s"

    def lines(self) -> list[str]:
        found = [
            f"{pause:.0f} s between the kills: {' '.join(f'{first:.1f}/{second:.1f}' for first, second in rounds)} s"
            for pause, rounds in self.seconds.items()
        ]
        return [*found, *(f"FAULT: {fault}" for fault in self.faults)]


async def run_failovers(
    directory: Path, rounds: int, pauses: Sequence[float], say: Callable[[str], None]
) -> FailoverReport:
    report = FailoverReport({pause: [] for pause in pauses})
    for number in range(1, rounds + 1):
        for pause in pauses:
            folder = directory / f"round{number}-{pause:.0f}"
            folder.mkdir()
            nodes, clients = Nodes(folder), Clients()
            try:
                first, second = await _two_failovers(nodes, clients, pause)
            finally:
                await clients.close()
                await asyncio.gather(*(node.finish() for node in nodes.all))
            report.faults += [fault for node in nodes.all for fault in node.unclean]
            report.seconds[pause].append((first, second))
            say(f"round {number}, {pause:.0f} s between the kills: {first:.1f} s, {second:.1f} s")
            report.faults += [
                f"round {number}, {pause:.0f} s between the kills: a failover took {seconds:.1f} s"
                for seconds in (first, second)
                if seconds > FAILOVER_SECONDS_MAX
            ]
    return report


async def _two_failovers(nodes: Nodes, clients: Clients, pause: float) -> tuple[float, float]:
    """Seconds of both. The second kill comes `pause` seconds after the first."""
    upstream = await nodes.start({"mqtt": {"session_expiry": "1h", "max_queued_messages": 10_000}}, "upstream")
    cluster = await nodes.federation(NODES, cluster_config(upstream.port))
    names = [node.name for node in cluster]
    (link_id,) = await all_run(cluster[0], 1, names)
    order: list[Node] = []
    while names:
        order.append(next(node for node in cluster if node.name == falls_to(link_id, names)))
        names.remove(order[-1].name)
    reader = await clients.connect(order[-1].port, "reader")
    await reader.subscribe("s0/#", qos=1)
    writer = await clients.connect(upstream.port, "writer")
    await reached(writer, "s0/probe", reader)
    began_at = time.monotonic()
    first = await _failover(order[0], writer, reader)
    await asyncio.sleep(began_at + pause - time.monotonic())
    second = await _failover(order[1], writer, reader)
    return first, second


async def _failover(owner: Node, writer: MqttClient, reader: MqttClient) -> float:
    await owner.kill()
    killed_at = time.monotonic()

    async def publish() -> None:
        while True:
            await writer.publish("s0/time", repr(time.monotonic()).encode(), qos=1)
            await asyncio.sleep(PUBLISH_SECONDS)

    publishing = asyncio.create_task(publish())
    try:
        while True:
            message = await reader.message(FAILED_SECONDS)
            if message.topic == b"s0/time" and float(message.payload) > killed_at:
                return time.monotonic() - killed_at
    finally:
        publishing.cancel()
        await asyncio.wait([publishing])
