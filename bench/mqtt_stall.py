#!/usr/bin/env python3
"""Measure how long clients wait for PINGRESP while one client does something expensive at the first of two nodes.

Two clients of the first node and one of the last send PINGREQ every 20 ms, answered or not. A round trip counts from the
moment when the PINGREQ was due. Set-up is not measured. Cases:
  filters      --count filters of 13 levels, `+` or `a`, and 1.3 MB of QoS 0 messages to distinct topics, from one client
  retained     a SUBSCRIBE to `#` with --count retained messages of 100 bytes
  session      the end of a session with --count subscriptions and as many queued messages
  full-state   the last node joins the first, which has --count subscriptions and twice as many retained messages
  sessions     --count clients are connected; one pair sends 2,000 messages a second at QoS 1, the API lists clients and
               the metrics are read each second. PINGREQs come every 2 ms

Prints one JSON object: percentiles of the round trips in milliseconds, the seconds for which the REST API of the last node
(--http) lists a member that is not ALIVE, the seconds that the case took, and messages that did not arrive.
"""

from __future__ import annotations

import argparse
import itertools
import json
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqtt_load import address, connect_packet, open_client, packet, read_packet, subscribe, utf8

PING_SECONDS = 0.02
SHORT_PING_SECONDS = 0.002
LOOK_SECONDS = 1.0
PATIENCE = 90.0
WATCH_SECONDS = 0.2
LEVELS = 13
MESSAGE_BYTES = 1_300_000
FILTERS_EACH = 500  # filters of one SUBSCRIBE
PINGREQ, PINGRESP = b"\xc0\0", b"\xd0\0"
PAYLOAD = b"x" * 100


class Pings(threading.Thread):
    """Sends PINGREQs of several clients until `stop`, and waits for the last answers."""

    def __init__(self, places: list[str], pause: float) -> None:
        super().__init__(daemon=True)
        self._pause = pause
        self._clients = [open_client(address(place), f"pings-{number}") for number, place in enumerate(places)]
        self._due_at: dict[int, deque[float]] = {client.fileno(): deque() for client in self._clients}
        self.stop = threading.Event()
        self.seconds: list[float] = []
        self.fault = ""

    def run(self) -> None:
        poll = select.epoll()
        by_fd = {client.fileno(): client for client in self._clients}
        for fd in by_fd:
            poll.register(fd, select.EPOLLIN)
        due = time.perf_counter()
        ends_at = float("inf")
        while any(self._due_at.values()) or not self.stop.is_set():
            now = time.perf_counter()
            if self.stop.is_set():
                ends_at = min(ends_at, now + PATIENCE)
                if now > ends_at:
                    break
            elif now >= due:
                for fd, client in by_fd.items():
                    client.sendall(PINGREQ)
                    self._due_at[fd].append(due)
                due += self._pause
            for fd, _ in poll.poll(self._pause if self.stop.is_set() else max(due - now, 0)):
                answers = by_fd[fd].recv(4096)
                if not answers:
                    self.fault = "the broker closed the connection of a client that only pings"
                    return
                now = time.perf_counter()
                self.seconds += [now - self._due_at[fd].popleft() for _ in range(len(answers) // 2)]
        now = time.perf_counter()
        self.seconds += [now - at for waiting in self._due_at.values() for at in waiting]  # at least so long

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3, 1)


class Members(threading.Thread):
    """Measures how long a node lists a member that is not ALIVE. Without an address it does nothing."""

    def __init__(self, http: str) -> None:
        super().__init__(daemon=True)
        self._url = f"http://{http}/v1/federation/members" if http else ""
        self.stop = threading.Event()
        self.all_alive = threading.Event()
        self.not_alive_seconds = 0.0

    def run(self) -> None:
        seen_at = time.perf_counter()
        while not self.stop.wait(WATCH_SECONDS):
            statuses = self._statuses()
            now = time.perf_counter()
            if statuses <= {"STATUS_ALIVE"}:
                self.all_alive.set()
            else:
                self.all_alive.clear()
                self.not_alive_seconds += now - seen_at
            seen_at = now

    def _statuses(self) -> set[str]:
        if not self._url:
            return set()
        try:
            return {member["status"] for member in rest(self._url)["members"]}
        except OSError:
            return {"no answer"}


def rest(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, data=data), timeout=PATIENCE) as answer:
        return json.load(answer)


