#!/usr/bin/env python3
"""Closed-loop MQTT load generator, 3.1.1 or 5 with two user properties: one process, raw sockets, no client library.

Every PUBLISH has the same length and is encoded once. Sending is one ``send`` of a prepared block and receiving is
counting bytes, so the generator takes about 1 CPU-microsecond a message at QoS 0.

A publisher sends only while fewer than ``--window`` of its messages are on the way to each subscriber. A broker never
has to queue without bound, and a message that does not arrive is lost, not late.

Scenarios (``--topology``):
  pairs    N publishers, N subscribers, one topic a pair
  fanout   1 publisher, N subscribers on one topic
  fanin    N publishers, 1 subscriber on a wildcard

Publishers connect to ``--pub HOST:PORT`` and subscribers to ``--sub HOST:PORT`` (default: the same), so that two
nodes of a federation, a bridge or a link are measured by the same program.

Prints one JSON object: delivered messages a second, CPU-microseconds a delivered message for each ``--pid`` (user +
system, with its threads and children), losses, and in ``--latency`` mode (open loop at ``--rate``) the percentiles of the
one-way delay in microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import struct
import sys
import time
from typing import Any

from mqtt_transports import Stream, layered

TICK_SECONDS = 0.0003  # between two looks while nothing can be sent
PATIENCE_SECONDS = 5.0  # of silence that end the run


def varint(n: int) -> bytes:
    out = bytearray()
    while True:
        n, b = divmod(n, 128)
        out.append(b | 0x80 if n else b)
        if not n:
            return bytes(out)


def utf8(s: str) -> bytes:
    b = s.encode()
    return struct.pack("!H", len(b)) + b


def packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + varint(len(body)) + body


MQTT311, MQTT5 = 4, 5
NO_PROPERTIES = {MQTT311: b"", MQTT5: b"\0"}
USER_PROPERTIES = b"".join(
    b"\x26" + utf8(name) + utf8(text) for name, text in (("unit", "celsius"), ("plant", "north-7"))
)
PUBLISH_PROPERTIES = {MQTT311: b"", MQTT5: varint(len(USER_PROPERTIES)) + USER_PROPERTIES}


def connect_packet(
    client_id: str,
    user: str | None = None,
    password: str | None = None,
    is_clean: bool = True,
    version: int = MQTT311,
) -> bytes:
    flags = (0x02 if is_clean else 0) | (0x80 if user else 0) | (0x40 if password else 0)
    body = utf8("MQTT") + bytes([version, flags]) + struct.pack("!H", 0) + NO_PROPERTIES[version] + utf8(client_id)
    if user:
        body += utf8(user)
    if password:
        body += utf8(password)
    return packet(0x10, body)


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host or "127.0.0.1", int(port)


def read_exact(sock: Stream, n: int) -> bytes:
    out = b""
    while len(out) < n:
        got = sock.recv(n - len(out))
        if not got:
            raise SystemExit("broker closed the connection during set-up")
        out += got
    return out


def read_packet(sock: Stream) -> tuple[int, bytes]:
    first = read_exact(sock, 1)[0]
    length = shift = 0
    while True:
        b = read_exact(sock, 1)[0]
        length |= (b & 0x7F) << shift
        if not b & 0x80:
            break
        shift += 7
    return first, read_exact(sock, length)


def open_socket(addr: tuple[str, int], client_id: str) -> socket.socket:
    try:
        sock = socket.create_connection(addr, timeout=30)
    except OSError as e:
        raise SystemExit(f"{client_id}: {addr[0]}:{addr[1]}: {e}") from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def log_in(
    stream: Stream,
    client_id: str,
    user: str | None = None,
    password: str | None = None,
    is_clean: bool = True,
    version: int = MQTT311,
) -> None:
    stream.sendall(connect_packet(client_id, user, password, is_clean, version))
    first, body = read_packet(stream)
    if first != 0x20 or body[1] != 0:
        raise SystemExit(f"{client_id}: refused: {first:#x} {body.hex()}")


def open_client(
    addr: tuple[str, int], client_id: str, user: str | None = None, password: str | None = None
) -> socket.socket:
    sock = open_socket(addr, client_id)
    log_in(sock, client_id, user, password)
    return sock


def open_layered_client(
    args: argparse.Namespace, addr: tuple[str, int], client_id: str, is_clean: bool = True
) -> Stream:
    stream = layered(open_socket(addr, client_id), args.transport, args.cacert)
    if args.raw:
        return stream
    log_in(stream, client_id, args.user, args.password, is_clean, args.version)
    return stream


def subscribe(sock: Stream, topic_filter: str, qos: int, version: int = MQTT311) -> None:
    sock.sendall(packet(0x82, struct.pack("!H", 1) + NO_PROPERTIES[version] + utf8(topic_filter) + bytes([qos])))
    first, body = read_packet(sock)
    if first != 0x90 or body[-1] > 2:
        raise SystemExit(f"subscription refused: {first:#x} {body.hex()}")


def process_tree(pid: int) -> list[int]:
    pids: list[int] = []
    todo = [pid]
    while todo:
        p = todo.pop()
        pids.append(p)
        try:
            for t in os.listdir(f"/proc/{p}/task"):
                with open(f"/proc/{p}/task/{t}/children") as f:
                    todo += [int(c) for c in f.read().split()]
        except OSError:
            pass
    return pids


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of all threads, from the processes' CPU clocks: exact, where /proc counts in ticks of 10 ms."""
    total = 0.0
    for p in pids:
        try:
            total += time.clock_gettime(~p << 3 | 2)  # clock_getcpuclockid(3)
        except OSError:
            pass
    return total


