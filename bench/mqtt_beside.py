#!/usr/bin/env python3
"""A load of mqtt_load.py, whose arguments stand behind `--`, while a link is busy: messages of QoS 1 at --rate go from the
upstream to a subscriber at the downstream. Without --upstream there is nothing beside the load.

Prints the JSON object of mqtt_load.py.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.synchronize
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from mqtt_load import MQTT311, Publisher, Subscriber, address, open_client, read_packet, subscribe

BURST_SECONDS: Final = 0.01
READY_SECONDS: Final = 30.0
PAYLOAD: Final = bytes(100)


def keep_busy(upstream: str, downstream: str, rate: float, ready: multiprocessing.synchronize.Event) -> None:
    """Publish without end. `ready` is set when the first message has come through."""
    topic = f"link/{os.getpid()}"
    block = round(rate * BURST_SECONDS)
    to_upstream = open_client(address(upstream), f"busy-publisher-{os.getpid()}")
    from_downstream = open_client(address(downstream), f"busy-subscriber-{os.getpid()}")
    subscribe(from_downstream, topic, 1)
    publisher = Publisher(to_upstream, topic, 1, PAYLOAD, block, MQTT311)
    from_downstream.settimeout(0.1)
    while not ready.is_set():
        publisher.push(1)
        try:
            read_packet(from_downstream)
        except TimeoutError:
            continue
        ready.set()
    subscriber = Subscriber(from_downstream, publisher.length, 1, publisher.id_at)
    for sock in (to_upstream, from_downstream):
        sock.setblocking(False)
    due = time.perf_counter()
    while True:
        publisher.push(block)
        for sock in (to_upstream, from_downstream):
            try:
                data = sock.recv(262144)
            except BlockingIOError:
                continue
            if not data:
                raise SystemExit("a broker closed a connection beside the load")
            if sock is from_downstream:
                subscriber.take(data)
        due += BURST_SECONDS
        time.sleep(max(0.0, due - time.perf_counter()))


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--upstream", metavar="HOST:PORT")
    ap.add_argument("--downstream", metavar="HOST:PORT")
    ap.add_argument("--rate", type=float, default=1000.0, help="messages a second over the link (1000)")
    ap.add_argument("load", nargs="+")
    args = ap.parse_args()
    command = [sys.executable, str(Path(__file__).with_name("mqtt_load.py")), *args.load]
    if args.upstream is None:
        return subprocess.run(command, check=False).returncode
    ready = multiprocessing.Event()
    busy = multiprocessing.Process(
        target=keep_busy, args=(args.upstream, args.downstream, args.rate, ready), daemon=True
    )
    busy.start()
    try:
        if not ready.wait(READY_SECONDS):
            raise SystemExit(f"no message comes over the link after {READY_SECONDS:.0f} s")
        status = subprocess.run(command, check=False).returncode
        if not busy.is_alive():
            raise SystemExit("the link did not stay busy")
        return status
    finally:
        busy.kill()
        busy.join()


if __name__ == "__main__":
    sys.exit(main())
