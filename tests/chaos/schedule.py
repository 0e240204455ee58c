"""Which process a chaos run kills, and when. Drawn from a seed, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

DOWN_SECONDS_MAX: Final = 3.0


class Victim(StrEnum):
    """What a kill -9 hits.

    ARCHIVE_DRIVER  what reads: the Spark driver of the archive, its JVM, its Python and all that is in their process group
    SINK_DRIVER     that of the query that writes through the sink
    WORKER          one Python worker of a Spark driver; Spark tries its task again
    PLANNER         the Python process that plans the batches of a query; Spark ends the query, which is started again
    NODE            a node
    SINK_NODE       the node on which the sink stages and publishes
    """

    ARCHIVE_DRIVER = "archive driver"
    SINK_DRIVER = "sink driver"
    WORKER = "Python worker"
    PLANNER = "planning process"
    NODE = "node"
    SINK_NODE = "staging node"


class Reader(StrEnum):
    """What reads the logs to their ends.

    SOURCE    the data source `mqtt` in a stream, as the job `archive` runs it
    PUSHDOWN  the data source in batches, with filters that are pushed down
    KAFKA     Spark's Kafka source in a stream, on the plugin `kafka`
    REPLAY    an MQTT client with a subscription to `$stream/`
    """

    SOURCE = "source"
    PUSHDOWN = "pushdown"
    KAFKA = "kafka"
    REPLAY = "replay"


# What a kill may hit while a reader works without the sink.
OWN_VICTIMS: Final = {
    Reader.PUSHDOWN: (Victim.ARCHIVE_DRIVER, Victim.WORKER, Victim.NODE),
    Reader.KAFKA: (Victim.ARCHIVE_DRIVER, Victim.NODE),
    Reader.REPLAY: (Victim.ARCHIVE_DRIVER, Victim.NODE),
}


@dataclass(frozen=True)
class Kill:
    """wait_seconds  from when everything runs again to the kill
    choice           0 to 1, picks one of several candidates
    down_seconds     until the victim is started again
    """

    victim: Victim
    wait_seconds: float
    choice: float
    down_seconds: float


@dataclass(frozen=True)
class Plan:
    """rate          messages a second
    has_sink       whether a query writes through the sink, beside the archive
    waits          whether a kill waits until all works again after the one before
    kill_wait_max  seconds to the next kill, at most
    """

    seed: int
    kills: int
    messages: int
    rate: float
    nodes: int = 3
    has_sink: bool = True
    waits: bool = True
    kill_wait_max: float = 4.0
    victims: tuple[Victim, ...] = tuple(Victim)
    reader: Reader = Reader.SOURCE


def draw_kills(seed: int, count: int, wait_seconds_max: float, kinds: Sequence[Victim] = tuple(Victim)) -> list[Kill]:
    """`count` kills in random order; of each kind as many as of each other, one more or less."""
    random = Random(seed)
    victims: list[Victim] = []
    while len(victims) < count:
        round_ = list(kinds)
        random.shuffle(round_)
        victims += round_
    victims = victims[:count]
    random.shuffle(victims)
    return [
        Kill(victim, random.uniform(0.0, wait_seconds_max), random.random(), random.uniform(0.0, DOWN_SECONDS_MAX))
        for victim in victims
    ]
