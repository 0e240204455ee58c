#!/usr/bin/env python3
"""Open many idle MQTT 3.1.1 connections, each with one subscription, and report the broker's memory and CPU.

Prints one JSON object: connections a second while connecting (CONNECT to SUBACK, PARALLEL in flight), microseconds for one
of them, and for each --pid NAME=PID the memory a connection (PSS before and after, bytes) and the CPU-microseconds a
connect + subscribe.
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import struct
import time

from mqtt_load import address, connect_packet, cpu_seconds, open_socket, packet, process_tree, utf8
from mqtt_transports import Stream, layered

PARALLEL = 100


def pss_bytes(pids: list[int]) -> int:
    total = 0
    for p in pids:
        with open(f"/proc/{p}/smaps_rollup") as f:
            for line in f:
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--to", required=True, metavar="HOST:PORT")
    ap.add_argument("--connections", type=int, default=5000)
    ap.add_argument("--pid", action="append", metavar="NAME=PID", default=[])
    ap.add_argument("--user")
    ap.add_argument("--password")
    ap.add_argument("--transport", choices=["tcp", "tls", "ws"], default="tcp")
    ap.add_argument("--cacert", default="", metavar="FILE")
    args = ap.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, args.connections + 200), hard))
    watched = {n or p: process_tree(int(p)) for n, _, p in (s.rpartition("=") for s in args.pid)}
    before = {n: (pss_bytes(p), cpu_seconds(p)) for n, p in watched.items()}
    poll = select.epoll()
    waiting: dict[int, Stream] = {}
    received: dict[int, int] = {}
    done: list[Stream] = []
    opened = 0
    start = time.perf_counter()
    deadline = start + 120
    while len(done) < args.connections:
        if time.perf_counter() > deadline:
            raise SystemExit(f"only {len(done)} of {args.connections} connected in 120 s")
        while opened < args.connections and len(waiting) < PARALLEL:
            s = layered(open_socket(address(args.to), f"idle-{opened}"), args.transport, args.cacert)
            s.sendall(connect_packet(f"idle-{opened}", args.user, args.password))
            s.sendall(packet(0x82, struct.pack("!H", 1) + utf8(f"idle/{opened % 997}/{opened}") + b"\0"))
            waiting[s.fileno()], received[s.fileno()] = s, 0
            poll.register(s.fileno(), select.EPOLLIN)
            opened += 1
        for fd, _ in poll.poll(0.05):
            data = waiting[fd].recv(64)
            if not data:
                raise SystemExit("broker refused a connection")
            received[fd] += len(data)
            if received[fd] >= 9:  # CONNACK 4 + SUBACK 5
                poll.unregister(fd)
                done.append(waiting.pop(fd))
    wall = time.perf_counter() - start
    time.sleep(1)
    out: dict[str, float] = {
        "connections": len(done),
        "connects_per_s": round(len(done) / wall),
        "us_per_connect": round(wall * 1e6 / len(done), 1),
    }
    for n, p in watched.items():
        out[f"bytes_per_connection[{n}]"] = round((pss_bytes(p) - before[n][0]) / len(done))
        out[f"cpu_us_per_connect[{n}]"] = round((cpu_seconds(p) - before[n][1]) * 1e6 / len(done), 1)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
