"""The rows of the bench: the generator's command, the figures of its result, and their marks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# Participants. "this" is this checkout, and so are others: "no log" without the row's event log, "3.1.1" with clients of
# MQTT 3.1.1 instead of 5, "few" with FEW subscriptions instead of MANY, "no link" without the row's link, "no tls" without the
# row's TLS between nodes, "one copy" with each store on one node alone. "other" is the commit of --against, "gmqtt" the Go
# broker, "nats, 3 replicas" a cluster of three servers instead of one.
THIS: Final = "this"
NO_LOG: Final = "no log"
V311: Final = "3.1.1"
FEW: Final = "few"
NO_LINK: Final = "no link"
NO_TLS: Final = "no tls"
ONE_COPY: Final = "one copy"
OURS: Final = (THIS, NO_LOG, V311, FEW, NO_LINK, NO_TLS, ONE_COPY)
OTHER: Final = "other"
MOSQUITTO: Final = "mosquitto"
NATS: Final = "nats"
NATS_3: Final = "nats, 3 replicas"
GMQTT: Final = "gmqtt"
RABBITMQ: Final = "rabbitmq"
NULL_RELAY: Final = "null relay"  # null_relay.c: what the kernel takes for the same bytes
PEERS: Final = (MOSQUITTO, NATS, NATS_3, GMQTT, RABBITMQ, NULL_RELAY)
OTHER_RATIO_MAX: Final = 1.1
# Links of a row between two clusters of one node each.
PAIR: Final = "pair"  # the second one has a link to the first one
AWAY: Final = "away"  # the same, and the first one is not there
MANY: Final = "many"  # the second one has many links to the first one; the generator starts and stops it
SECURED_RATIO_MAX: Final = 1.15  # to a commit without accounts, rules and metrics


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
    node_tls      nodes of this checkout have TLS between them
    has_store     this checkout, and another commit of it, keeps sessions and their messages in SQLite
    secured       participants with accounts and topic rules, this checkout with metrics too; {login} is then that of an account
    links         PAIR, AWAY or MANY; "" for none
    nats_servers  number of those, 0 for `nodes`
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
    node_tls: bool = False
    has_store: bool = False
    secured: tuple[str, ...] = ()
    links: str = ""
    nats_servers: int = 0


LOAD: Final = "mqtt_load.py --pub {first} --sub {last} --settle {settle} --messages {count} {login} {raw} {pids}"
FLEET: Final = "mqtt_fleet.py --pub {first} --sub {last} --settle {settle} --messages {count} {pids}"
OFFLINE: Final = "mqtt_offline.py --pub {first} --sub {last} --settle {settle} --messages {count} {pids}"
CONNECTIONS: Final = "mqtt_connections.py --to {first} --connections {count} {pids}"
SUBSCRIPTIONS: Final = (
    "mqtt_subscriptions.py --to {first} --subscriptions {subscriptions} --messages {count} {login} {pids}"
)
STALL: Final = "mqtt_stall.py --first {first} --last {last} --http {http} --gossip {gossip} --count {count}"
SINGLY: Final = "--clients 500 --window 1 --block 1"
ONE_AT_A_TIME: Final = f"{LOAD} {SINGLY}"
LAYERED: Final = (
    "mqtt_load.py --pub {layered} --sub {layered} --transport {transport} --cacert {cacert} --settle {settle} "
    "--messages {count} {login} {pids}"
)
LATENCY: Final = f"{LOAD} --latency --clients 1"
LOCAL_LATENCY: Final = (
    "--pub {last} --sub {last} --settle {settle} --messages {count} --latency --clients 1 --rate 1000 {pids}"
)
UPSTREAMS: Final = 10
POLICIES: Final = 100
WITH_NATS: Final = (OTHER, MOSQUITTO, NATS, GMQTT)
WITH_RELAY: Final = (OTHER, MOSQUITTO, GMQTT, NULL_RELAY)
WITH_MOSQUITTO: Final = (OTHER, MOSQUITTO)
SECURED: Final = (THIS,)
CONNECT_UNIT: Final = "CPU µs to connect and subscribe"


def cpu(**marks: float) -> tuple[Figure, ...]:
    """CPU of all processes of a broker, user and system, with the largest ratio to each peer."""
    return (Figure("cpu_us_per_msg", "CPU µs a message", {OTHER: OTHER_RATIO_MAX, **marks}),)


def logged(ratio_max: float, **marks: float) -> tuple[Figure, ...]:
    """CPU of a broker with its event log, with the largest ratio to the same broker without it."""
    return (Figure("cpu_us_per_msg", "CPU µs a message", {NO_LOG: ratio_max, **marks}),)


def between_nodes() -> tuple[Figure, ...]:
    """CPU of two nodes with TLS between them, with the largest ratio to the same nodes without it."""
    return (Figure("cpu_us_per_msg", "CPU µs a message", {NO_TLS: 1.3}),)


def one_way(p99: float = math.inf, **marks: float) -> tuple[Figure, ...]:
    """Time from the moment when a message is due to its arrival. `marks` are of the median, `p99` is one beside mosquitto."""
    return (
        Figure("latency_us.p50", "median µs", marks),
        Figure("latency_us.p99", "p99 µs", {MOSQUITTO: p99} if p99 < math.inf else {}),
    )


def secured(load: str, command: str, count: int, **marks: float) -> Row:
    """A load with accounts, topic rules and metrics at this checkout, beside others that have none."""
    figures = (Figure("cpu_us_per_msg", "CPU µs a message", {OTHER: SECURED_RATIO_MAX, **marks}),)
    return Row(f"secured, {load}", command, count, figures, WITH_MOSQUITTO, secured=SECURED)


def over(
    name: str, transport: str, load: str, command: str, count: int, mosquitto: float, rounds_max: int = 1000
) -> Row:
    """A load over another transport."""
    figures = cpu(mosquitto=mosquitto)
    text = f"{name}, {load}"
    return Row(
        text, command, count, figures, WITH_MOSQUITTO, 1, False, False, rounds_max, "", transport, secured=SECURED
    )


def fleet(name: str, nodes: int, qos: int, mqtt5: bool) -> Row:
    """Gateways of 100 devices each: another topic and another length from message to message. The aim beside peers is shown in
    docs/performance.md, and judged nowhere. NATS has no MQTT 5, and its QoS 1 is on disk; mosquitto lets a publisher of MQTT 5
    have 20 messages on the way."""
    command = FLEET + (" --qos 1" if qos else "") + (" --mqtt5" if mqtt5 else "")
    peers = (OTHER, MOSQUITTO, NATS) if not mqtt5 else (OTHER, MOSQUITTO) if not qos else (OTHER,)
    text = f"{name}, 100 devices each, QoS {qos}" + (", MQTT 5 with a user property" if mqtt5 else "")
    return Row(text, command, 20_000 if qos else 50_000, cpu(), peers, nodes)


def stall(name: str, case: str, count: int, joins_late: bool = False) -> Row:
    """A row of mqtt_stall.py: how long other clients wait for PINGRESP."""
    figures = (
        Figure("ping_ms.max", "PINGREQ ms, longest", limit=250),
        Figure("ping_ms.p99", "PINGREQ ms, p99"),
        Figure("not_alive_s", "s not ALIVE", limit=0),
    )
    return Row(name, f"{STALL} {case}", count, figures, (), 2, True, joins_late, rounds_max=3)


ROWS: Final = (
    Row("10 pairs, QoS 0", LOAD, 100_000, cpu(mosquitto=0.35, nats=1.5), (*WITH_NATS, NULL_RELAY)),
    Row("10 pairs, QoS 1", f"{LOAD} --qos 1", 40_000, cpu(mosquitto=0.4), WITH_RELAY),
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
        secured=SECURED,
    ),
    Row(
        "latency at 1,000/s, QoS 1, durable subscriber",
        f"{LATENCY} --rate 1000 --qos 1 --durable",
        1_500,
        one_way(),
        (NATS,),
        has_store=True,
        secured=SECURED,
    ),
    Row("10 pairs, QoS 0, 4 kB", f"{LOAD} --size 4096", 20_000, cpu()),
    Row("fan-out 1→10, QoS 0", f"{LOAD} --topology fanout", 30_000, cpu(mosquitto=0.2, nats=1.0), WITH_NATS),
    Row("fan-out 1→10, QoS 1", f"{LOAD} --topology fanout --qos 1", 5_000, cpu()),
    Row("fan-in 10→1, QoS 0", f"{LOAD} --topology fanin", 100_000, cpu()),
    Row("500 pairs, one at a time, QoS 0", ONE_AT_A_TIME, 10_000, cpu(mosquitto=1.6), WITH_RELAY),
    Row("500 pairs, one at a time, QoS 1", f"{ONE_AT_A_TIME} --qos 1", 5_000, cpu(), WITH_RELAY),
    *(
        fleet(name, nodes, qos, mqtt5)
        for name, nodes in (("fleet", 1), ("two nodes, fleet", 2))
        for qos, mqtt5 in ((0, False), (1, False), (0, True), (1, True))
    ),
    Row("two nodes, 10 pairs, QoS 0", LOAD, 50_000, cpu(mosquitto=0.4, nats=2.0), WITH_NATS, nodes=2),
    Row("two nodes, 10 pairs, QoS 1", f"{LOAD} --qos 1", 20_000, cpu(mosquitto=0.5), nodes=2),
    Row("two nodes with stores, 10 pairs, QoS 1", f"{LOAD} --qos 1", 20_000, cpu(), nodes=2, has_store=True),
    # NATS syncs every two minutes, here each commit is synced on both nodes.
    Row(
        "two nodes, copies 2, QoS 1 for offline durable sessions",
        OFFLINE,
        20_000,
        (
            Figure("cpu_us_per_msg", "CPU µs a message", {NATS: 0.5, NATS_3: 0.25}),
            Figure("read_us_per_msg", "CPU µs a message that is read later"),
        ),
        (OTHER, ONE_COPY, NATS, NATS_3),
        nodes=2,
        has_store=True,
        nats_servers=1,
    ),
    Row("two nodes, 10 shared groups, QoS 1", f"{LOAD} --qos 1 --share", 20_000, cpu(), (OTHER,), nodes=2),
    Row("two nodes, 500 pairs, one at a time, QoS 0", ONE_AT_A_TIME, 5_000, cpu(), nodes=2),
    *(
        Row(f"two nodes, TLS between, {load}", command, count, between_nodes(), (NO_TLS,), nodes=2, node_tls=True)
        for load, command, count in (
            ("10 pairs, QoS 0", LOAD, 50_000),
            ("10 pairs, QoS 1", f"{LOAD} --qos 1", 20_000),
            ("500 pairs, one at a time, QoS 0", ONE_AT_A_TIME, 5_000),
        )
    ),
    Row(
        "links, 10 pairs, QoS 0",
        LOAD,
        50_000,
        cpu(mosquitto=0.25, rabbitmq=0.03),
        (OTHER, MOSQUITTO, RABBITMQ),
        nodes=2,
        links=PAIR,
    ),
    Row(
        "links, 10 pairs, QoS 1",
        f"{LOAD} --qos 1",
        20_000,
        cpu(mosquitto=0.35, rabbitmq=0.03),
        (OTHER, MOSQUITTO, RABBITMQ),
        nodes=2,
        links=PAIR,
    ),
    Row(
        "links, 10 pairs, QoS 1, durable subscribers, both nodes with SQLite",
        f"{LOAD} --qos 1 --durable",
        10_000,
        (Figure("cpu_us_per_msg", "CPU µs a message"),),
        (),
        nodes=2,
        has_store=True,
        links=PAIR,
    ),
    Row(
        "links, 10 upstreams and 100 policies",
        "mqtt_links.py --upstream {first} {later}",
        UPSTREAMS,
        (
            Figure("start_s", "s from the start until all policies work", limit=20.0),
            Figure("idle_percent", "% CPU while nothing is sent", limit=2.0),
            Figure("stop_s", "s to stop", limit=10.0),
        ),
        (),
        starts_anew=True,
        rounds_max=3,
        links=MANY,
    ),
    Row(
        "links, interest of 100,000 subscriptions",
        "mqtt_interest.py --upstream {first} --downstream {last} --subscriptions {count}",
        100_000,
        (
            Figure("all_s", "s until the upstream has all", limit=5.0),
            Figure("change_ms.max", "ms until it has one more, longest", limit=100.0),
            Figure("change_ms.p50", "ms until it has one more, median"),
        ),
        (),
        nodes=2,
        starts_anew=True,
        rounds_max=3,
        links=PAIR,
    ),
    Row(
        "links, local latency at 1,000/s beside a busy link",
        f"mqtt_beside.py {{busy}} -- {LOCAL_LATENCY}",
        1_500,
        one_way(**{NO_LINK: 1.2}),
        (NO_LINK,),
        nodes=2,
        links=PAIR,
    ),
    Row(
        "links, local latency at 1,000/s, upstream away",
        f"mqtt_load.py {LOCAL_LATENCY}",
        1_500,
        one_way(**{NO_LINK: 1.2}),
        (NO_LINK,),
        links=AWAY,
    ),
    Row("latency at 2,000/s", f"{LATENCY} --rate 2000", 3_000, one_way(mosquitto=1.5)),
    Row("two nodes, latency at 1,000/s", f"{LATENCY} --rate 1000", 1_500, one_way(mosquitto=1.15), nodes=2),
    Row(
        *("two nodes with stores, latency at 1,000/s, QoS 1", f"{LATENCY} --rate 1000 --qos 1", 1_500, one_way()),
        nodes=2,
        has_store=True,
    ),
    Row(
        "idle connections, 1 subscription each",
        CONNECTIONS,
        5_000,
        (
            Figure("cpu_us_per_connect", CONNECT_UNIT, {OTHER: OTHER_RATIO_MAX, MOSQUITTO: 1.25}),
            Figure("bytes_per_connection", "bytes", {OTHER: 1.05}, limit=6_000),
        ),
        starts_anew=True,
        rounds_max=10,
    ),
    Row(
        "two nodes, connections, 1 subscription each",
        CONNECTIONS,
        5_000,
        (
            Figure("cpu_us_per_connect", CONNECT_UNIT, {OTHER: 1.33}),
            Figure("us_per_connect", "µs to connect and subscribe, 100 at a time", {OTHER: 1.33}),
        ),
        (OTHER,),
        nodes=2,
        starts_anew=True,
        rounds_max=10,
    ),
    Row(
        "two nodes with stores, take-over of a session with 1,000 messages",
        "mqtt_takeover.py --nodes {first} {last} --messages {count}",
        1_000,
        (
            Figure("whole_ms.max", "ms to the last message, longest of 10", limit=200),
            Figure("whole_ms.p50", "ms to the last message, median"),
            Figure("connack_ms.p50", "ms to CONNACK, median"),
            Figure("repeated", "messages that came twice", limit=0),
        ),
        (),
        nodes=2,
        has_store=True,
        rounds_max=5,
    ),
    Row(
        "two nodes with stores, drain of a node with 10,000 connected durable clients",
        "mqtt_drain.py --drained {last} --to {first} --http {http} --clients {count}",
        10_000,
        (
            Figure("drained_s", "s until it is drained", limit=60),
            Figure("away_s.max", "s that a client is away, longest", limit=2),
            Figure("away_s.p50", "s that a client is away, median"),
            Figure("sessions_lost", "sessions that were not there", limit=0),
            Figure("stayed", "clients that were not closed", limit=0),
        ),
        (),
        nodes=2,
        has_store=True,
        starts_anew=True,
        rounds_max=3,
    ),
    secured("10 pairs, QoS 0", LOAD, 100_000, mosquitto=0.1),
    secured("10 pairs, QoS 1", f"{LOAD} --qos 1", 40_000, mosquitto=0.2),
    secured("fan-out 1→10, QoS 0", f"{LOAD} --topology fanout", 30_000, mosquitto=0.08),
    secured("fan-out 1→10, QoS 1", f"{LOAD} --topology fanout --qos 1", 5_000, mosquitto=0.2),
    secured("fan-in 10→1, QoS 0", f"{LOAD} --topology fanin", 100_000, mosquitto=0.15),
    secured("fan-in 10→1, QoS 1", f"{LOAD} --topology fanin --qos 1", 40_000, mosquitto=0.2),
    secured("500 pairs, one at a time, QoS 0", ONE_AT_A_TIME, 10_000, mosquitto=1.15),
    secured("500 pairs, one at a time, QoS 1", f"{ONE_AT_A_TIME} --qos 1", 5_000, mosquitto=1.25),
    Row(
        "secured, latency at 2,000/s",
        f"{LATENCY} --rate 2000",
        3_000,
        one_way(p99=1.3),
        WITH_MOSQUITTO,
        secured=SECURED,
    ),
    Row(
        "secured, anonymous connections, 1 subscription each",
        CONNECTIONS,
        5_000,
        (
            Figure("cpu_us_per_connect", CONNECT_UNIT, {MOSQUITTO: 1.25}),
            Figure("bytes_per_connection", "bytes", {OTHER: 1.05}),
        ),
        WITH_MOSQUITTO,
        starts_anew=True,
        rounds_max=10,
        secured=SECURED,
    ),
    Row(
        "secured, logins, 1 subscription each",
        f"{CONNECTIONS} {{login}}",
        5_000,
        (Figure("cpu_us_per_connect", CONNECT_UNIT), Figure("bytes_per_connection", "bytes")),
        (MOSQUITTO,),
        starts_anew=True,
        rounds_max=10,
        secured=(THIS, MOSQUITTO),
    ),
    Row(
        "MQTT 5 with two user properties, 10 pairs, QoS 0",
        f"{LOAD} {{version}}",
        60_000,
        cpu(),
        (V311, *WITH_MOSQUITTO),
        secured=(THIS, V311),
    ),
    Row(
        "MQTT 5 with two user properties, 10 pairs, QoS 1",
        f"{LOAD} {{version}} --qos 1",
        30_000,
        (Figure("cpu_us_per_msg", "CPU µs a message", {OTHER: SECURED_RATIO_MAX, V311: 1.5}),),
        (V311, OTHER),  # mosquitto lets a publisher of MQTT 5 have 20 messages on the way
        secured=(THIS, V311),
    ),
    Row(
        "1,000,000 subscriptions with wildcards",
        SUBSCRIPTIONS,
        50_000,
        (
            Figure("cpu_us_per_miss", "CPU µs of a cache miss", {FEW: 3.0}),
            Figure("cpu_us_per_hit", "CPU µs of a message in the cache"),
            Figure("bytes_per_subscription", "bytes", limit=1_000),
        ),
        (FEW,),
        starts_anew=True,
        rounds_max=3,
        secured=(THIS, FEW),
    ),
    over("TLS", "tls", "10 pairs, QoS 0", LAYERED, 100_000, 0.12),
    over("TLS", "tls", "10 pairs, QoS 1", f"{LAYERED} --qos 1", 40_000, 0.3),
    over("TLS", "tls", "500 pairs, one at a time, QoS 0", f"{LAYERED} {SINGLY}", 10_000, 1.6),
    over("WebSocket", "ws", "10 pairs, QoS 0", LAYERED, 100_000, 0.12),
    over("WebSocket", "ws", "10 pairs, QoS 1", f"{LAYERED} --qos 1", 40_000, 0.3),
    # mosquitto takes minutes for a thousand handshakes
    over("WebSocket", "ws", "500 pairs, one at a time, QoS 0", f"{LAYERED} {SINGLY}", 10_000, 1.8, rounds_max=3),
    Row(
        "TLS, idle connections, 1 subscription each",
        "mqtt_connections.py --to {layered} --transport {transport} --cacert {cacert} --connections {count} {pids}",
        1_000,
        (
            Figure("cpu_us_per_connect", CONNECT_UNIT, {MOSQUITTO: 1.4}),
            Figure("bytes_per_connection", "bytes", limit=26_000),
        ),
        (MOSQUITTO,),
        starts_anew=True,
        rounds_max=5,
        transport="tls",
    ),
    Row(
        "secured, pauses with 10,000 sessions",
        "mqtt_stall.py sessions --first {first} --last {last} --http {http} --metrics {metrics} --count {count} {login}",
        10_000,
        (Figure("ping_ms.max", "PINGREQ ms, longest", limit=10), Figure("ping_ms.p99", "PINGREQ ms, p99")),
        (),
        starts_anew=True,
        rounds_max=5,
        secured=SECURED,
    ),
    stall("stall: 8,192 filters match each message", "filters", 8_192),
    stall("stall: `#` with 100,000 retained messages", "retained", 100_000),
    stall("stall: a session with 50,000 subscriptions ends", "session", 50_000),
    stall("stall: a node joins and gets all of them", "full-state", 50_000, joins_late=True),
)
