"""`scripts/chaos topologies`: domains as real processes, linked as in RabbitMQ's guides, some of them clusters of nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from linked_domains import CASES, LinkedDomains
from mqtt_client import Clients
from node_process import Nodes

NO_FILTER_SECONDS_MAX: Final = 5.0


@dataclass
class TopologyReport:
    """published  messages of all domains of all topologies; copies: of them, at the readers
    faults     what is not as promised
    """

    topologies: int = 0
    published: int = 0
    copies: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.faults

    @property
    def claim(self) -> str:
        kinds = "topology" if self.topologies == 1 else "topologies"
        return (
            f"{self.published:,} messages in {self.topologies} {kinds} gave {self.copies:,} copies: one at each reader of "
            "each domain that links reach within max-hops, and none elsewhere; no filter of a link was left"
        )

    def lines(self) -> list[str]:
        return [f"FAULT: {fault}" for fault in self.faults]


async def run_topologies(
    directory: Path, names: Sequence[str], messages: int, say: Callable[[str], None]
) -> TopologyReport:
    """`messages` of each domain of each of these topologies, one after the other."""
    report = TopologyReport()
    for name in names:
        folder = directory / name
        folder.mkdir()
        nodes = Nodes(folder)
        clients = Clients()
        begun = time.monotonic()
        domains = LinkedDomains(nodes, clients, CASES[name])
        try:
            await domains.start()
            await domains.publish(messages)
            faults = domains.faults()
            seconds = await domains.no_filter_seconds()
        finally:
            await clients.close()
            for node in nodes.all:
                await node.finish()
        if seconds > NO_FILTER_SECONDS_MAX:
            faults.append(f"links had filters for {seconds:.1f} s after the last reader")
        faults += [fault for node in nodes.all for fault in node.unclean]
        report.topologies += 1
        report.published += domains.published * len(domains.names)
        report.copies += domains.copies
        report.faults += [f"{name}: {fault}" for fault in faults]
        say(
            f"{name}: {len(domains.names)} domains, {len(nodes.all)} nodes; {domains.published:,} messages of each domain, "
            f"{domains.copies:,} copies at {len(domains.stations)} readers; no filter of a link {seconds:.1f} s after the last "
            f"reader; {time.monotonic() - begun:.0f} s in all"
        )
    return report
