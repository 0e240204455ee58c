"""What a node says of the links of its cluster while things go wrong, and whether it was true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from federation.links.status import ROUND_TRIP_SECONDS_MAX
from node_process import Node
from oracle import Fault, found

WATCH_SECONDS: Final = 0.2
RUNNING: Final = "running"


@dataclass(frozen=True)
class Sample:
    """One answer of GET /v1/federation-links. Times are Unix seconds."""

    asked_at: float
    came_at: float
    rows: tuple[dict[str, Any], ...]

    def running(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["status"] == RUNNING]


@dataclass
class Absence:
    """The upstream ("") or a node that is not there. It is away for sure from `begin` to `end`."""

    name: str
    begin: float
    end: float = float("inf")

    def holds(self, sample: Sample) -> bool:
        return self.begin < sample.asked_at and sample.came_at < self.end


@dataclass
class Watch:
    """Asks a node again and again."""

    node: Node
    samples: list[Sample] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    refusals: Fault = field(default_factory=lambda: Fault("requests for the status that got no answer"))

    async def run(self) -> None:
        while True:
            await self.ask()
            await asyncio.sleep(WATCH_SECONDS)

    async def ask(self) -> Sample:
        asked_at = time.time()
        status, answer = await self.node.rest("GET", "/v1/federation-links")
        if status != 200:
            self.refusals.add(f"{status} {answer}")
            answer = {"links": []}
        sample = Sample(asked_at, time.time(), tuple(answer["links"]))
        self.samples.append(sample)
        return sample

    def gone(self, name: str, late_seconds: float = 0.0) -> None:
        """The process has ended, or stands still; "" is the upstream. What it has sent may come so much later."""
        self.absences.append(Absence(name, time.time() + late_seconds))

    def returns(self, name: str) -> None:
        """The process is about to start again."""
        for absence in self.absences:
            if absence.name == name:
                absence.end = min(absence.end, time.time())

    def untrue(self) -> list[Fault]:
        return found(self.refusals) + untrue(self.samples, self.absences)


def untrue(samples: Sequence[Sample], absences: Sequence[Absence]) -> list[Fault]:
    """Rows that say what cannot be."""
    unproven = Fault(f"rows that run without an answer of the upstream for {ROUND_TRIP_SECONDS_MAX:g} s")
    answers = Fault("rows with an answer of an upstream that was away")
    ghosts = Fault("rows of a node that was away")
    several = Fault("answers with a link that runs on two nodes")
    back = Fault("rows that run with a lower epoch than before")
    silent = Fault("rows with an error that do not say which, or when it ends")
    epoch = 0
    for sample in samples:
        running = sample.running()
        if len({row["id"] for row in running}) < len(running):
            several.add(_nodes(sample))
        for row in running:
            if "answered" not in row or sample.asked_at - seconds_of(row["answered"]) > ROUND_TRIP_SECONDS_MAX:
                unproven.add(f"{row['node']}: {row.get('answered')} at {sample.asked_at:.1f}")
            if int(row["epoch"]) < epoch:
                back.add(f"{row['node']}: {row['epoch']} after {epoch}")
            epoch = max(epoch, int(row["epoch"]))
        for row in sample.rows:
            if row["status"] == "error" and not (row["error"] and row.get("deadline")):
                silent.add(row)
        for absence in absences:
            if not absence.holds(sample):
                continue
            if not absence.name:
                for row in running:
                    if seconds_of(row["answered"]) > absence.begin:
                        answers.add(f"{row['node']}: {row['answered']}, away since {absence.begin:.1f}")
            elif any(row["node"] == absence.name for row in running):
                ghosts.add(f"{absence.name}: {_nodes(sample)}")
    return found(unproven, answers, ghosts, several, back, silent)


def seconds_of(timestamp: str) -> float:
    """Unix seconds of a time as REST writes it."""
    return datetime.fromisoformat(timestamp).timestamp()


def _nodes(sample: Sample) -> str:
    return ", ".join(f"{row['node']} {row['status']} epoch {row['epoch']}" for row in sample.rows)
