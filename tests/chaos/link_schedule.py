"""What goes wrong around a link, and when. Drawn from a seed, without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

QUIET_SECONDS: Final = (0.3, 2.0)  # of traffic before a fault
STILL_SECONDS: Final = (0.0, 30.0)  # some are shorter and some longer than a link, or a node, waits for an answer
DOWN_SECONDS: Final = (0.0, 9.0)  # some are shorter and some longer than the detection of a failed node


class Trouble(StrEnum):
    """UPSTREAM_AWAY  the upstream stops with SIGTERM, and comes back after a while
    UPSTREAM_KILL  kill -9 of the upstream
    UPSTREAM_STILL the upstream stands still (SIGSTOP), and goes on after a while
    NODE_KILL      kill -9 of the node that runs the link
    NODE_STOP      it stops with SIGTERM
    NODE_STILL     it stands still (SIGSTOP), and goes on when another node may have the link
    NODE_LEAVE     it leaves the federation and joins again; its process goes on
    TWO_KILLS      kill -9 of the node that runs the link, and of the one that takes it over
    """

    UPSTREAM_AWAY = "upstream away"
    UPSTREAM_KILL = "kill of the upstream"
    UPSTREAM_STILL = "upstream stands still"
    NODE_KILL = "kill of the link's node"
    NODE_STOP = "stop of the link's node"
    NODE_STILL = "link's node stands still"
    NODE_LEAVE = "leave of the link's node"
    TWO_KILLS = "kills of the link's node and of the next"


OF_NODES: Final = (
    Trouble.NODE_KILL,
    Trouble.NODE_STOP,
    Trouble.NODE_STILL,
    Trouble.NODE_LEAVE,
    Trouble.TWO_KILLS,
)


@dataclass(frozen=True)
class Incident:
    """quiet_seconds  of traffic before it, when all works
    down_seconds   until what is hit comes back
    """

    trouble: Trouble
    quiet_seconds: float
    down_seconds: float


def draw_incidents(seed: int, kills: int, away_seconds: float) -> list[Incident]:
    """`kills` incidents of nodes, each kind as often as each other, one more or less; and each kind of the upstream once."""
    random = Random(seed)
    troubles: list[Trouble] = []
    while len(troubles) < kills:
        troubles += random.sample(OF_NODES, len(OF_NODES))
    troubles = [*troubles[:kills], Trouble.UPSTREAM_AWAY, Trouble.UPSTREAM_KILL, Trouble.UPSTREAM_STILL]
    random.shuffle(troubles)
    ranges = {Trouble.UPSTREAM_AWAY: (away_seconds, away_seconds), Trouble.UPSTREAM_STILL: STILL_SECONDS}
    ranges[Trouble.NODE_STILL] = STILL_SECONDS
    return [
        Incident(trouble, random.uniform(*QUIET_SECONDS), random.uniform(*ranges.get(trouble, DOWN_SECONDS)))
        for trouble in troubles
    ]
