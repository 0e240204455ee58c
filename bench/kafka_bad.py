#!/usr/bin/env python3
"""Clients of Kafka's protocol that do all that is wrong, until standard input ends.

20 clients send Fetch after Fetch and read nothing; one that was closed comes again. Every 20 ms another one connects and sends
a request that is none, and one asks for offsets that the log does not have. Prints a line when the first ones have sent
everything, and one JSON object at the end: the connections that were made.
"""

from __future__ import annotations

import argparse
import itertools
import json
import select
import socket
import struct
import sys

from mqtt_load import address

from broker.kafka.fields import encode
from broker.kafka.frames import APIS, HEADER, SIZE
from broker.kafka.messages import FETCH

LAZY = 20
FETCHES = 8  # of each of them
PAUSE_SECONDS = 0.02
PATIENCE_SECONDS = 5.0
VERSION = 11  # of Fetch
NO_CLIENT_ID = b"\xff\xff"
BAD = (
    SIZE.pack(2**31 - 1),
    SIZE.pack(14) + HEADER.pack(FETCH, 99, 1) + NO_CLIENT_ID + bytes(4),
    SIZE.pack(3) + b"abc",
    SIZE.pack(100) + b"\0\1\0\x0b",
    b"GET / HTTP/1.1\r\n\r\n",
)
ODD_OFFSETS = (2**60, -1)


def fetch(offset: int) -> bytes:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": 2**20,
    }
    values = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 50 * 2**20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "mqtt", "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    data = HEADER.pack(FETCH, VERSION, 1) + NO_CLIENT_ID + encode(APIS[FETCH].request, VERSION, values)
    return SIZE.pack(len(data)) + data


def connected(addr: tuple[str, int], data: bytes) -> socket.socket:
    sock = socket.create_connection(addr, PATIENCE_SECONDS)
    sock.sendall(data)
    return sock


def is_closed(sock: socket.socket) -> bool:
    """Return whether the node has reset the connection: what was sent before stays unread."""
    poll = select.poll()
    poll.register(sock, select.POLLHUP)
    return bool(poll.poll(0))


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--to", required=True, metavar="HOST:PORT", help="Kafka listener of the node")
    addr = address(ap.parse_args().to)
    made = itertools.count()
    from_start = fetch(0) * FETCHES

    def lazy_one() -> socket.socket:
        next(made)
        return connected(addr, from_start)

    lazy = [lazy_one() for _ in range(LAZY)]
    print("ready", flush=True)
    for number in itertools.count():
        if select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
            break
        connected(addr, BAD[number % len(BAD)]).close()
        with connected(addr, fetch(ODD_OFFSETS[number % len(ODD_OFFSETS)])) as sock:
            size = struct.unpack(">i", sock.recv(SIZE.size, socket.MSG_WAITALL))[0]
            sock.recv(size, socket.MSG_WAITALL)
        next(made)
        next(made)
        for place, sock in enumerate(lazy):
            if is_closed(sock):
                sock.close()
                lazy[place] = lazy_one()
    print(json.dumps({"connections": next(made)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
