#!/usr/bin/env python3
"""Subscribe to many filters with wildcards, and publish to topics that the broker has not seen.

The filters are of CLIENTS clients, half of them `many/AREA/+/DEVICE`, half `many/AREA/DEVICE/#`, and no two are the same. Each
message matches one of the first kind. First all messages go to HIT_TOPICS topics in turn, which are in the broker's cache then;
after that each goes to a topic of its own, in a random order of the filters.

Prints one JSON object: for each --pid NAME=PID the memory of a subscription (PSS, bytes), the CPU-microseconds of a message
whose topic is in the cache, and the CPU-microseconds that are added where it is not.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import socket
import time

from mqtt_connections import pss_bytes
from mqtt_load import address, cpu_seconds, one_publish, open_client, packet, process_tree, read_packet, utf8

CLIENTS = 20
FILTERS_EACH = 500  # of one SUBSCRIBE
DEVICES = 100  # of an area
HIT_TOPICS = 100
BLOCK = 50  # messages in one send
WINDOW = 1000  # most messages on the way
PATIENCE = 30.0
PAYLOAD = b"x" * 100


def filter_of(number: int) -> str:
    area, device = divmod(number // 2, DEVICES)
    return f"many/{area:06d}/{device:02d}/#" if number % 2 else f"many/{area:06d}/+/{device:02d}"


def topic_of(number: int, sensor: int) -> str:
    """A topic that matches the filter of an even number."""
    area, device = divmod(number // 2, DEVICES)
    return f"many/{area:06d}/sensor-{sensor:07d}/{device:02d}"


def subscribe_to_all(clients: list[socket.socket], count: int) -> None:
    for at, client in enumerate(clients):
        numbers = range(at, count, len(clients))
        for start in range(0, len(numbers), FILTERS_EACH):
            entries = [utf8(filter_of(number)) + b"\0" for number in numbers[start : start + FILTERS_EACH]]
            client.sendall(packet(0x82, b"\0\1" + b"".join(entries)))
            first, body = read_packet(client)
            if first != 0x90 or body[2:] != bytes(len(entries)):
                raise SystemExit(f"subscriptions refused: {first:#x} {body[:10].hex()}")


def publish_to_all(publisher: socket.socket, clients: list[socket.socket], topics: list[str]) -> int:
    """Publish one message to each topic. Returns the number of messages that arrived."""
    encoded = [one_publish(topic, 0, PAYLOAD)[0] for topic in topics]
    length = len(encoded[0])
    poll = select.epoll()
    by_fd = {client.fileno(): client for client in clients}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    received = sent = 0
    last = time.perf_counter()
    while received < len(topics) * length and time.perf_counter() - last < PATIENCE:
        while sent < len(topics) and sent - received // length < WINDOW:
            publisher.sendall(b"".join(encoded[sent : sent + BLOCK]))
            sent += BLOCK
        for fd, _ in poll.poll(0.01):
            received += len(by_fd[fd].recv(262144))
            last = time.perf_counter()
    poll.close()
    return received // length


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--to", required=True, metavar="HOST:PORT")
    ap.add_argument("--subscriptions", type=int, default=1_000_000)
    ap.add_argument("--messages", type=int, default=50_000, help="to topics in the cache, and as many to others")
    ap.add_argument("--pid", action="append", metavar="NAME=PID", default=[])
    ap.add_argument("--user")
    ap.add_argument("--password")
    args = ap.parse_args()
    watched = {n or p: process_tree(int(p)) for n, _, p in (s.rpartition("=") for s in args.pid)}
    place = address(args.to)
    clients = [open_client(place, f"many-{number}", args.user, args.password) for number in range(CLIENTS)]
    publisher = open_client(place, "many-publisher", args.user, args.password)
    before = {n: pss_bytes(p) for n, p in watched.items()}
    subscribe_to_all(clients, args.subscriptions)
    memory = {n: (pss_bytes(p) - before[n]) / args.subscriptions for n, p in watched.items()}
    draw = random.Random(1)
    numbers = [2 * draw.randrange(args.subscriptions // 2) for _ in range(args.messages)]
    hits = [topic_of(numbers[at % HIT_TOPICS], 0) for at in range(args.messages)]
    misses = [topic_of(number, at) for at, number in enumerate(numbers, 1)]
    lost = HIT_TOPICS - publish_to_all(publisher, clients, hits[:HIT_TOPICS])
    seconds: list[dict[str, float]] = []
    for topics in (hits, misses):
        start = {n: cpu_seconds(p) for n, p in watched.items()}
        lost += len(topics) - publish_to_all(publisher, clients, topics)
        seconds.append({n: cpu_seconds(p) - start[n] for n, p in watched.items()})
    out: dict[str, float] = {"delivered": 2 * args.messages - lost, "lost": lost, "subscriptions": args.subscriptions}
    for n in watched:
        hit, miss = (taken[n] * 1e6 / args.messages for taken in seconds)
        out[f"bytes_per_subscription[{n}]"] = round(memory[n])
        out[f"cpu_us_per_hit[{n}]"] = round(hit, 2)
        out[f"cpu_us_per_miss[{n}]"] = round(miss - hit, 2)
    print(json.dumps(out))
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
