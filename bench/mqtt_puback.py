#!/usr/bin/env python3
"""Publish one message of QoS 1 every --every milliseconds, or when the one before is acknowledged, and measure when its PUBACK
comes.

Prints one JSON object: the number of messages, and percentiles in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from mqtt_load import address, one_publish, open_client, read_packet

PUBACK = 0x40
PACKET_ID = b"\0\1"  # of each message: the one before is acknowledged
PAYLOAD = b"x" * 100


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--to", required=True, metavar="HOST:PORT", help="MQTT listener of the node")
    ap.add_argument("--seconds", type=float, default=4.0)
    ap.add_argument("--every", type=float, default=5.0, metavar="MS")
    args = ap.parse_args()
    encoded, id_at = one_publish("puback/1", 1, PAYLOAD)
    message = encoded[:id_at] + PACKET_ID + encoded[id_at + len(PACKET_ID) :]
    sock = open_client(address(args.to), "puback")
    found: list[float] = []
    due = time.perf_counter()
    end = due + args.seconds
    while due < end:
        time.sleep(max(due - time.perf_counter(), 0))
        due = time.perf_counter()
        sock.sendall(message)
        first, body = read_packet(sock)
        if (first, body) != (PUBACK, PACKET_ID):
            raise SystemExit(f"packet {first:#x} with {body.hex()} instead of the PUBACK")
        found.append((time.perf_counter() - due) * 1e3)
        due += args.every / 1e3
    found.sort()
    percentiles = {f"p{share}_ms": found[len(found) * share // 100] for share in (50, 99)}
    print(json.dumps({"messages": len(found), **percentiles, "max_ms": found[-1]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
