"""The rows of the bench: the generator's command, the figures of its result, and their marks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# Participants. "this" is this checkout, "no log" too, without the row's event log; "other" the commit of --against, "gmqtt"
# the Go broker.
THIS: Final = "this"
NO_LOG: Final = "no log"
OTHER: Final = "other"
MOSQUITTO: Final = "mosquitto"
NATS: Final = "nats"
GMQTT: Final = "gmqtt"
PEERS: Final = (MOSQUITTO, NATS, GMQTT)
OTHER_RATIO_MAX: Final = 1.1


@dataclass(frozen=True)
class Figure:
    """One value of a slice.

    key     path in the generator's result: "a.b" is b in a; the values of several processes, "a[0]" and "a[1]", are added
    marks   participant -> largest ratio of this checkout to it; a participant without a mark is shown, not judged
    limit   largest value of any slice of this checkout
    """

    key: str
    unit: str
    marks: Mapping[str, float] = field(default_factory=dict)
    limit: float = math.inf


@dataclass(frozen=True)
class Row:
    """One load.

    command       of the generator; `run_bench.places` replaces {first}, {last} …
    count         {count} of the first slice, which is not measured; later slices last --seconds. A generator whose result
                  has no "seconds" gets the same count in every slice.
    beside        participants that are measured alternately with this checkout
    starts_anew   brokers start again for each slice, because a slice changes the result of the next one
    transport     of a listener beside that of TCP, at {layered}: tls, ws; "" for none
    log           `sync` of this checkout's event log; "" for none
    has_store     this checkout keeps sessions and their messages in SQLite
    joins_late    the second node joins the first one during the slice
    rounds_max    most rounds, for rows whose slices take long
    """

    name: str
    command: str
    count: int
    figures: tuple[Figure, ...]
    beside: tuple[str, ...] = (OTHER, MOSQUITTO, GMQTT)
    nodes: int = 1
    starts_anew: bool = False
    joins_late: bool = False
    rounds_max: int = 1000
    log: str = ""
    transport: str = ""
    has_store: bool = False


LOAD: Final = "mqtt_load.py --pub {first} --sub {last} --settle {settle} --messages {count} {pids}"
CONNECTIONS: Final = "mqtt_connections.py --to {first} --connections {count} {pids}"
STALL: Final = "mqtt_stall.py --first {first} --last {last} --http {http} --gossip {gossip} --count {count}"
SINGLY: Final = "--clients 500 --window 1 --block 1"
ONE_AT_A_TIME: Final = f"{LOAD} {SINGLY}"
LAYERED: Final = (
    "mqtt_load.py --pub {layered} --sub {layered} --transport {transport} --cacert {cacert} --settle {settle} "
    "--messages {count} {pids}"
)
LATENCY: Final = f"{LOAD} --latency --clients 1"
WITH_NATS: Final = (OTHER, MOSQUITTO, NATS, GMQTT)


def cpu(**marks: float) -> tuple[Figure, ...]:
    """CPU of all processes of a broker, user and system, with the largest ratio to each peer."""
    return (Figure("cpu_us_per_msg", "CPU µs a message", {OTHER: OTHER_RATIO_MAX, **marks}),)


def logged(ratio_max: float, **marks: float) -> tuple[Figure, ...]:
    """CPU of a broker with its event log, with the largest ratio to the same broker without it."""
    return (Figure("cpu_us_per_msg", "CPU µs a message", {NO_LOG: ratio_max, **marks}),)


def one_way(**marks: float) -> tuple[Figure, ...]:
    """Time from the moment when a message is due to its arrival. The marks apply to the median."""
    return (Figure("latency_us.p50", "median µs", marks), Figure("latency_us.p99", "p99 µs"))


def stall(name: str, case: str, count: int, joins_late: bool = False) -> Row:
    """A row of mqtt_stall.py: how long other clients wait for PINGRESP."""
    figures = (
        Figure("ping_ms.max", "PINGREQ ms, longest", limit=250),
        Figure("ping_ms.p99", "PINGREQ ms, p99"),
        Figure("not_alive_s", "s not ALIVE", limit=0),
    )
    return Row(name, f"{STALL} {case}", count, figures, (), 2, True, joins_late, rounds_max=3)


ROWS: Final = (
    Row("10 pairs, QoS 0", LOAD, 100_000, cpu(mosquitto=0.35, nats=1.5), WITH_NATS),
    Row("10 pairs, QoS 1", f"{LOAD} --qos 1", 40_000, cpu(mosquitto=0.4)),
    Row("10 pairs, QoS 0, logged, sync none", LOAD, 100_000, logged(1.8), (NO_LOG,), log="none"),
    Row("10 pairs, QoS 0, logged, sync commit", LOAD, 100_000, logged(1.8), (NO_LOG,), log="commit"),
    Row(
        "10 pairs, QoS 1, logged, sync commit",
        f"{LOAD} --qos 1",
        20_000,
        logged(2.0, nats=0.3),
        (NO_LOG, NATS),
        log="commit",
    ),
    # NATS writes each message to its stream, and syncs every two minutes; SQLite syncs each group.
    Row(
        "10 pairs, QoS 1, durable subscribers",
        f"{LOAD} --qos 1 --durable",
        20_000,
        (Figure("cpu_us_per_msg", "CPU µs a message", {NATS: 0.4}),),
        (NATS,),
        has_store=True,
    ),
    Row(
        "latency at 1,000/s, QoS 1, durable subscriber",
        f"{LATENCY} --rate 1000 --qos 1 --durable",
        1_500,
        one_way(),
        (NATS,),
        has_store=True,
    ),
    Row("10 pairs, QoS 0, 4 kB", f"{LOAD} --size 4096", 20_000, cpu()),
    Row("fan-out 1→10, QoS 0", f"{LOAD} --topology fanout", 30_000, cpu(mosquitto=0.2, nats=1.0), WITH_NATS),
    Row("fan-out 1→10, QoS 1", f"{LOAD} --topology fanout --qos 1", 5_000, cpu()),
    Row("fan-in 10→1, QoS 0", f"{LOAD} --topology fanin", 100_000, cpu()),
    Row("500 pairs, one at a time, QoS 0", ONE_AT_A_TIME, 10_000, cpu(mosquitto=1.6)),
    Row("500 pairs, one at a time, QoS 1", f"{ONE_AT_A_TIME} --qos 1", 5_000, cpu()),
    Row("two nodes, 10 pairs, QoS 0", LOAD, 50_000, cpu(mosquitto=0.4, nats=2.0), WITH_NATS, nodes=2),
    Row("two nodes, 10 pairs, QoS 1", f"{LOAD} --qos 1", 20_000, cpu(mosquitto=0.5), nodes=2),
    Row("two nodes, 500 pairs, one at a time, QoS 0", ONE_AT_A_TIME, 5_000, cpu(), nodes=2),
    Row("latency at 2,000/s", f"{LATENCY} --rate 2000", 3_000, one_way(mosquitto=1.5)),
    Row("two nodes, latency at 1,000/s", f"{LATENCY} --rate 1000", 1_500, one_way(mosquitto=1.15), nodes=2),
    Row(
        "idle connections, 1 subscription each",
        CONNECTIONS,
        5_000,
        (
            Figure("cpu_us_per_connect", "CPU µs to connect and subscribe", {OTHER: OTHER_RATIO_MAX}),
            Figure("bytes_per_connection", "bytes", limit=6_000),
        ),
        starts_anew=True,
        rounds_max=10,
    ),
    Row("TLS, 10 pairs, QoS 0", LAYERED, 100_000, cpu(mosquitto=0.12), (OTHER, MOSQUITTO), transport="tls"),
    Row("TLS, 10 pairs, QoS 1", f"{LAYERED} --qos 1", 40_000, cpu(mosquitto=0.3), (OTHER, MOSQUITTO), transport="tls"),
    Row(
        "TLS, 500 pairs, one at a time, QoS 0",
        f"{LAYERED} {SINGLY}",
        10_000,
        cpu(mosquitto=1.6),
        (OTHER, MOSQUITTO),
        transport="tls",
    ),
    Row("WebSocket, 10 pairs, QoS 0", LAYERED, 100_000, cpu(mosquitto=0.12), (OTHER, MOSQUITTO), transport="ws"),
    Row(
        "WebSocket, 10 pairs, QoS 1",
        f"{LAYERED} --qos 1",
        40_000,
        cpu(mosquitto=0.3),
        (OTHER, MOSQUITTO),
        transport="ws",
    ),
    Row(
        "WebSocket, 500 pairs, one at a time, QoS 0",
        f"{LAYERED} {SINGLY}",
        10_000,
        cpu(mosquitto=1.8),
        (OTHER, MOSQUITTO),
        transport="ws",
    ),
    Row(
        "TLS, idle connections, 1 subscription each",
        "mqtt_connections.py --to {layered} --transport {transport} --cacert {cacert} --connections {count} {pids}",
        1_000,
        (
            Figure("cpu_us_per_connect", "CPU µs to connect and subscribe", {MOSQUITTO: 1.4}),
            Figure("bytes_per_connection", "bytes", limit=26_000),
        ),
        (MOSQUITTO,),
        starts_anew=True,
        rounds_max=5,
        transport="tls",
    ),
    stall("stall: 8,192 filters match each message", "filters", 8_192),
    stall("stall: `#` with 100,000 retained messages", "retained", 100_000),
    stall("stall: a session with 50,000 subscriptions ends", "session", 50_000),
    stall("stall: a node joins and gets all of them", "full-state", 50_000, joins_late=True),
)
