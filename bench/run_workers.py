"""scripts/bench workers: a node with as many workers as there are cores, at least 2, beside one with a single process.

Pairs of a publisher and a subscriber, with both at one worker or each at another one. The generator finds out which worker has
accepted a connection from the inode of its socket, and connects again until it has what it wants. Rounds alternate. Beside
them: what a Unix socket alone costs two processes, for the same bytes in blocks.
--sessions measures durable sessions instead (worker_sessions).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from mqtt_load import Publisher, Subscriber, cpu_seconds, one_publish, subscribe, throughput
from worker_node import Node
from worker_sessions import EMPTY_MS_MAX, OWN_MIB_MAX, are_marks_met, measured_sessions

ROOT: Final = Path(__file__).resolve().parent.parent
SIZE: Final = 100
PROBES_MAX: Final = 300  # of one pair, until its worker knows the subscription
PROBE_SECONDS: Final = 0.2
SAME_MAX: Final = 1.05
OTHER_MAX: Final = 1.4
CAPACITY_MIN: Final = 1.7  # of two workers
HOP_BLOCKS: Final = (50, 220, 1000)  # messages of one write
READ_BYTES: Final = 262_144  # as much as the loop reads at once


def await_interest(publisher: socket.socket, subscriber: socket.socket, topic: str) -> None:
    """Publish until the worker of the publisher knows the subscription. Nothing is on the way afterwards."""
    subscriber.settimeout(PROBE_SECONDS)
    for number in range(PROBES_MAX):
        probe, _ = one_publish(topic, 0, b"%d" % number)
        publisher.sendall(probe)
        came = b""
        with contextlib.suppress(TimeoutError):
            while not came.endswith(probe):
                data = subscriber.recv(65536)
                if not data:
                    raise SystemExit("the broker closed a connection")
                came += data
            return
    raise SystemExit(f"{topic}: what one worker publishes does not reach its subscriber at another one")


def slice_of(node: Node, apart: int, qos: int, options: argparse.Namespace) -> dict[str, Any]:
    """One measurement. `apart`: the subscriber is at the worker that is so many further than its publisher's."""
    encoded, id_at = one_publish("load/000000", qos, bytes(SIZE))
    pubs: list[Publisher] = []
    subs: list[Subscriber] = []
    for number in range(options.clients):
        topic = f"load/{number:06d}"
        subscriber = node.client(f"sub-{number}", (number + apart) % node.workers)
        subscribe(subscriber, topic, qos)
        subs.append(Subscriber(subscriber, len(encoded), qos, id_at))
        publisher = node.client(f"pub-{number}", number % node.workers)
        pubs.append(Publisher(publisher, topic, qos, bytes(SIZE), 50, 4))
        await_interest(publisher, subscriber, topic)
    clients: list[Any] = [*pubs, *subs]
    for one in clients:
        one.sock.setblocking(False)
    load = argparse.Namespace(
        topology="pairs", clients=options.clients, qos=qos, size=SIZE, messages=options.messages, window=1000, block=50
    )
    load.pid = None
    before = cpu_seconds(node.processes)
    result = throughput(load, pubs, subs)
    result["cpu"] = (cpu_seconds(node.processes) - before) * 1e6 / max(result["delivered"], 1)
    for one in clients:
        one.sock.close()
    if result["lost"]:
        raise SystemExit(f"{result['lost']} messages were lost")
    return result


