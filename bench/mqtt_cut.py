#!/usr/bin/env python3
"""Publishers of QoS 1 at two nodes, in an open loop, while the nodes are cut off from each other.

The messages of each publisher have a reader at its own node and one at the other node. Lines of the standard input say what
happens: `cut`, then `heal`. When the readers have all that was published until `heal` the publishers stop, and the readers wait
for the rest.

Prints one JSON object: seconds from `heal` until all was there, lost and repeated messages, most messages without PUBACK, and
the median of the local readers' delays before, during and after the cut, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import statistics
import struct
import sys
import time
from typing import Final

from mqtt_load import MQTT311, Publisher, Subscriber, log_in, one_publish, subscribe

PAYLOAD_BYTES: Final = 100
TICK_SECONDS: Final = 0.005
PATIENCE_SECONDS: Final = 120.0
REST_SECONDS: Final = 10.0
STAMP: Final = "!Qd"  # number of the message, when it was due


def open_client(path: str, client_id: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(30)
    sock.connect(path)
    log_in(sock, client_id)
    return sock


class Reader:
    """came  numbers of messages; repeated: how often one came once more
    delays  seconds by phase, of a local reader
    """

    def __init__(self, path: str, name: str, topic: str, is_local: bool) -> None:
        encoded, id_at = one_publish(topic, 1, b"x" * PAYLOAD_BYTES)
        self.is_local = is_local
        self.came: set[int] = set()
        self.repeated = 0
        self.delays: dict[str, list[float]] = {}
        sock = open_client(path, name)
        subscribe(sock, topic, 1)
        self.client = Subscriber(sock, len(encoded), 1, id_at)
        self._body_at = len(encoded) - PAYLOAD_BYTES
        self._below = 0  # all numbers below it have come

    def take(self, data: bytes, phase: str, now: float) -> None:
        client = self.client
        whole = client.rest + data
        delays = self.delays.setdefault(phase, [])
        for index in range(client.take(data)):
            number, due = struct.unpack_from(STAMP, whole, index * client.length + self._body_at)
            self.repeated += number in self.came
            self.came.add(number)
            if self.is_local:
                delays.append(now - due)

    def has_all(self, count: int) -> bool:
        while self._below in self.came:
            self._below += 1
        return self._below >= count


class Source:
    """A publisher and its readers."""

    def __init__(self, own: str, other: str, name: str, rate: float) -> None:
        topic = f"cut/{os.getpid()}/{name}"
        self.readers = [Reader(own, f"near-{name}", topic, True), Reader(other, f"far-{name}", topic, False)]
        self.publisher = Publisher(open_client(own, f"from-{name}"), topic, 1, b"x" * PAYLOAD_BYTES, 1, MQTT311)
        self.unacknowledged = 0
        self.begun = 0.0
        self._gap = 1 / rate

    def publish(self, now: float) -> None:
        """Send what is due."""
        publisher = self.publisher
        out = bytearray()
        while (due := self.begun + publisher.sent * self._gap) <= now:
            one = bytearray(publisher.blocks(1))
            struct.pack_into(STAMP, one, len(one) - PAYLOAD_BYTES, publisher.sent, due)
            out += one
            publisher.sent += 1
        if out:
            publisher.sock.sendall(bytes(out))
        self.unacknowledged = max(self.unacknowledged, publisher.sent - publisher.acked)


class Run:
    def __init__(self, sources: list[Source]) -> None:
        self.sources = sources
        self.phase = "before"
        self.healed_at = 0.0
        self.goals: list[int] = []
        self._poll = select.epoll()
        self._owners: dict[int, tuple[Source, Reader | None]] = {}
        for source in sources:
            self._owners[source.publisher.sock.fileno()] = source, None
            for reader in source.readers:
                self._owners[reader.client.sock.fileno()] = source, reader
        for fd in (*self._owners, sys.stdin.fileno()):
            self._poll.register(fd, select.EPOLLIN)

    def turn(self, publishes: bool) -> None:
        now = time.perf_counter()
        for source in self.sources if publishes else ():
            source.publish(now)
        for fd, _ in self._poll.poll(TICK_SECONDS):
            if fd == sys.stdin.fileno():
                self._told(os.read(fd, 64).decode().split())
                continue
            source, reader = self._owners[fd]
            data = (source.publisher.sock if reader is None else reader.client.sock).recv(262_144)
            if not data:
                raise SystemExit(f"the node closed a connection ({self.phase})")
            if reader is None:
                source.publisher.acknowledge(data)
            else:
                reader.take(data, self.phase, time.perf_counter())

    def _told(self, words: list[str]) -> None:
        if not words:
            raise SystemExit("the standard input has ended")
        self.phase = words[-1]
        if self.phase == "heal":
            self.healed_at = time.perf_counter()
            self.goals = [source.publisher.sent for source in self.sources]

    def is_done(self) -> bool:
        """Return whether all that was published until `heal` is there."""
        if not self.goals:
            return False
        return all(
            reader.has_all(goal)
            for source, goal in zip(self.sources, self.goals, strict=True)
            for reader in source.readers
        )

    def is_over(self) -> bool:
        return all(
            source.publisher.acked == source.publisher.sent and reader.has_all(source.publisher.sent)
            for source in self.sources
            for reader in source.readers
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", nargs=2, required=True, metavar="SOCKET")
    parser.add_argument("--rate", type=float, required=True, help="messages a second of both publishers")
    args = parser.parse_args()
    first, second = args.nodes
    sources = [
        Source(first, second, "first", args.rate / 2),
        Source(second, first, "second", args.rate / 2),
    ]
    run = Run(sources)
    time.sleep(2.0)  # the nodes know of the readers
    for source in sources:
        source.begun = time.perf_counter()
    print("ready", flush=True)
    while not run.is_done() and (not run.goals or time.perf_counter() < run.healed_at + PATIENCE_SECONDS):
        run.turn(True)
    seconds = time.perf_counter() - run.healed_at
    until = time.perf_counter() + REST_SECONDS
    while not run.is_over() and time.perf_counter() < until:
        run.turn(False)
    published = sum(source.publisher.sent for source in sources)
    delays = {
        phase: statistics.median([delay for source in sources for delay in source.readers[0].delays[phase]])
        for phase in ("before", "cut", "heal")
    }
    readers = [reader for source in sources for reader in source.readers]
    print(
        json.dumps(
            {
                "published": published,
                "acknowledged": sum(source.publisher.acked for source in sources),
                "lost": 2 * published - sum(len(reader.came) for reader in readers),
                "repeated": sum(reader.repeated for reader in readers),
                "unacknowledged": max(source.unacknowledged for source in sources),
                "seconds": round(seconds, 2),
                "local_ms": {phase: round(delay * 1e3, 2) for phase, delay in delays.items()},
            }
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
