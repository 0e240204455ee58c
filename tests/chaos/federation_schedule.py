"""What goes wrong among nodes with stores, and for how long. Drawn from a seed, without I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log
from random import Random
from typing import Final

QUIET_SECONDS: Final = (0.2, 2.0)  # of traffic before a fault
CUT_SECONDS: Final = (0.1, 120.0)  # as many below 3.5 s as above
STILL_SECONDS: Final = (0.1, 40.0)
DOWN_SECONDS: Final = (0.0, 10.0)


class Trouble(StrEnum):
    """KILL             kill -9 of a node
    KILL_ALL         of all nodes at once
    KILL_BESIDE_STILL  of one node while another stands still (SIGSTOP), which goes on when the first is there again
    STILL            a node stands still
    CUT              one or two nodes reach the others no more, nor these them
    RESTART          a node stops with SIGTERM
    """

    KILL = "kill"
    KILL_ALL = "kill of all"
    KILL_BESIDE_STILL = "kill while another stands still"
    STILL = "stands still"
    CUT = "cut"
    RESTART = "stop and start"


@dataclass(frozen=True)
class Incident:
    """quiet_seconds  of traffic before it
    seconds        until what is hit comes back
    nodes          numbers of those that are hit
    """

    trouble: Trouble
    quiet_seconds: float
    seconds: float
    nodes: tuple[int, ...]


def draw_incidents(seed: int, nodes: int, seconds_max: float) -> Iterator[Incident]:
    """Incidents without end, each kind as often as each other; none is longer than seconds_max."""
    random = Random(seed)
    while True:
        for trouble in random.sample(list(Trouble), len(Trouble)):
            low, high = {Trouble.CUT: CUT_SECONDS, Trouble.STILL: STILL_SECONDS}.get(trouble, DOWN_SECONDS)
            high = min(high, seconds_max)
            seconds = random.uniform(low, high) if low == 0 else exp(random.uniform(log(low), log(high)))
            hit = random.sample(range(nodes), 2)
            if trouble is Trouble.KILL_ALL:
                hit = list(range(nodes))
            elif trouble is not Trouble.KILL_BESIDE_STILL and (trouble is not Trouble.CUT or random.random() < 0.5):
                hit = hit[:1]
            yield Incident(trouble, random.uniform(*QUIET_SECONDS), seconds, tuple(hit))