def hop_ns(block: int, messages: int) -> float:
    """CPU-nanoseconds a message of a process that writes blocks of so many PUBLISH packets to a Unix socket, and of one that
    reads them into bytes: less than two workers need between them."""
    packet, _ = one_publish("load/000000", 0, bytes(SIZE))
    ours, theirs = socket.socketpair()
    sums, told = os.pipe()
    child = os.fork()
    if not child:
        ours.close()
        memory = memoryview(bytearray(READ_BYTES))
        while size := theirs.recv_into(memory):
            bytes(memory[:size])
        os.write(told, str(time.process_time()).encode())
        os._exit(0)
    theirs.close()
    data = packet * block
    before = time.process_time()
    for _ in range(messages // block):
        ours.sendall(data)
    ours.close()
    own = time.process_time() - before
    os.waitpid(child, 0)
    return round((own + float(os.read(sums, 100))) * 1e9 / messages, 1)


def quartiles(values: list[float]) -> list[float]:
    ordered, out = sorted(values), len(values) // 4
    return [round(ordered[at], 3) for at in (out, len(values) // 2, -1 - out)]


def measured(nodes: dict[int, Node], count: int, qos: int, options: argparse.Namespace) -> dict[str, Any]:
    """CPU-microseconds of all workers a message, in rounds that alternate; and what follows."""
    found: dict[str, list[float]] = {"one": [], "same": [], "other": []}
    rates: dict[str, list[float]] = {"one": [], "same": [], "other": []}
    for turn in range(options.rounds + 1):
        for name, node, apart in (("one", nodes[1], 0), ("same", nodes[count], 0), ("other", nodes[count], 1)):
            result = slice_of(node, apart, qos, options)
            if turn:  # the first round only warms up
                found[name].append(result["cpu"])
                rates[name].append(result["delivered_per_s"])
    pairs = {
        name: [value / one for value, one in zip(found[name], found["one"], strict=True)] for name in ("same", "other")
    }
    ratios = {name: statistics.median(values) for name, values in pairs.items()}
    return {
        "qos": qos,
        "cpu_us_per_msg": {name: round(statistics.median(values), 3) for name, values in found.items()},
        "delivered_per_s_with_generator": {name: round(statistics.median(values)) for name, values in rates.items()},
        "ratio_same": round(ratios["same"], 3),
        "ratio_other": round(ratios["other"], 3),
        "quartiles": {name: quartiles(values) for name, values in pairs.items()},
        # Each worker with a core of its own, and the generator elsewhere.
        "capacity_ratio_same": round(count / ratios["same"], 2),
        "capacity_ratio_other": round(count / ratios["other"], 2),
    }


def measure_sessions(gmqttd: Path, count: int, options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        node = Node(gmqttd, Path(folder), count, f"{folder}/data")
        try:
            found = measured_sessions(node, options)
        finally:
            node.stop()
    print(json.dumps({"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg(), **found}, indent=2))
    is_met = are_marks_met(found)
    print(
        f"marks {'met' if is_met else 'missed'}: {EMPTY_MS_MAX:g} ms with an empty queue, {OWN_MIB_MAX:g} MiB, nothing lost"
    )
    return 0 if is_met else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench workers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=0, help="instead of the number of cores")
    parser.add_argument("--clients", type=int, default=10, help="pairs of clients")
    parser.add_argument("--messages", type=int, default=1_000_000, help="of one slice")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sessions", action="store_true", help="durable sessions, and the memory of workers")
    parser.add_argument("--moves", type=int, default=200, help="of one client between workers, each way")
    parser.add_argument("--connections", type=int, default=10_000, help="durable clients")
    parser.add_argument("--reconnects", type=int, default=20_000, help="of these clients")
    parser.add_argument("--seed", type=int, default=1, help="of the clients that connect again")
    parser.add_argument("--interpreted", action="store_true", help="measure the sources")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    count = options.workers or max(2, cores)
    gmqttd = ROOT / (".venv" if options.interpreted else ".venv-fast") / "bin" / "gmqttd"
    if options.sessions:
        return measure_sessions(gmqttd, count, options)
    with tempfile.TemporaryDirectory() as folder:
        nodes = {workers: Node(gmqttd, Path(folder), workers) for workers in (1, count)}
        try:
            rows = [measured(nodes, count, qos, options) for qos in (0, 1)]
        finally:
            for node in nodes.values():
                node.stop()
    hops = {block: hop_ns(block, options.messages) for block in HOP_BLOCKS}
    found = {"cores": cores, "workers": count, "load": os.getloadavg(), "rows": rows, "unix_socket_ns_by_block": hops}
    print(json.dumps(found, indent=2))
    is_met = True
    for row in rows:
        capacity = row["capacity_ratio_same"] * 2 / count
        is_met = (
            is_met and row["ratio_same"] <= SAME_MAX and row["ratio_other"] <= OTHER_MAX and capacity >= CAPACITY_MIN
        )
    print(f"marks {'met' if is_met else 'missed'}: same {SAME_MAX}, other {OTHER_MAX}, capacity of two {CAPACITY_MIN}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