def one_publish(topic: str, qos: int, payload: bytes, version: int = MQTT311) -> tuple[bytes, int]:
    """The encoded PUBLISH and the offset of its packet identifier (0 at QoS 0)."""
    payload = PUBLISH_PROPERTIES[version] + payload
    if not qos:
        return packet(0x30, utf8(topic) + payload), 0
    body = utf8(topic) + b"\0\0" + payload
    encoded = packet(0x30 | qos << 1, body)
    return encoded, len(encoded) - len(body) + 2 + len(topic.encode())


class Publisher:
    def __init__(self, sock: Stream, topic: str, qos: int, payload: bytes, block: int, version: int) -> None:
        self.sock, self.qos, self.sent, self.acked = sock, qos, 0, 0
        self.pending: memoryview | None = None
        self.next_id, self.partial = 1, 0
        self.one, self.id_at = one_publish(topic, qos, payload, version)
        self.length, self.block = len(self.one), block

    def blocks(self, n: int) -> bytes:
        """Encode n messages with consecutive packet identifiers."""
        if not self.qos:
            return self.one * n
        out = bytearray(self.one * n)
        ids = [((self.next_id - 1 + i) % 65535) + 1 for i in range(n)]
        self.next_id = ids[-1] % 65535 + 1
        out[self.id_at :: self.length] = bytes(i >> 8 for i in ids)
        out[self.id_at + 1 :: self.length] = bytes(i & 255 for i in ids)
        return bytes(out)

    def push(self, room: int) -> bool:
        """Send at most `room` more messages. True while the socket takes them."""
        if self.pending is None:
            n = min(self.block, room)
            if n <= 0:
                return False
            self.pending = memoryview(self.blocks(n))
            self.sent += n
        try:
            done = self.sock.send(self.pending)
        except BlockingIOError:
            return False
        self.pending = self.pending[done:] if done < len(self.pending) else None
        return self.pending is None

    def acknowledge(self, data: bytes) -> None:
        self.partial += len(data)
        whole, self.partial = divmod(self.partial, 4)
        self.acked += whole


class Subscriber:
    def __init__(self, sock: Stream, length: int, qos: int, id_at: int) -> None:
        self.sock, self.length, self.qos, self.id_at = sock, length, qos, id_at
        self.rest, self.received, self.out = b"", 0, b""

    def take(self, data: bytes) -> int:
        if not self.qos:
            total = len(self.rest) + len(data)
            n, left = divmod(total, self.length)
            self.rest = (self.rest + data)[-left:] if left else b""
            self.received += n
            return n
        data = self.rest + data
        n, left = divmod(len(data), self.length)
        self.rest = data[len(data) - left :] if left else b""
        if n:
            end = n * self.length
            out = bytearray(b"\x40\x02\0\0" * n)
            out[2::4] = data[self.id_at : end : self.length]
            out[3::4] = data[self.id_at + 1 : end : self.length]
            self.out += out
            self.flush()
            self.received += n
        return n

    def flush(self) -> None:
        while self.out:
            try:
                done = self.sock.send(self.out)
            except BlockingIOError:
                return
            self.out = self.out[done:]


