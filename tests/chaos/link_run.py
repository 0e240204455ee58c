"""`scripts/chaos links`: a link between two clusters, while its upstream is away or stands still and its nodes die, stop and
leave; also over a network that loses and delays packets.

The subscribers are on the node that owns the link last: it is never hit, and runs the link only when both others are away.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from federation.links.ownership_table import (
    weight,
)
from link_schedule import Incident, Trouble
from link_status_watch import RUNNING, Watch
from local_traffic import LocalTraffic
from lossy_network import ADDRESSES, LossyNetwork, node_in
from node_process import FAILED_SECONDS, Node, Nodes, gossip_address, status_becomes
from session_clients import SessionPublisher, SessionSubscriber
from waiting import DEADLINE, eventually, stand_still

NODES: Final = 3
PUBLISHERS: Final = 2
RATE: Final = 200.0  # messages a second of a publisher
LOSSY_RATE: Final = 25.0  # with 5 % of the packets lost and 400 ms there and back, TCP carries some KiB a second
LATE_SECONDS: Final = 5.0  # for which lost packets are sent again
HEARTBEAT_SECONDS: Final = 10
SETTLE_SECONDS: Final = 120.0  # the longest delay between two tries of a link is half of it
MQTT: Final = {"session_expiry": "2h", "max_queued_messages": 1_000_000, "max_queued_bytes": "1GiB"}


@dataclass
class LinkReport:
    """quiet_ms, bad_ms  median of what local messages took while all worked, and while something went wrong
    faults            what is not as promised
    """

    incidents: int
    sent: int = 0
    subscribers: int = 0
    duplicates: int = 0
    samples: int = 0
    quiet_ms: float = 0.0
    bad_ms: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.faults

    @property
    def claim(self) -> str:
        return (
            f"each of the {self.sent:,} messages that the upstream acknowledged reached each of {self.subscribers} subscribers "
            f"in order; {self.duplicates:,} came once more, each after one of {self.incidents} incidents, as QoS 1 allows; the "
            f"status of the link was asked {self.samples:,} times and was true each time; local messages took "
            f"{self.quiet_ms:.2f} ms while all worked and {self.bad_ms:.2f} ms while something went wrong (median)"
        )

    def lines(self) -> list[str]:
        return [f"{self.incidents} incidents", *(f"FAULT: {fault}" for fault in self.faults)]


class LinkRun:
    def __init__(self, directory: Path, say: Callable[[str], None], network: LossyNetwork | None = None) -> None:
        """`network` is between the upstream and the cluster; None: loopback."""
        self.say = say
        self._nodes = Nodes(directory)
        self._directory = directory
        config: dict[str, Any] = {"mqtt": MQTT, "data_dir": str(directory / "upstream")}
        self._kind = Node
        self._rate = RATE
        self._late_seconds = 0.0
        kind = Node
        if network is not None:
            kind, self._kind = (node_in(namespace) for namespace in network.namespaces)
            config["listeners"] = [{"address": f"{ADDRESSES[0]}:1883"}]
            self._rate = LOSSY_RATE
            self._late_seconds = LATE_SECONDS
        self._upstream = self._nodes.make(config, "upstream", kind)
        host = "127.0.0.1" if network is None else ADDRESSES[0]
        self._uri = f"mqtt://{host}:{self._upstream.port}?heartbeat={HEARTBEAT_SECONDS}"

    async def run(self, incidents: Sequence[Incident]) -> LinkReport:
        """The incidents one after the other, and at last kill -9 of the link's node for good."""
        report = LinkReport(len(incidents) + 1)
        await self._upstream.start()
        try:
            await self._play(incidents, report)
        finally:
            for node in self._nodes.all:
                await node.finish()
        report.faults += [fault for node in self._nodes.all for fault in node.unclean]
        return report

    async def _play(self, incidents: Sequence[Incident], report: LinkReport) -> None:
        self._cluster = await self._start_cluster()
        home = self._cluster[-1]
        self._watch = Watch(home)
        self._subscribers = [SessionSubscriber(home.entry, f"subscriber{number}") for number in range(2)]
        self._publishers = [
            SessionPublisher(self._upstream.entry, f"publisher{number}", (1,), self._rate)
            for number in range(PUBLISHERS)
        ]
        clients = [*self._subscribers, *self._publishers]
        self._local = LocalTraffic(home.entry)
        beside = [asyncio.create_task(self._watch.run()), asyncio.create_task(self._local.run())]
        try:
            for subscriber in self._subscribers:
                subscriber.start()
                await asyncio.wait_for(subscriber.subscribed.wait(), DEADLINE)
            await self._runs_on(self._cluster[:1])
            for publisher in self._publishers:
                publisher.start()
            await self._settled(self._cluster)
            for number, incident in enumerate(incidents, 1):
                await self._quiet(incident.quiet_seconds, report)
                self.say(f"{number} of {report.incidents}: {incident.trouble} for {incident.down_seconds:.1f} s")
                begin = time.monotonic()
                await self._suffer(incident)
                await self._settled(self._cluster)
                self._local.troubles.append((begin, time.monotonic()))
            self.say(f"{report.incidents} of {report.incidents}: kill of the link's node for good")
            begin = time.monotonic()
            await self._kill(self._cluster[0])
            await self._settled(self._cluster[1:])
            self._local.troubles.append((begin, time.monotonic()))
            await self._end(report)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            for client in clients:
                await client.stop()
        for task in beside:
            if not task.cancelled():
                raise AssertionError(f"status and local messages cannot be watched: {task.exception()!r}")
        report.quiet_ms, report.bad_ms = self._local.medians()
        report.samples = len(self._watch.samples)
        report.faults += [str(fault) for fault in self._watch.untrue()]
        report.faults += [fault for client in self._publishers for fault in client.faults]

    async def _start_cluster(self) -> list[Node]:
        """The nodes in the order in which they own the link."""
        links = {
            "domain": "downstream",
            "upstreams": {"up": {"uri": self._uri, "reconnect-delay": 0.3}},
            "policies": {"all": {"pattern": "t/#", "definition": {"federation-upstream": "up"}}},
        }
        cluster: list[Node] = []
        for number in range(NODES):
            config: dict[str, Any] = {
                "mqtt": MQTT,
                "data_dir": str(self._directory / f"downstream{number}"),
                "plugin_order": ["admin", "federation", "links"],
                "plugins": {"links": links},
            }
            cluster.append(self._nodes.make_federated(cluster[:1], config, self._kind))
        # A node that starts again must find one that lives.
        for node in cluster:
            others = [gossip_address(other) for other in cluster if other is not node]
            node.config["plugins"]["federation"]["retry_join"] = others
        await asyncio.gather(*(node.start() for node in cluster))
        await self._nodes.all_alive(cluster)
        rows: list[dict[str, Any]] = []

        async def is_known() -> bool:
            status, answer = await cluster[0].rest("GET", "/v1/federation-links")
            rows[:] = answer["links"] if status == 200 else []
            return bool(rows)

        await eventually(is_known, "the link is known")
        link_id = str(rows[0]["id"])
        return sorted(cluster, key=lambda node: weight(link_id, node.name), reverse=True)

    # --- what happens

    async def _suffer(self, incident: Incident) -> None:
        """The incident, from its begin until everything that was hit is there again."""
        first, second = self._cluster[:2]
        trouble = incident.trouble
        if trouble in (Trouble.UPSTREAM_AWAY, Trouble.UPSTREAM_KILL):
            await (self._upstream.stop() if trouble is Trouble.UPSTREAM_AWAY else self._upstream.kill())
            self._watch.gone("", self._late_seconds)
            await asyncio.sleep(incident.down_seconds)
            self._watch.returns("")
            await self._upstream.start()
            return
        if trouble in (Trouble.UPSTREAM_STILL, Trouble.NODE_STILL):
            node, name = (self._upstream, "") if trouble is Trouble.UPSTREAM_STILL else (first, first.name)
            await stand_still(node.pid)
            self._watch.gone(name, self._late_seconds)
            await asyncio.sleep(incident.down_seconds)
            self._watch.returns(name)
            os.kill(node.pid, signal.SIGCONT)
            return
        if trouble is Trouble.NODE_LEAVE:
            await self._leave_and_join(first, incident.down_seconds)
            return
        hit = [first]
        if trouble is Trouble.NODE_STOP:
            await first.stop()
            self._watch.gone(first.name)
        else:
            await self._kill(first)
        if trouble is Trouble.TWO_KILLS:
            await self._runs_on([second])
            await self._kill(second)
            hit.append(second)
        await asyncio.sleep(incident.down_seconds)
        for node in hit:
            self._watch.returns(node.name)
            await node.start()

    async def _kill(self, node: Node) -> None:
        await node.kill()
        self._watch.gone(node.name)

    async def _leave_and_join(self, node: Node, seconds: float) -> None:
        status, answer = await node.rest("POST", "/v1/federation/leave", {})
        assert status == 200, answer
        await self._runs_on(self._cluster[1:2])
        await asyncio.sleep(seconds)
        status, answer = await node.rest("POST", "/v1/federation/join", {"hosts": [gossip_address(self._cluster[-1])]})
        assert status == 200, answer
        await status_becomes(self._cluster[-1], node.name, "STATUS_ALIVE")

    # --- what is awaited

    async def _runs_on(self, nodes: Sequence[Node]) -> None:
        """The link runs on the first of these that is there, and nowhere else."""
        names = [node.name for node in nodes]

        async def is_so() -> bool:
            rows = (await self._watch.ask()).rows
            return [(row["status"], row["node"]) for row in rows if row["status"] == RUNNING] == [(RUNNING, names[0])]

        await eventually(is_so, f"the link runs on {names[0]}", FAILED_SECONDS + SETTLE_SECONDS)

    async def _settled(self, nodes: Sequence[Node]) -> None:
        """The link runs at its owner, and what was published so far is at the subscribers."""
        await self._runs_on(nodes)
        sent = self._sent()
        for subscriber in self._subscribers:
            await eventually(
                lambda s=subscriber: all(s.numbers.get(topic, [-1])[-1] >= count - 1 for topic, count in sent.items()),
                f"{subscriber.client_id} has what was sent",
                SETTLE_SECONDS,
            )

    async def _quiet(self, seconds: float, report: LinkReport) -> None:
        """Nothing goes wrong for some seconds: nothing may come twice."""
        before = [subscriber.duplicates for subscriber in self._subscribers]
        await asyncio.sleep(seconds)
        after = [subscriber.duplicates for subscriber in self._subscribers]
        if after != before:
            report.faults.append(f"came twice while nothing went wrong: {before} before, {after} after")

    def _sent(self) -> dict[str, int]:
        return {topic: count for publisher in self._publishers for topic, count in publisher.sent.items()}

    async def _end(self, report: LinkReport) -> None:
        """Everything that was published is at each subscriber, in order."""
        for publisher in self._publishers:
            publisher.enough()
            await asyncio.wait_for(publisher.done.wait(), DEADLINE)
        sent = self._sent()
        for subscriber in self._subscribers:
            await eventually(lambda s=subscriber: s.has_all(sent), f"{subscriber.client_id} has the last messages")
            report.faults += subscriber.broken_promises(sent)
            report.duplicates += subscriber.duplicates
        report.sent = sum(sent.values())
        report.subscribers = len(self._subscribers)
