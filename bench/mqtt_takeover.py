#!/usr/bin/env python3
"""A durable client that moves from one node to another one, with messages that wait for it.

--moves times by turns: its client goes away, --messages messages of QoS 1 are published to the node that has its session, and
the client connects to the other node and reads them, each acknowledged. Only then the next move begins. What does not come, or
comes twice, is counted.

Prints one JSON object: ms from CONNECT to CONNACK, and to the last message.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import time
from typing import Any, Final

from mqtt_load import address, connect_packet, log_in, one_publish, open_client, open_socket, read_packet, subscribe
from mqtt_offline import leave

PAYLOAD_BYTES: Final = 100
SETTLE_SECONDS: Final = 0.2
EXTRA_SECONDS: Final = 0.3  # for messages that come twice


def publish(at: str, topic: str, count: int) -> None:
    """Until the last PUBACK. Payloads are numbers."""
    sock = open_client(address(at), f"publisher-{os.getpid()}")
    for number in range(count):
        encoded, id_at = one_publish(topic, 1, b"%0*d" % (PAYLOAD_BYTES, number))
        sock.sendall(encoded[:id_at] + (number % 65535 + 1).to_bytes(2, "big") + encoded[id_at + 2 :])
    for _ in range(count):
        read_packet(sock)
    leave(sock)


def take_over(at: str, client_id: str, count: int) -> tuple[float, float, list[int], socket.socket]:
    """Connect and read `count` messages. Returns seconds to CONNACK and to the last one, what came, the connection."""
    sock = open_socket(address(at), client_id)
    begun = time.perf_counter()
    sock.sendall(connect_packet(client_id, is_clean=False))
    first, body = read_packet(sock)
    known = time.perf_counter() - begun
    if first != 0x20 or body != b"\x01\x00":
        raise SystemExit(f"{client_id}: the session is not there: {first:#x} {body.hex()}")
    numbers: list[int] = []
    while len(set(numbers)) < count:
        numbers.append(read_message(sock))
    return known, time.perf_counter() - begun, numbers, sock


def read_message(sock: socket.socket) -> int:
    """The number of the next message, which is acknowledged."""
    first, body = read_packet(sock)
    if first >> 4 != 3:
        raise SystemExit(f"a packet that is no PUBLISH: {first:#x}")
    id_at = 2 + int.from_bytes(body[:2], "big")
    sock.sendall(b"\x40\x02" + body[id_at : id_at + 2])
    return int(body[id_at + 2 :])


def extra(sock: socket.socket) -> int:
    """Return how many more messages come."""
    sock.settimeout(EXTRA_SECONDS)
    count = 0
    try:
        while True:
            read_message(sock)
            count += 1
    except TimeoutError:
        sock.settimeout(None)
        return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", nargs=2, required=True, metavar="HOST:PORT")
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--moves", type=int, default=10)
    args = parser.parse_args()
    client_id, topic = f"moving-{os.getpid()}", f"moving/{os.getpid()}"
    sock = open_socket(address(args.nodes[0]), client_id)
    log_in(sock, client_id, is_clean=False)
    subscribe(sock, topic, 1)
    known: list[float] = []
    whole: list[float] = []
    repeated = 0
    for move in range(args.moves):
        home, other = args.nodes[move % 2], args.nodes[1 - move % 2]
        leave(sock)
        time.sleep(SETTLE_SECONDS)
        publish(home, topic, args.messages)
        to_connack, to_last, numbers, sock = take_over(other, client_id, args.messages)
        known.append(to_connack * 1e3)
        whole.append(to_last * 1e3)
        repeated += len(numbers) - args.messages + extra(sock)
    leave(sock)
    open_client(address(other), client_id).close()
    out: dict[str, Any] = {"moves": args.moves, "repeated": repeated}
    for name, values in (("connack_ms", known), ("whole_ms", whole)):
        out[name] = {"p50": round(statistics.median(values), 1), "max": round(max(values), 1)}
    print(json.dumps(out))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
