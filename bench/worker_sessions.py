"""Durable sessions of a node with workers: what it costs that a client connects to another worker than before, and a fleet that
connects again and again.

The session follows its client. Each answer must say that the session was there, and each message must come once at least.
"""

from __future__ import annotations

import argparse
import random
import socket
import statistics
import time
from pathlib import Path
from typing import Any, Final

from mqtt_load import connect_packet, cpu_seconds, log_in, one_publish, open_client, open_socket, read_packet, subscribe
from mqtt_offline import leave
from mqtt_takeover import publish
from worker_node import Node

EMPTY_MS_MAX: Final = 5.0  # p50 from CONNECT to CONNACK, with an empty queue
OWN_MIB_MAX: Final = 35.0  # of a worker at idle, beside what it shares
QUEUE: Final = 1_000
WHOLE: Final = b"\x01\x00"  # of CONNACK: the session is present, accepted


def own_mib(process: int) -> float:
    """Memory that no other process has: that of modules is shared."""
    rows = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(row.split()[1]) for row in rows if row.startswith("Private_")) / 1024


def proportional_mib(process: int) -> float:
    rows = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("Pss:")) / 1024


def socket_at(node: Node, worker: int) -> socket.socket:
    """A connection without a CONNECT at the worker with this index."""
    while True:
        sock = open_socket(("127.0.0.1", node.port), "socket")
        if node.worker_of(sock, wait=True) == worker:
            return sock
        sock.close()


def take_over(sock: socket.socket, client_id: str, waiting: int) -> tuple[float, float]:
    """Connect, and read what waits. Returns ms until CONNACK, and until the last message."""
    begun = time.perf_counter()
    sock.sendall(connect_packet(client_id, is_clean=False))
    first, body = read_packet(sock)
    known = time.perf_counter()
    if first != 0x20 or body != WHOLE:
        raise SystemExit(f"{client_id}: the session is not there: {first:#x} {body.hex()}")
    numbers: set[int] = set()
    while len(numbers) < waiting:
        first, body = read_packet(sock)
        id_at = 2 + int.from_bytes(body[:2], "big")
        sock.sendall(b"\x40\x02" + body[id_at : id_at + 2])
        numbers.add(int(body[id_at + 2 :]))
    return (known - begun) * 1e3, (time.perf_counter() - begun) * 1e3


def moves(node: Node, apart: int, waiting: int, count: int) -> dict[str, Any]:
    """`count` times a client connects again, to the worker that is so many further than the one with its session."""
    client_id, topic = f"mover-{apart}-{waiting}", f"mover/{apart}/{waiting}"
    sock = socket_at(node, 0)
    log_in(sock, client_id, is_clean=False)
    subscribe(sock, topic, 1)
    known: list[float] = []
    whole: list[float] = []
    cpu = 0.0
    worker = 0
    for _ in range(count):
        leave(sock)
        if waiting:
            publish(f"127.0.0.1:{node.port}", topic, waiting)
        worker = (worker + apart) % node.workers
        sock = socket_at(node, worker)
        before = cpu_seconds(node.processes)
        to_connack, to_last = take_over(sock, client_id, waiting)
        cpu += cpu_seconds(node.processes) - before
        known.append(to_connack)
        whole.append(to_last)
    leave(sock)
    return {
        "workers_apart": apart,
        "waiting": waiting,
        "connack_ms": spread(known),
        "last_message_ms": spread(whole),
        "cpu_ms": round(cpu * 1e3 / count, 2),
    }


def spread(values: list[float]) -> dict[str, float]:
    return {"p50": round(statistics.median(values), 2), "max": round(max(values), 2)}


def fleet(node: Node, connections: int, reconnects: int, seed: int) -> dict[str, Any]:
    """Durable clients of which some connect again. Messages go to clients that are away, and to all at the end."""
    draw = random.Random(seed)
    at = ("127.0.0.1", node.port)
    begun = time.perf_counter()
    socks: list[socket.socket] = []
    for number in range(connections):
        sock = open_socket(at, f"fleet-{number}")
        log_in(sock, f"fleet-{number}", is_clean=False)
        subscribe(sock, f"fleet/{number}", 1)
        socks.append(sock)
    connected = time.perf_counter() - begun
    publisher = open_client(at, "fleet-publisher")
    begun, before = time.perf_counter(), cpu_seconds(node.processes)
    for _ in range(reconnects):
        number = draw.randrange(connections)
        leave(socks[number])
        publish_one(publisher, number)
        sock = socks[number] = open_socket(at, f"fleet-{number}")
        take_over(sock, f"fleet-{number}", 1)
    seconds, cpu = time.perf_counter() - begun, cpu_seconds(node.processes) - before
    counts = [0] * node.workers
    for number, sock in enumerate(socks):
        publish_one(publisher, number)
        first, body = read_packet(sock)
        if first >> 4 != 3 or int(body[-1:]) != 0:
            raise SystemExit(f"fleet-{number}: {first:#x} {body.hex()} in place of its message")
    for sock in random.Random(seed).sample(socks, min(200, connections)):
        counts[node.worker_of(sock)] += 1
    for sock in (*socks, publisher):
        sock.close()
    return {
        "connections": connections,
        "reconnects": reconnects,
        "connect_seconds": round(connected, 1),
        "reconnect_ms": round(seconds * 1e3 / max(reconnects, 1), 2),
        "cpu_ms_each_reconnect": round(cpu * 1e3 / max(reconnects, 1), 2),
        "sample_at_workers": counts,
        "lost": 0,
    }


def publish_one(publisher: socket.socket, number: int) -> None:
    """Until the PUBACK: the message is in the store of the worker that has the session."""
    encoded, id_at = one_publish(f"fleet/{number}", 1, b"0")
    publisher.sendall(encoded[:id_at] + b"\x00\x01" + encoded[id_at + 2 :])
    read_packet(publisher)


def measured_sessions(node: Node, options: argparse.Namespace) -> dict[str, Any]:
    """Memory of workers first: they are idle."""
    memory = [
        {"own_mib": round(own_mib(process), 1), "pss_mib": round(proportional_mib(process), 1)}
        for process in node.processes
    ]
    rows = [moves(node, apart, waiting, options.moves) for waiting in (0, QUEUE) for apart in (0, 1)]
    return {
        "workers": node.workers,
        "idle_memory": memory,
        "moves": rows,
        "fleet": fleet(node, options.connections, options.reconnects, options.seed),
    }


def are_marks_met(found: dict[str, Any]) -> bool:
    empty = [row["connack_ms"]["p50"] for row in found["moves"] if not row["waiting"]]
    own = [one["own_mib"] for one in found["idle_memory"]]
    return bool(max(empty) <= EMPTY_MS_MAX and max(own) <= OWN_MIB_MAX)
