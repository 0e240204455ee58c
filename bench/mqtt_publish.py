#!/usr/bin/env python3
"""Publish distinct MQTT 3.1.1 messages whose payloads do not compress: one process, raw sockets, nobody subscribes.

A payload is the message's number (u64, big endian), then random bytes, so that a reader of the event log can tell that each
message is there once. At QoS 1 at most `--window` messages of a client wait for their PUBACK. At QoS 0 the connection alone
slows a client down, and a PINGRESP behind the last message says that the node has all of them.

Prints one JSON object: messages, seconds, messages a second.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import sys
import time
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mqtt_load import address, one_publish, open_client, read_packet

CHUNK: Final = 1000  # messages that are encoded at once; a multiple of every --run
NUMBER_BYTES: Final = 8
TOPICS: Final = 10  # of a client
PACKET_IDS: Final = 65535
PINGREQ: Final = b"\xc0\0"
PINGRESP: Final = 0xD0
PUBACK_BYTES: Final = 4
SEND_BYTES: Final = 65536
PATIENCE_SECONDS: Final = 60.0

Octets = npt.NDArray[np.uint8]


def encode(topics: list[str], run: int, qos: int, size: int, first: int, count: int, packet_id: int) -> bytes:
    """`count` messages from number `first` on; `run` messages follow each other on a topic. The topics have one length."""
    numbers = np.arange(first, first + count)
    packets = [np.frombuffer(one_publish(topic, qos, b"\0" * size)[0], np.uint8) for topic in topics]
    out: Octets = np.stack(packets)[(numbers // run) % len(topics)]
    if qos:
        at = one_publish(topics[0], qos, b"\0" * size)[1]
        ids = (packet_id - 1 + np.arange(count)) % PACKET_IDS + 1
        out[:, at : at + 2] = ids.astype(">u2").view(np.uint8).reshape(count, 2)
    payload = out.shape[1] - size
    out[:, payload : payload + NUMBER_BYTES] = numbers.astype(">u8").view(np.uint8).reshape(count, NUMBER_BYTES)
    random = np.frombuffer(os.urandom(count * (size - NUMBER_BYTES)), np.uint8)
    out[:, payload + NUMBER_BYTES :] = random.reshape(count, -1)
    return out.tobytes()


class Publisher:
    """One client and its messages: the numbers first..end - 1."""

    def __init__(self, sock: socket.socket, topics: list[str], first: int, end: int, args: argparse.Namespace) -> None:
        self.sock = sock
        self.sent = 0  # whole messages
        self.acknowledged = 0
        self.end = end - first
        self._topics, self._first, self._args = topics, first, args
        self._length = len(one_publish(topics[0], args.qos, b"\0" * args.size)[0])
        self._chunk = memoryview(b"")
        self._bytes = 0  # that were sent
        self._partial = 0

    def push(self) -> bool:
        """Send what the window allows. False when nothing could be sent."""
        args, length = self._args, self._length
        room = self.end if args.qos == 0 else min(self.end, self.acknowledged + args.window)
        allowed = min(room * length - self._bytes, SEND_BYTES)
        if allowed <= 0:
            return False
        if not self._chunk:
            done = self._bytes // length
            count = min(CHUNK, self.end - done)
            first, packet_id = self._first + done, done % PACKET_IDS + 1
            self._chunk = memoryview(encode(self._topics, args.run, args.qos, args.size, first, count, packet_id))
        try:
            count = self.sock.send(self._chunk[:allowed])
        except BlockingIOError:
            return False
        self._chunk = self._chunk[count:]
        self._bytes += count
        self.sent = self._bytes // length
        return True

    def take(self, data: bytes) -> None:
        whole, self._partial = divmod(self._partial + len(data), PUBACK_BYTES)
        self.acknowledged += whole

    def stop(self) -> None:
        """Publish no more than what was sent, and the rest of a message of which a part was sent."""
        self.end = min(self.end, -(-self._bytes // self._length))

    @property
    def is_done(self) -> bool:
        return self._bytes == self.end * self._length and (self._args.qos == 0 or self.acknowledged == self.end)


def publish(publishers: list[Publisher], seconds: float) -> float:
    """The seconds until the node has everything. Publishers stop after `seconds`; 0 for no limit."""
    epoll = select.epoll()
    by_fd = {publisher.sock.fileno(): publisher for publisher in publishers}
    for fd, publisher in by_fd.items():
        publisher.sock.setblocking(False)
        epoll.register(fd, select.EPOLLIN)
    todo = set(publishers)
    start = last = time.perf_counter()
    is_stopped = not seconds
    while todo:
        moved = False
        for publisher in list(todo):
            moved = publisher.push() or moved
            if publisher.is_done:
                todo.remove(publisher)
        for fd, _ in epoll.poll(0 if moved else 0.0005):
            data = by_fd[fd].sock.recv(65536)
            if not data:
                raise SystemExit("the broker closed a connection under load")
            by_fd[fd].take(data)
            moved = True
        now = time.perf_counter()
        last = now if moved else last
        if now - last > PATIENCE_SECONDS:
            raise SystemExit(f"nothing was sent or acknowledged for {PATIENCE_SECONDS:.0f} s")
        if not is_stopped and now - start > seconds:
            is_stopped = True
            for publisher in publishers:
                publisher.stop()
                if publisher.is_done:
                    todo.discard(publisher)
    for publisher in publishers:
        publisher.sock.setblocking(True)
        publisher.sock.sendall(PINGREQ)
    for publisher in publishers:
        if read_packet(publisher.sock)[0] != PINGRESP:
            raise SystemExit("no PINGRESP behind the last message")
    return time.perf_counter() - start


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--to", required=True, metavar="HOST:PORT")
    ap.add_argument("--clients", type=int, default=10)
    ap.add_argument("--qos", type=int, choices=[0, 1], default=0)
    ap.add_argument("--size", type=int, default=100, help="payload bytes, at least 8")
    ap.add_argument("--messages", type=int, required=True, help="of all clients")
    ap.add_argument("--seconds", type=float, default=0.0, help="publish for so long, and at most --messages")
    ap.add_argument("--first", type=int, default=0, help="number of the first message")
    ap.add_argument("--run", type=int, default=50, help="messages in a row on one topic")
    ap.add_argument("--window", type=int, default=1000, help="messages of a client without PUBACK at QoS 1")
    args = ap.parse_args()
    publishers: list[Publisher] = []
    bounds = [args.first + args.messages * number // args.clients for number in range(args.clients + 1)]
    for number in range(args.clients):
        sock = open_client(address(args.to), f"publisher-{os.getpid()}-{number}")
        topics = [f"bench/{number:04d}/{topic:04d}" for topic in range(TOPICS)]
        publishers.append(Publisher(sock, topics, bounds[number], bounds[number + 1], args))
    seconds = publish(publishers, args.seconds)
    messages = sum(publisher.sent for publisher in publishers)
    result: dict[str, Any] = {"messages": messages, "seconds": seconds, "per_s": messages / seconds}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
