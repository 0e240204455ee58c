"""What goes wrong among nodes with stores, and for how long. Drawn from a seed, without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log
from random import Random
from typing import Final

QUIET_SECONDS: Final = (0.2, 2.0)  # of traffic before a fault


class Trouble(StrEnum):
    """KILL             kill -9 of a node
    KILL_ALL         of all nodes at once
    KILL_BESIDE_STILL  of one node while another stands still (SIGSTOP), which goes on when the first is there again
    WIPE             kill -9 of a node, whose disk is empty when it is back; all stores were whole
    STILL            a node stands still
    STILL_LONG       for so long that another one adopts its sessions
    CUT              one or two nodes reach the others no more, nor these them
    FULL             the disk of a node takes nothing more
    DRAIN            a node gives its clients and sessions to others
    RESTART          a node stops with SIGTERM
    KILL_WORKER      kill -9 of one worker of a node that has several, twice
    """

    KILL = "kill"
    KILL_ALL = "kill of all"
    KILL_BESIDE_STILL = "kill while another stands still"
    WIPE = "kill and loss of the disk"
    STILL = "stands still"
    STILL_LONG = "stands still until its sessions are adopted"
    CUT = "cut"
    FULL = "full disk"
    DRAIN = "drain"
    RESTART = "stop and start"
    KILL_WORKER = "kill of a worker"


LENGTHS: Final[dict[Trouble, tuple[float, float]]] = {  # seconds; as many below the geometric mean as above
    Trouble.STILL: (0.1, 10.0),
    Trouble.STILL_LONG: (15.0, 40.0),
    Trouble.CUT: (0.1, 120.0),
    Trouble.FULL: (0.5, 15.0),
}
DOWN_SECONDS: Final = (0.0, 10.0)  # of all others
ENDS: Final = {Trouble.FULL: ", then kill", Trouble.DRAIN: ", then stop and start"}
OF_TWO: Final = frozenset((Trouble.KILL_BESIDE_STILL, Trouble.CUT))


@dataclass(frozen=True)
class Incident:
    """quiet_seconds  of traffic before it
    seconds        until what is hit comes back
    nodes          numbers of those that are hit
    is_harder      a full disk or a drain ends with kill -9 or SIGTERM
    """

    trouble: Trouble
    quiet_seconds: float
    seconds: float
    nodes: tuple[int, ...]
    is_harder: bool

    @property
    def end(self) -> str:
        return ENDS.get(self.trouble, "") if self.is_harder else ""


def troubles(with_workers: Sequence[int]) -> list[Trouble]:
    """All kinds that there can be. with_workers: numbers of the nodes that have several workers."""
    return [trouble for trouble in Trouble if with_workers or trouble is not Trouble.KILL_WORKER]


def draw_incidents(seed: int, nodes: int, seconds_max: float, with_workers: Sequence[int] = ()) -> Iterator[Incident]:
    """Incidents without end, each kind as often as each other; none is longer than seconds_max, or the least of its kind."""
    random = Random(seed)
    kinds = troubles(with_workers)
    while True:
        for trouble in random.sample(kinds, len(kinds)):
            low, high = LENGTHS.get(trouble, DOWN_SECONDS)
            high = max(low, min(high, seconds_max))
            seconds = random.uniform(low, high) if low == 0 else exp(random.uniform(log(low), log(high)))
            hit = random.sample(range(nodes), nodes if trouble is Trouble.KILL_ALL else 2 if trouble in OF_TWO else 1)
            if trouble is Trouble.CUT and random.random() < 0.5:
                hit = hit[:1]
            if trouble is Trouble.KILL_WORKER:
                hit = [random.choice(with_workers)]
            yield Incident(trouble, random.uniform(*QUIET_SECONDS), seconds, tuple(hit), random.random() < 0.5)
