#!/usr/bin/env python3
"""A node with --clients connected durable clients that is drained.

Each client has a subscription of its own, and connects to the other node as soon as its connection ends. Meanwhile a
publisher at the other node sends messages of QoS 1 to one client after the other, in an open loop. What does not come is lost.

Prints one JSON object: seconds until the node says that it is drained, seconds that clients were away, from the end of the
connection to CONNACK, clients whose session was not there, lost and repeated messages.
"""

from __future__ import annotations

import argparse
import errno
import json
import resource
import select
import socket
import statistics
import struct
import threading
import time
from typing import Any, Final

from mqtt_load import address, connect_packet, open_client, open_socket, packet, utf8
from mqtt_stall import rest

PARALLEL: Final = 100
LOOK_SECONDS: Final = 0.25
DRAIN_SECONDS_MAX: Final = 240.0
PATIENCE_SECONDS: Final = 30.0
TICK_SECONDS: Final = 0.01


class Client:
    """A durable client with one socket at a time.

    came  numbers of its messages
    away  seconds from the end of the connection to CONNACK, -1.0 before that
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.came: set[int] = set()
        self.repeated = 0
        self.away = -1.0
        self.is_present = True
        self.is_subscribed = False
        self.closed_at = 0.0
        self._rest = b""
        self.sock: socket.socket

    def connect(self, at: str) -> None:
        name = f"drained-{self.number}"
        self.sock = open_socket(address(at), name)
        self._rest = b""
        self.sock.sendall(connect_packet(name, is_clean=False))
        self.sock.setblocking(False)

    def subscribe(self) -> None:
        self.sock.sendall(packet(0x82, b"\0\1" + utf8(topic_of(self.number)) + b"\1"))

    def read(self) -> bool:
        """Take what has come. False when the connection has ended."""
        try:
            data = self.sock.recv(65_536)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno != errno.ECONNRESET:
                raise
            data = b""
        if not data:
            return False
        data = self._rest + data
        at = 0
        while len(data) - at >= 2 and len(data) - at >= 2 + data[at + 1]:  # all packets have less than 128 bytes
            end = at + 2 + data[at + 1]
            self._take(data[at], data[at + 2 : end])
            at = end
        self._rest = data[at:]
        return True

    def _take(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == 2:
            if body[1]:
                raise SystemExit(f"client {self.number}: refused with {body[1]}")
            if self.closed_at:
                self.is_present = self.is_present and body[0] == 1
                self.away = time.perf_counter() - self.closed_at
            else:
                self.subscribe()
        elif kind == 9:
            self.is_subscribed = True
        elif kind == 3:
            id_at = 2 + int.from_bytes(body[:2], "big")
            (number,) = struct.unpack_from("!Q", body, id_at + 2)
            self.repeated += number in self.came
            self.came.add(number)
            self.sock.sendall(b"\x40\x02" + body[id_at : id_at + 2])


def topic_of(number: int) -> str:
    return f"drained/{number}"


class Publisher:
    """sent  how many to each client"""

    def __init__(self, at: str, clients: int, rate: float) -> None:
        self.sent = [0] * clients
        self.count = 0
        self.sock = open_client(address(at), "publisher")
        self._gap = 1 / rate
        self._begun = time.perf_counter()

    def publish(self, now: float) -> None:
        """Send what is due."""
        out = bytearray()
        while self._begun + self.count * self._gap <= now:
            client = self.count % len(self.sent)
            packet_id = struct.pack("!H", self.count % 65_535 + 1)
            out += packet(0x32, utf8(topic_of(client)) + packet_id + struct.pack("!Q", self.sent[client]) + bytes(50))
            self.sent[client] += 1
            self.count += 1
        if out:
            self.sock.sendall(bytes(out))


class Drain(threading.Thread):
    """Drains the node, and looks until it says that it is drained."""

    def __init__(self, http: str, rate: int) -> None:
        super().__init__(daemon=True)
        self.seconds = 0.0
        self._url = f"http://{http}/v1/federation/drain"
        self._rate = rate

    def run(self) -> None:
        begun = time.perf_counter()
        status = rest(self._url, {"rate": self._rate})
        while status["state"] != "drained":
            time.sleep(LOOK_SECONDS)
            status = rest(self._url)
        self.seconds = time.perf_counter() - begun


def connect_all(clients: list[Client], at: str) -> None:
    poll = select.epoll()
    waiting: dict[int, Client] = {}
    left = list(reversed(clients))
    while left or waiting:
        while left and len(waiting) < PARALLEL:
            client = left.pop()
            client.connect(at)
            waiting[client.sock.fileno()] = client
            poll.register(client.sock.fileno(), select.EPOLLIN)
        for fd, _ in poll.poll(1.0):
            if not waiting[fd].read():
                raise SystemExit("the node closed a connection")
            if waiting[fd].is_subscribed:
                poll.unregister(fd)
                del waiting[fd]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drained", required=True, metavar="HOST:PORT")
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--http", required=True, metavar="HOST:PORT", help="of the node that is drained")
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=500, help="clients and sessions a second")
    parser.add_argument("--messages", type=float, default=500.0, help="a second")
    parser.add_argument("--settle", type=float, default=1.0)
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, args.clients + 200), hard))
    clients = [Client(number) for number in range(args.clients)]
    connect_all(clients, args.drained)
    time.sleep(args.settle)
    publisher = Publisher(args.to, args.clients, args.messages)
    poll = select.epoll()
    by_fd = {client.sock.fileno(): client for client in clients}
    for fd in (*by_fd, publisher.sock.fileno()):
        poll.register(fd, select.EPOLLIN)

    def turn(publishes: bool) -> None:
        if publishes:
            publisher.publish(time.perf_counter())
        for fd, _ in poll.poll(TICK_SECONDS):
            if fd == publisher.sock.fileno():
                publisher.sock.recv(65_536)
                continue
            client = by_fd[fd]
            if client.read():
                continue
            client.closed_at = time.perf_counter()
            del by_fd[fd]
            client.sock.close()
            client.connect(args.to)
            by_fd[client.sock.fileno()] = client
            poll.register(client.sock.fileno(), select.EPOLLIN)

    drain = Drain(args.http, args.rate)
    drain.start()
    until = time.perf_counter() + DRAIN_SECONDS_MAX
    while drain.is_alive() and time.perf_counter() < until:
        turn(True)
    if drain.is_alive():
        raise SystemExit(
            f"not drained after {DRAIN_SECONDS_MAX:g} s: {rest(f'http://{args.http}/v1/federation/drain')}"
        )
    until = time.perf_counter() + PATIENCE_SECONDS
    while time.perf_counter() < until and sum(len(client.came) for client in clients) < publisher.count:
        turn(False)
    away = [client.away for client in clients if client.away >= 0]
    out: dict[str, Any] = {
        "clients": len(clients),
        "drained_s": round(drain.seconds, 2),
        "away_s": {"p50": round(statistics.median(away), 4), "max": round(max(away), 4)},
        "stayed": len(clients) - len(away),
        "sessions_lost": sum(not client.is_present for client in clients),
        "published": publisher.count,
        "lost": publisher.count - sum(len(client.came) for client in clients),
        "repeated": sum(client.repeated for client in clients),
    }
    print(json.dumps(out))
    return 1 if out["lost"] or out["sessions_lost"] or out["stayed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