def set_up(args: argparse.Namespace) -> tuple[list[Publisher], list[Subscriber]]:
    payload = b"x" * args.size
    pubs: list[Publisher] = []
    subs: list[Subscriber] = []
    tag = f"{os.getpid()}"
    n = args.clients

    def topic_of(i: int) -> str:
        return f"load/{tag}/{0 if args.topology == 'fanout' else i:06d}"

    count = {"pairs": (n, n), "fanout": (1, n), "fanin": (n, 1)}[args.topology]
    encoded, id_at = one_publish(topic_of(0), args.qos, payload, args.version)
    for i in range(count[1]):
        sock = open_layered_client(args, address(args.sub), f"sub-{tag}-{i}", not args.durable)
        wanted = f"load/{tag}/+" if args.topology == "fanin" else topic_of(i)
        if not args.raw:
            subscribe(sock, f"$share/load/{wanted}" if args.share else wanted, args.qos, args.version)
        subs.append(Subscriber(sock, len(encoded), args.qos, id_at))
    time.sleep(args.settle)
    for i in range(count[0]):
        sock = open_layered_client(args, address(args.pub), f"pub-{tag}-{i}")
        pubs.append(Publisher(sock, topic_of(i), args.qos, payload, args.block, args.version))
    for c in pubs + subs:
        c.sock.setblocking(False)
    return pubs, subs