# --- clients


def publish(topic: str, payload: bytes = PAYLOAD, packet_id: int = 0, retain: bool = False) -> bytes:
    if packet_id:
        return packet(0x32 | retain, utf8(topic) + packet_id.to_bytes(2) + payload)
    return packet(0x30 | retain, utf8(topic) + payload)


def subscribe_to_all(client: socket.socket, filters: list[str], qos: int = 0) -> None:
    for start in range(0, len(filters), FILTERS_EACH):
        entries = [utf8(text) + bytes([qos]) for text in filters[start : start + FILTERS_EACH]]
        client.sendall(packet(0x82, b"\0\1" + b"".join(entries)))
        first, body = read_packet(client)
        if first != 0x90 or body[2:] != bytes([qos]) * len(entries):
            raise SystemExit(f"subscriptions refused: {first:#x} {body[:10].hex()}")


def exchange(client: socket.socket, data: bytes) -> None:
    """Send the data and a PINGREQ; read up to the PINGRESP."""
    view, tail = memoryview(data + PINGREQ), b""
    last = time.perf_counter()
    while tail != PINGRESP:
        readable, writable, _ = select.select([client], [client] if view else [], [], 1.0)
        if writable:
            view = view[client.send(view[:65536]) :]
        if readable:
            got = client.recv(262144)
            if not got:
                raise SystemExit("the broker closed the connection of the expensive client")
            tail = (tail + got)[-2:]
        if readable or writable:
            last = time.perf_counter()
        elif time.perf_counter() - last > PATIENCE:
            raise SystemExit(f"no PINGRESP in {PATIENCE:.0f} s")


def store_retained(args: argparse.Namespace, count: int) -> None:
    with open_client(address(args.first), "retains") as client:
        exchange(client, b"".join(publish(f"retained/{number:06d}", retain=True) for number in range(count)))


def until_retained(args: argparse.Namespace, topic: str) -> None:
    """Wait until the last node has the retained message."""
    until = time.perf_counter() + PATIENCE
    with open_client(address(args.last), "looks") as client:
        while time.perf_counter() < until:
            client.settimeout(PATIENCE)
            subscribe(client, topic, 0)
            client.settimeout(0.1)
            try:
                read_packet(client)
            except TimeoutError:
                continue
            return
    raise SystemExit(f"{topic} is not on the last node after {PATIENCE:.0f} s")


# --- the cases: each sets up and returns the function to measure, which returns the number of lost messages


def filters(args: argparse.Namespace) -> Callable[[], int]:
    client = open_client(address(args.first), "expensive")
    wanted = ["/".join(levels) for levels in itertools.islice(itertools.product("+a", repeat=LEVELS), args.count)]
    start = "a/" * (LEVELS - 1)
    count = MESSAGE_BYTES // len(publish(f"{start}000000", b""))
    data = b"".join(publish(f"{start}{number:06d}", b"") for number in range(count))

    def act() -> int:
        subscribe_to_all(client, wanted)
        exchange(client, data)
        return 0

    return act


