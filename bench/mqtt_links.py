#!/usr/bin/env python3
"""Starts a node with many links (linked_brokers.py), waits until each policy works over each link, and stops it.

A client of the node subscribes to everything. A message on a topic of each policy is published at the upstream, again and
again, until one copy of each comes over each link. Then nothing is sent for --idle seconds.

Prints one JSON object: start_s (from the start of the process on), idle_percent (CPU of the node), stop_s (from SIGTERM to the
end of the process), delivered (copies).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from typing import Any, Final

from mqtt_inbox import PUBLISH, Inbox, topic_and_payload
from mqtt_load import address, cpu_seconds, log_in, one_publish, open_client, subscribe
from rows import POLICIES, UPSTREAMS

DEADLINE: Final = 120.0
ROUND_SECONDS: Final = 0.2


def connected(at: tuple[str, int], until: float) -> socket.socket:
    """A client of the node, as soon as that listens."""
    while True:
        try:
            client = socket.create_connection(at, 1.0)
        except OSError:
            if time.perf_counter() > until:
                raise SystemExit(f"the node does not serve after {DEADLINE:.0f} s") from None
            time.sleep(0.01)
            continue
        client.settimeout(DEADLINE)
        log_in(client, f"everything-{os.getpid()}")
        return client


def until_all_work(upstream: socket.socket, client: socket.socket, until: float) -> int:
    """Return the number of copies when a message of each policy has come over each link."""
    topics = [f"area-{number:02d}/probe" for number in range(POLICIES)]
    wanted = POLICIES * UPSTREAMS
    inbox = Inbox(client)
    number = 0
    while time.perf_counter() < until:
        number += 1
        payload = b"%d" % number
        upstream.sendall(b"".join(one_publish(topic, 0, payload)[0] for topic in topics))
        copies: Counter[str] = Counter()
        round_ends = time.perf_counter() + ROUND_SECONDS
        while copies.total() < wanted and (left := round_ends - time.perf_counter()) > 0:
            for kind, body in inbox.packets(left):
                topic, found = topic_and_payload(body) if kind == PUBLISH else ("", b"")
                if found == payload:
                    copies[topic] += 1
        if copies == Counter(dict.fromkeys(topics, UPSTREAMS)):
            return copies.total()
    raise SystemExit(f"not all policies work over all links after {DEADLINE:.0f} s")


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--upstream", required=True, metavar="HOST:PORT")
    ap.add_argument("--at", required=True, metavar="HOST:PORT", help="where the node listens")
    ap.add_argument("--idle", type=float, default=5.0, metavar="SECONDS")
    ap.add_argument("command", nargs="+", help="that starts the node, behind --")
    args = ap.parse_args()
    upstream = open_client(address(args.upstream), f"probes-{os.getpid()}")
    begun = time.perf_counter()
    node = subprocess.Popen(args.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        client = connected(address(args.at), begun + DEADLINE)
        subscribe(client, "#", 0)
        copies = until_all_work(upstream, client, begun + DEADLINE)
        start = time.perf_counter() - begun
        time.sleep(1.0)  # what the probes have caused
        before = cpu_seconds([node.pid])
        time.sleep(args.idle)
        idle = cpu_seconds([node.pid]) - before
        stop_begun = time.perf_counter()
        node.terminate()
        status = node.wait(DEADLINE)
        stop = time.perf_counter() - stop_begun
    finally:
        if node.poll() is None:
            node.kill()
            node.wait()
    if status:
        raise SystemExit(f"the node ended with {status}")
    result: dict[str, Any] = {
        "start_s": round(start, 3),
        "idle_percent": round(100 * idle / args.idle, 3),
        "stop_s": round(stop, 3),
        "delivered": copies,
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