def throughput(args: argparse.Namespace, pubs: list[Publisher], subs: list[Subscriber]) -> dict[str, Any]:
    fan = {"fanout": len(subs), "fleet": 2}.get(args.topology, 1)
    goal = args.messages // len(pubs)
    expected = goal * len(pubs) * fan
    epoll = select.epoll()
    by_fd: dict[int, Publisher | Subscriber] = {}
    for c in pubs + subs:
        by_fd[c.sock.fileno()] = c
        epoll.register(c.sock.fileno(), select.EPOLLIN)
    pids = watched(args)
    cpu0 = {name: cpu_seconds(p) for name, p in pids.items()}
    own0 = time.process_time()
    start = last = time.perf_counter()
    window, received = args.window, 0

    def room(i: int, p: Publisher) -> int:
        if args.topology == "pairs":
            behind = p.sent - subs[i].received
        elif args.topology == "fanout":
            behind = p.sent - min(s.received for s in subs)
        elif args.topology == "fleet":  # one subscriber for each publisher, and one for all
            behind = max(p.sent - subs[i].received, p.sent - subs[-1].received // len(pubs))
        else:
            behind = p.sent - received // len(pubs)
        if args.qos:
            behind = max(behind, p.sent - p.acked)
        return int(min(window - behind, goal - p.sent))

    while received < expected:
        stuck = True
        for i, p in enumerate(pubs):
            may_send = p.pending is not None or (p.sent < goal and room(i, p) >= min(args.block, goal - p.sent))
            if may_send and p.push(room(i, p)):
                stuck = False
        if stuck:  # wait for more data, so that the generator takes less CPU than the broker
            time.sleep(TICK_SECONDS)
        for fd, _ in epoll.poll(0):
            c = by_fd[fd]
            try:
                data = c.sock.recv(262144)
            except BlockingIOError:
                continue
            if not data:
                raise SystemExit("broker closed a connection under load")
            last = time.perf_counter()
            if isinstance(c, Publisher):
                c.acknowledge(data)
            else:
                received += c.take(data)
        for s in subs:
            if s.out:
                s.flush()
        if time.perf_counter() - last > PATIENCE_SECONDS:
            break
    wall = last - start
    time.sleep(0.05)
    out: dict[str, Any] = {
        "topology": args.topology,
        "clients": args.clients,
        "qos": args.qos,
        "payload_bytes": args.size,
        "delivered": received,
        "expected": expected,
        "lost": expected - received,
        "seconds": round(wall, 3),
        "delivered_per_s": round(received / wall) if wall else 0,
        "generator_cpu_us_per_msg": round((time.process_time() - own0) * 1e6 / max(received, 1), 3),
    }
    for name, watched_pids in pids.items():
        out[f"cpu_us_per_msg[{name}]"] = round((cpu_seconds(watched_pids) - cpu0[name]) * 1e6 / max(received, 1), 3)
    return out


def latency(args: argparse.Namespace, pubs: list[Publisher], subs: list[Subscriber]) -> dict[str, Any]:
    """Open loop: one message every 1/rate s from publisher 0 to all subscribers, with its due time in the payload."""
    p = pubs[0]
    body_at = p.length - args.size
    epoll = select.epoll()
    by_fd: dict[int, Publisher | Subscriber] = {}
    delays: list[float] = []
    for s in subs + pubs:
        by_fd[s.sock.fileno()] = s
        epoll.register(s.sock.fileno(), select.EPOLLIN)
    sent, gap = 0, 1 / args.rate
    start = time.perf_counter()
    due = start
    expected = args.messages * (len(subs) if args.topology == "fanout" else 1)
    idle = start
    while len(delays) < expected:
        now = time.perf_counter()
        while sent < args.messages and now >= due:
            one = bytearray(p.blocks(1))
            struct.pack_into("!d", one, body_at, due)  # when it was due, which avoids coordinated omission
            p.sock.setblocking(True)
            p.sock.sendall(bytes(one))
            p.sock.setblocking(False)
            sent += 1
            due = start + sent * gap
            now = time.perf_counter()
        wait = 0 if sent < args.messages and due - now < 0.0005 else min(max(due - now, 0), 0.005)
        for fd, _ in epoll.poll(wait):
            c = by_fd[fd]
            try:
                data = c.sock.recv(262144)
            except BlockingIOError:
                continue
            if isinstance(c, Publisher):
                c.acknowledge(data)
                continue
            now = idle = time.perf_counter()
            whole = c.rest + data
            n = c.take(data)
            for i in range(n):
                at = i * c.length + body_at
                delays.append(now - struct.unpack_from("!d", whole, at)[0])
        if sent >= args.messages and time.perf_counter() - idle > PATIENCE_SECONDS:
            break
    delays.sort()

    def pct(q: float) -> int | None:
        return round(delays[min(len(delays) - 1, int(q * len(delays)))] * 1e6) if delays else None

    return {
        "topology": args.topology,
        "clients": args.clients,
        "qos": args.qos,
        "payload_bytes": args.size,
        "rate": args.rate,
        "delivered": len(delays),
        "lost": expected - len(delays),
        "latency_us": {"p50": pct(0.5), "p90": pct(0.9), "p99": pct(0.99), "p999": pct(0.999), "max": pct(1)},
    }


def watched(args: argparse.Namespace) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for spec in args.pid or []:
        name, _, pid = spec.rpartition("=")
        out[name or pid] = process_tree(int(pid))
    return out


def parse_arguments(description: str | None) -> argparse.Namespace:
    ap = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--pub", required=True, metavar="HOST:PORT")
    ap.add_argument("--sub", metavar="HOST:PORT")
    ap.add_argument("--topology", choices=["pairs", "fanout", "fanin"], default="pairs")
    ap.add_argument("--clients", type=int, default=10)
    ap.add_argument("--qos", type=int, choices=[0, 1], default=0)
    ap.add_argument("--size", type=int, default=100, help="payload bytes")
    ap.add_argument("--messages", type=int, default=200_000, help="messages published in all")
    ap.add_argument("--window", type=int, default=1000, help="most messages of a publisher on the way")
    ap.add_argument("--block", type=int, default=50, help="messages in one send")
    ap.add_argument("--durable", action="store_true", help="subscribers have no clean session")
    ap.add_argument("--share", action="store_true", help="each subscriber is the member of a shared group")
    ap.add_argument("--latency", action="store_true")
    ap.add_argument("--rate", type=float, default=1000.0, help="messages a second in --latency mode")
    ap.add_argument("--settle", type=float, default=1.0, help="seconds between subscribing and publishing")
    ap.add_argument("--pid", action="append", metavar="NAME=PID")
    ap.add_argument("--mqtt5", dest="version", action="store_const", const=MQTT5, default=MQTT311)
    ap.add_argument("--raw", action="store_true", help="no MQTT before the load: to a relay that reads nothing of it")
    ap.add_argument("--user")
    ap.add_argument("--password")
    ap.add_argument("--transport", choices=["tcp", "tls", "ws"], default="tcp")
    ap.add_argument("--cacert", default="", metavar="FILE")
    args = ap.parse_args()
    args.sub = args.sub or args.pub
    if args.latency and args.size < 8:
        ap.error("--latency stamps the payload: --size must be at least 8")
    return args


def finish(result: str, pubs: list[Publisher], subs: list[Subscriber], lost: int) -> int:
    for c in pubs + subs:
        c.sock.close()
    print(result)
    return 1 if lost else 0


def main() -> int:
    args = parse_arguments(__doc__)
    pubs, subs = set_up(args)
    result = latency(args, pubs, subs) if args.latency else throughput(args, pubs, subs)
    return finish(json.dumps(result), pubs, subs, result["lost"])


if __name__ == "__main__":
    sys.exit(main())