def retained(args: argparse.Namespace) -> Callable[[], int]:
    store_retained(args, args.count)
    until_retained(args, f"retained/{args.count - 1:06d}")
    client = open_client(address(args.first), "expensive")
    length = len(publish("retained/000000"))

    def act() -> int:
        subscribe(client, "#", 0)
        missing: int = args.count * length
        client.settimeout(PATIENCE)
        while missing > 0 and (got := client.recv(262144)):
            missing -= len(got)
        return -(-missing // length)

    return act


def session(args: argparse.Namespace) -> Callable[[], int]:
    name = "expensive"
    kept = bytearray(connect_packet(name))
    kept[9] &= ~0x02  # Clean Session 0
    with socket.create_connection(address(args.first)) as client:
        client.sendall(kept)
        read_packet(client)
        subscribe_to_all(client, [f"session/{number:06d}/+" for number in range(args.count)], 1)
    with open_client(address(args.first), "fills") as client:
        topics = (f"session/{number:06d}/x" for number in range(args.count))
        # Packet identifiers whose bytes in a PUBACK are no PINGRESP.
        exchange(client, b"".join(publish(topic, PAYLOAD, at % 50_000 + 1) for at, topic in enumerate(topics)))

    def act() -> int:
        open_client(address(args.first), name).close()  # Clean Session 1 ends the old one
        return 0

    return act


def full_state(args: argparse.Namespace) -> Callable[[], int]:
    count = args.count
    client = open_client(address(args.first), "expensive")
    subscribe_to_all(client, [f"state/{number:06d}/+" for number in range(count)])
    store_retained(args, 2 * count)

    def act() -> int:
        rest(f"http://{args.http}/v1/federation/join", {"hosts": [args.gossip]})
        last = f"state/{count - 1:06d}/x"
        client.settimeout(0.1)
        until = time.perf_counter() + PATIENCE
        with open_client(address(args.last), "publishes") as publisher:
            while time.perf_counter() < until:
                publisher.sendall(publish(last))
                try:
                    read_packet(client)
                except TimeoutError:
                    continue
                until_retained(args, f"retained/{2 * count - 1:06d}")
                return 0
        return 1

    return act


def sessions(args: argparse.Namespace) -> Callable[[], int]:
    clients = [open_client(address(args.first), f"session-{number}") for number in range(args.count)]
    for number, client in enumerate(clients):
        subscribe(client, f"idle/{number:06d}/+", 1)
    load = [sys.executable, str(Path(__file__).with_name("mqtt_load.py")), "--pub", args.first]
    if args.user:
        load += ["--user", args.user, "--password", args.password]
    load += ["--latency", "--clients", "1", "--qos", "1", "--rate", "2000", "--messages", str(2000 * args.seconds)]

    def act() -> int:
        done = threading.Event()

        def look() -> None:
            while not done.wait(LOOK_SECONDS):
                rest(f"http://{args.http}/v1/clients?page_size=100")
                with urllib.request.urlopen(f"http://{args.metrics}/metrics", timeout=PATIENCE) as answer:
                    answer.read()

        looks = threading.Thread(target=look)
        looks.start()
        result = json.loads(subprocess.run(load, capture_output=True, check=False).stdout)
        done.set()
        looks.join()
        connected = int(rest(f"http://{args.http}/v1/clients?connected=true&page_size=1")["total_count"])
        if connected < len(clients):  # they stay connected as long as this function is there
            raise SystemExit(f"{connected} clients are connected at the end, {len(clients)} were")
        return int(result["lost"])

    return act


CASES = {"filters": filters, "retained": retained, "session": session, "full-state": full_state, "sessions": sessions}


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("case", choices=CASES)
    ap.add_argument("--first", required=True, metavar="HOST:PORT", help="where the expensive client connects")
    ap.add_argument("--last", required=True, metavar="HOST:PORT", help="the other node's clients")
    ap.add_argument("--http", default="", metavar="HOST:PORT", help="REST API of the other node")
    ap.add_argument("--gossip", default="", metavar="HOST:PORT", help="the first node's, for full-state")
    ap.add_argument("--metrics", default="", metavar="HOST:PORT", help="the first node's, for sessions")
    ap.add_argument("--seconds", type=int, default=10, help="of the load of sessions")
    ap.add_argument("--user", default="", help="of the pair of sessions")
    ap.add_argument("--password", default="")
    ap.add_argument("--count", type=int, required=True)
    ap.add_argument("--quiet", type=float, default=3.0, help="seconds of PINGREQs before and after the case")
    args = ap.parse_args()
    act = CASES[args.case](args)
    is_short = args.case == "sessions"
    pings = Pings([args.first, args.first, args.last], SHORT_PING_SECONDS if is_short else PING_SECONDS)
    members = Members(args.http)
    pings.start()
    members.start()
    time.sleep(args.quiet)
    start = time.perf_counter()
    lost = act()
    seconds = time.perf_counter() - start
    time.sleep(args.quiet)
    members.all_alive.wait(PATIENCE)
    members.stop.set()
    pings.stop.set()
    members.join()
    pings.join()
    if pings.fault:
        raise SystemExit(pings.fault)
    result = {
        "case": args.case,
        "took_s": round(seconds, 3),
        "pings": len(pings.seconds),
        "ping_ms": {"p50": pings.percentile_ms(0.5), "p99": pings.percentile_ms(0.99), "max": pings.percentile_ms(1)},
        "not_alive_s": round(members.not_alive_seconds, 1),
        "lost": lost,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
