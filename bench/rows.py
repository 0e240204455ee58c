"""What is measured, and the marks: each is a ratio ours / theirs, or bytes for the connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class Measure(Enum):
    """What a load gives, with its unit."""

    CPU = "CPU µs a message"
    LATENCY = "median µs one way"
    CONNECTION = "bytes a connection"


@dataclass(frozen=True)
class Load:
    """One load on one cluster of each kind.

    arguments   of mqtt_load.py (mqtt_connections.py for a connection), without the count
    count       messages published (connections opened); quick_count with --quick
    marks       peer -> most that ours / theirs may be; None: only shown
    bytes_max   most that our own figure may be, whatever the peers need
    slices      so many runs of count / slices messages make a round, each of every broker in turn: a machine that is disturbed
                for seconds disturbs all of them alike
    """

    name: str
    measure: Measure
    nodes: int
    arguments: tuple[str, ...]
    count: int
    quick_count: int
    marks: dict[str, float | None] = field(default_factory=dict)
    bytes_max: int = 0
    slices: int = 1


# Counts keep the cheapest broker busy for many of the kernel's 10 ms ticks, in which its CPU is told; quick counts are for
# a first look. A broker that works in batches is cheaper the more it finds at each read, so other work on the machine
# flatters it: fan-out was seen from 0.04 (27 kB a read, load average 4) to 0.15 µs. Figures to quote need a quiet machine.
LOADS: Final = (
    Load("10 pairs, QoS 0", Measure.CPU, 1, (), 1_000_000, 300_000, {"mosquitto": 0.35, "nats": 1.5}),
    Load("10 pairs, QoS 1", Measure.CPU, 1, ("--qos", "1"), 400_000, 100_000, {"mosquitto": 0.4}),
    Load(
        "fan-out 1→10, QoS 0",
        Measure.CPU,
        1,
        ("--topology", "fanout"),
        400_000,
        150_000,
        {"mosquitto": 0.2, "nats": 1.0},
    ),
    Load(
        "500 pairs, one message at a time",
        Measure.CPU,
        1,
        ("--clients", "500", "--window", "1", "--block", "1"),
        100_000,
        50_000,
        {"mosquitto": 1.6},
    ),
    Load("two nodes, 10 pairs, QoS 0", Measure.CPU, 2, (), 500_000, 200_000, {"mosquitto": 0.4, "nats": 2.0}),
    Load("two nodes, 10 pairs, QoS 1", Measure.CPU, 2, ("--qos", "1"), 200_000, 50_000, {"mosquitto": 0.5}),
    Load(
        "latency at 2,000/s",
        Measure.LATENCY,
        1,
        ("--latency", "--clients", "1", "--rate", "2000"),
        10_000,
        4_000,
        {"mosquitto": 1.5},
        slices=4,
    ),
    Load(
        "two nodes, latency at 1,000/s",
        Measure.LATENCY,
        2,
        ("--latency", "--clients", "1", "--rate", "1000"),
        8_000,
        4_000,
        {"mosquitto": 1.0},
        slices=4,
    ),
    Load("idle connection, 1 subscription", Measure.CONNECTION, 1, (), 5_000, 2_000, {"mosquitto": None}, 6_000),
)
