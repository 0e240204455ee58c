#!/usr/bin/env python3
"""Measures how long the interest of local clients needs to the upstream of a link.

A client of the downstream subscribes to many filters with wildcards, in batches of 1,000. Messages for the last filter are
published at the upstream all the time; when one comes, the upstream has all filters: it handles SUBSCRIBE packets of a link in
order. A message for each filter then shows that none is missing. After that single filters are added in the same way.

Prints one JSON object: all_s (from the first SUBSCRIBE on), change_ms (percentiles of single filters), delivered, lost.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import sys
import time
from typing import Any, Final

from mqtt_inbox import PUBLISH, SUBACK, Inbox, topic_and_payload
from mqtt_load import address, one_publish, open_client, packet, utf8

BATCH: Final = 1_000
DEADLINE: Final = 60.0
PATIENCE: Final = 5.0
BEHIND_MAX: Final = 1_000


def subscription(packet_id: int, filters: list[str]) -> bytes:
    return packet(0x82, struct.pack("!H", packet_id) + b"".join(utf8(text) + b"\0" for text in filters))


class Pair:
    """A publisher at the upstream and a subscriber at the downstream."""

    def __init__(self, upstream: str, downstream: str) -> None:
        self.publisher = open_client(address(upstream), f"interest-publisher-{os.getpid()}")
        self.subscriber: socket.socket = open_client(address(downstream), f"interest-subscriber-{os.getpid()}")
        self.inbox = Inbox(self.subscriber)
        self.granted = 0

    def receive(self, seconds: float) -> list[str]:
        """The topics of the messages that come. Counts the filters that are granted."""
        topics = []
        for kind, body in self.inbox.packets(seconds):
            if kind == PUBLISH:
                topics.append(topic_and_payload(body)[0])
            elif kind == SUBACK:
                self.granted += sum(code <= 2 for code in body[2:])
        if self.inbox.closed:
            raise SystemExit("the downstream closed the connection")
        return topics

    def seconds_until(self, topic: str, gap: float) -> float:
        """From now on until a message of the topic comes through; one is published each `gap` seconds."""
        one = one_publish(topic, 0, b"x")[0]
        begun = time.perf_counter()
        while time.perf_counter() < begun + DEADLINE:
            self.publisher.sendall(one)
            if topic in self.receive(gap):
                return time.perf_counter() - begun
        raise SystemExit(f"{topic} does not come after {DEADLINE:.0f} s")


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--upstream", required=True, metavar="HOST:PORT")
    ap.add_argument("--downstream", required=True, metavar="HOST:PORT")
    ap.add_argument("--subscriptions", type=int, default=100_000)
    ap.add_argument("--changes", type=int, default=20)
    args = ap.parse_args()
    count = args.subscriptions
    pair = Pair(args.upstream, args.downstream)
    filters = [f"devices/{number:06d}/+" for number in range(count)]
    topics = [f"devices/{number:06d}/probe" for number in range(count)]
    packets = [subscription(1 + at // BATCH, filters[at : at + BATCH]) for at in range(0, count, BATCH)]
    begun = time.perf_counter()
    pair.subscriber.sendall(b"".join(packets))
    pair.seconds_until(topics[-1], 0.005)
    seconds = time.perf_counter() - begun
    if pair.granted != count:
        raise SystemExit(f"{pair.granted} of {count} filters are granted")
    missing = set(topics)
    sent = received = 0
    last = time.perf_counter()
    while missing and time.perf_counter() < last + PATIENCE:
        while sent < count and sent - received < BEHIND_MAX:
            pair.publisher.sendall(b"".join(one_publish(topic, 0, b"x")[0] for topic in topics[sent : sent + 100]))
            sent = min(count, sent + 100)
        found = pair.receive(0.1)
        if found:
            last = time.perf_counter()
        received += len(found)
        missing.difference_update(found)
    changes = []
    for number in range(args.changes):
        pair.subscriber.sendall(subscription(1, [f"single/{number}/+"]))
        changes.append(1000 * pair.seconds_until(f"single/{number}/probe", 0.001))
    changes.sort()
    result: dict[str, Any] = {
        "all_s": round(seconds, 3),
        "change_ms": {"p50": round(changes[len(changes) // 2], 2), "max": round(changes[-1], 2)},
        "delivered": count - len(missing),
        "lost": len(missing),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
