"""`scripts/chaos federation`: nodes with stores are killed, stopped and cut off; durable sessions on all of them get everything
that was acknowledged on any of them."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from federation_schedule import Incident, Trouble
from node_process import Node, Nodes
from session_clients import SessionPublisher, SessionSubscriber
from split_network import SplitNetwork, split_network
from waiting import eventually, stand_still

NODES: Final = 5
RATE: Final = 40.0  # messages a second of each publisher
HEAL_SECONDS_MAX: Final = 180.0
CONFIG: Final[dict[str, Any]] = {
    "mqtt": {"session_expiry": "2h", "max_queued_messages": 1_000_000, "publisher_hold_max": "5m"},
    "log": {"clients": False},
}


@dataclass
class FederationReport:
    """seconds    how long things went wrong
    incidents  number by kind
    published  and of them acknowledged, both by QoS 1 and 2
    expected   deliveries: each message to each session
    repeated   deliveries of QoS 1 that came once more
    twice      deliveries of QoS 2 that came once more
    heals      seconds from the end of each incident until everything that was published before was delivered
    faults     what is not as promised
    """

    nodes: int
    seconds: float = 0.0
    incidents: dict[Trouble, int] = field(default_factory=lambda: dict.fromkeys(Trouble, 0))
    published: int = 0
    acknowledged: int = 0
    expected: int = 0
    delivered: int = 0
    repeated: int = 0
    twice: int = 0
    heals: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return self.expected - self.delivered

    @property
    def is_clean(self) -> bool:
        return not self.faults and self.lost == 0 and self.twice == 0

    @property
    def claim(self) -> str:
        return "every acknowledged message reached every durable session, in order; QoS 2 once"

    def lines(self) -> list[str]:
        hits = ", ".join(f"{count} {trouble}" for trouble, count in self.incidents.items() if count)
        return [
            f"{self.nodes} nodes, {self.seconds:.0f} s: {hits}",
            f"published       {self.published:>10,}",
            f"acknowledged    {self.acknowledged:>10,}",
            f"delivered       {self.delivered:>10,} of {self.expected:,}",
            f"repeated        {self.repeated:>10,} (QoS 1)",
            f"lost            {self.lost:>10,}",
            f"QoS 2 repeated  {self.twice:>10,}",
            f"time to heal    {statistics.median(self.heals):>10.1f} s median, {max(self.heals):.1f} s longest",
            *(f"FAULT: {fault}" for fault in self.faults),
        ]


class FederationRun:
    def __init__(self, directory: Path, say: Callable[[str], None], nodes: int = NODES) -> None:
        self.say = say
        self._made = Nodes(directory)
        for number in range(1, nodes + 1):
            self._made.make_federated([], {**CONFIG, "data_dir": str(directory / f"data{number}")})
        self._nodes = self._made.all
        self._subscribers = [SessionSubscriber(node.port, f"subscriber {node.name}") for node in self._nodes]
        # QoS 2 has the outbox of its node stored, with all that is of QoS 1 in it: some nodes have none.
        levels = ((1,), (2,), (1, 2))
        self._publishers = [
            SessionPublisher(node.port, node.name, levels[number % len(levels)], RATE)
            for number, node in enumerate(self._nodes)
        ]

    async def run(self, incidents: Iterable[Incident], seconds: float) -> FederationReport:
        """Incidents one after the other, until so many seconds are over."""
        report = FederationReport(len(self._nodes))
        async with split_network(self._nodes) as network:
            try:
                await asyncio.gather(*(node.start() for node in self._nodes))
                await self._made.all_alive(self._nodes)
                await self._play(incidents, seconds, network, report)
            finally:
                network.heal()
                await asyncio.gather(*(client.stop() for client in (*self._subscribers, *self._publishers)))
                await asyncio.gather(*(node.finish() for node in self._nodes))
        report.faults += [fault for node in self._nodes for fault in node.unclean]
        return report

    async def _play(
        self, incidents: Iterable[Incident], seconds: float, network: SplitNetwork, report: FederationReport
    ) -> None:
        for subscriber in self._subscribers:
            subscriber.start()
            await asyncio.wait_for(subscriber.subscribed.wait(), HEAL_SECONDS_MAX)
        for publisher in self._publishers:
            publisher.start()
        begun = time.monotonic()
        for number, incident in enumerate(incidents, 1):
            if time.monotonic() - begun >= seconds:
                break
            await asyncio.sleep(incident.quiet_seconds)
            names = ", ".join(self._nodes[hit].name for hit in incident.nodes)
            report.incidents[incident.trouble] += 1
            await self._suffer(incident, network)
            sent = self._sent()
            healed = time.monotonic()
            await self._delivered(sent)
            report.heals.append(time.monotonic() - healed)
            self.say(
                f"{number}: {incident.trouble} for {incident.seconds:.1f} s ({names}); healed in {report.heals[-1]:.1f} s, "
                f"{sum(sent.values()):,} published"
            )
        report.seconds = time.monotonic() - begun
        await self._end(report)

    async def _suffer(self, incident: Incident, network: SplitNetwork) -> None:
        """The incident, from its begin until everything that was hit is there again."""
        hit = [self._nodes[number] for number in incident.nodes]
        if incident.trouble is Trouble.CUT:
            network.split(*hit)
            await asyncio.sleep(incident.seconds)
            network.heal()
            return
        still: list[Node] = []
        if incident.trouble is Trouble.KILL_BESIDE_STILL:
            still = [hit.pop()]
        elif incident.trouble is Trouble.STILL:
            still, hit = hit, []
        for node in still:
            await stand_still(node.pid)
        if still and hit:
            await asyncio.sleep(incident.seconds)  # the outbox of the node that is killed fills
        if incident.trouble is Trouble.RESTART:
            await hit[0].stop()
        else:
            await asyncio.gather(*(node.kill() for node in hit))
        await asyncio.sleep(incident.seconds)
        await asyncio.gather(*(node.start() for node in hit))
        for node in still:
            os.kill(node.pid, signal.SIGCONT)

    def _sent(self) -> dict[str, int]:
        return {topic: count for publisher in self._publishers for topic, count in publisher.sent.items()}

    async def _delivered(self, sent: dict[str, int]) -> None:
        """Return when all sessions have the last of these messages of each topic, or one behind it."""
        for subscriber in self._subscribers:
            await eventually(
                lambda s=subscriber: all(s.numbers.get(topic, [-1])[-1] >= count - 1 for topic, count in sent.items()),
                f"{subscriber.client_id} has what was sent",
                HEAL_SECONDS_MAX,
            )

    async def _end(self, report: FederationReport) -> None:
        for publisher in self._publishers:
            publisher.enough()
            await asyncio.wait_for(publisher.done.wait(), HEAL_SECONDS_MAX)
        sent = self._sent()
        await self._delivered(sent)
        report.published = sum(sent.values())
        report.acknowledged = sum(publisher.acknowledged for publisher in self._publishers)
        report.expected = report.published * len(self._subscribers)
        for subscriber in self._subscribers:
            for topic, came in subscriber.numbers.items():
                report.delivered += len(set(came))
                if topic.endswith("/2"):
                    report.twice += len(came) - len(set(came))
                else:
                    report.repeated += len(came) - len(set(came))
            report.faults += subscriber.broken_promises(sent)
        report.faults += [fault for publisher in self._publishers for fault in publisher.faults]
