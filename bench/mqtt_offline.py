#!/usr/bin/env python3
"""Closed-loop load at QoS 1 for durable sessions whose clients are away.

Each of --clients publishers sends --messages / --clients messages to the session of one client that has subscribed and
disconnected. A publisher sends only while fewer than --window of its messages are not acknowledged. Then the clients come
back and read what waits: what does not come is lost. At the end their sessions are deleted.

Arguments are those of mqtt_load.py. Prints one JSON object: CPU of each --pid a message until the last PUBACK, and by another
name until the last message is read.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import time
from collections.abc import Iterable
from typing import Any, Final

from mqtt_load import (
    MQTT311,
    PATIENCE_SECONDS,
    TICK_SECONDS,
    Publisher,
    Subscriber,
    address,
    cpu_seconds,
    log_in,
    one_publish,
    open_client,
    open_socket,
    parse_arguments,
    subscribe,
    watched,
)
from mqtt_transports import Stream

DISCONNECT: Final = b"\xe0\0"


def durable_client(args: argparse.Namespace, client_id: str) -> socket.socket:
    sock = open_socket(address(args.sub), client_id)
    log_in(sock, client_id, args.user, args.password, is_clean=False)
    return sock


def leave(sock: Stream) -> None:
    """Disconnect, and wait until the broker has closed: the session is offline then."""
    sock.setblocking(True)
    sock.sendall(DISCONNECT)
    while sock.recv(65536):
        pass
    sock.close()


def watch(socks: Iterable[Stream]) -> select.epoll:
    """Tells which of them can be read."""
    epoll = select.epoll()
    for sock in socks:
        sock.setblocking(False)
        epoll.register(sock.fileno(), select.EPOLLIN)
    return epoll


def publish(publishers: list[Publisher], goal: int, window: int) -> None:
    """Until the last PUBACK."""
    by_fd = {publisher.sock.fileno(): publisher for publisher in publishers}
    epoll = watch(publisher.sock for publisher in publishers)
    last = time.perf_counter()
    while any(publisher.acked < goal for publisher in publishers):
        is_stuck = True
        for publisher in publishers:
            room = min(window - publisher.sent + publisher.acked, goal - publisher.sent)
            is_due = publisher.sent < goal and room >= min(publisher.block, goal - publisher.sent)
            if (publisher.pending is not None or is_due) and publisher.push(room):
                is_stuck = False
        for fd, _ in epoll.poll(TICK_SECONDS if is_stuck else 0):
            data = by_fd[fd].sock.recv(262144)
            if not data:
                raise SystemExit("broker closed a connection under load")
            by_fd[fd].acknowledge(data)
            last = time.perf_counter()
        if time.perf_counter() - last > PATIENCE_SECONDS:
            raise SystemExit(f"no PUBACK for {PATIENCE_SECONDS:g} s")


def read_all(readers: list[Subscriber], goal: int) -> int:
    """Return how many messages have come. Each is acknowledged."""
    by_fd = {reader.sock.fileno(): reader for reader in readers}
    epoll = watch(reader.sock for reader in readers)
    last = time.perf_counter()
    count = 0
    while count < goal and time.perf_counter() - last < PATIENCE_SECONDS:
        ready = epoll.poll(TICK_SECONDS)
        for fd, _ in ready:
            data = by_fd[fd].sock.recv(262144)
            if not data:
                raise SystemExit("broker closed a connection that it had messages for")
            count += by_fd[fd].take(data)
            last = time.perf_counter()
        for reader in readers:
            reader.flush()
    return count


def main() -> int:
    args = parse_arguments(__doc__)
    tag = str(os.getpid())
    names = [f"away-{tag}-{number}" for number in range(args.clients)]
    topics = [f"away/{tag}/{number:06d}" for number in range(args.clients)]
    for name, topic in zip(names, topics, strict=True):
        sock = durable_client(args, name)
        subscribe(sock, topic, 1)
        leave(sock)
    time.sleep(args.settle)
    payload = b"x" * args.size
    publishers = [
        Publisher(open_client(address(args.pub), f"pub-{topic}"), topic, 1, payload, args.block, MQTT311)
        for topic in topics
    ]
    goal = args.messages // args.clients
    count = goal * args.clients
    pids = watched(args)
    before = {name: cpu_seconds(found) for name, found in pids.items()}
    begun = time.perf_counter()
    publish(publishers, goal, args.window)
    seconds = time.perf_counter() - begun
    stored = {name: cpu_seconds(found) for name, found in pids.items()}
    encoded, id_at = one_publish(topics[0], 1, payload)
    readers = [Subscriber(durable_client(args, name), len(encoded), 1, id_at) for name in names]
    came = read_all(readers, count)
    time.sleep(args.settle)
    read = {name: cpu_seconds(found) for name, found in pids.items()}
    out: dict[str, Any] = {
        "delivered": came,
        "expected": count,
        "lost": count - came,
        "seconds": round(seconds, 3),
        "acknowledged_per_s": round(count / seconds),
    }
    for name in pids:
        out[f"cpu_us_per_msg[{name}]"] = round((stored[name] - before[name]) * 1e6 / count, 3)
        out[f"read_us_per_msg[{name}]"] = round((read[name] - stored[name]) * 1e6 / count, 3)
    for reader in readers:
        leave(reader.sock)
    for name in names:
        open_client(address(args.sub), name, args.user, args.password).close()
    for publisher in publishers:
        publisher.sock.close()
    print(json.dumps(out))
    return 1 if out["lost"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
