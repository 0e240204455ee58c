#!/usr/bin/env python3
"""Subscribe and take messages of mqtt_publish.py until all have come, each at least once: one client, a raw socket.

Prints a line when the subscription is acknowledged, then one JSON object: messages, those that came again, seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from mqtt_inbox import PUBLISH, Inbox
from mqtt_load import MQTT5, MQTT311, address, log_in, open_socket, subscribe
from mqtt_publish import NUMBER_BYTES

PATIENCE_SECONDS = 60.0
PUBACK = b"\x40\x02"


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--to", required=True, type=address, metavar="HOST:PORT")
    ap.add_argument("--filter", required=True)
    ap.add_argument("--qos", type=int, default=0, choices=(0, 1))
    ap.add_argument("--version", type=int, default=MQTT311, choices=(MQTT311, MQTT5))
    ap.add_argument("--messages", required=True, type=int)
    args = ap.parse_args()
    sock = open_socket(args.to, "receiver")
    log_in(sock, "receiver", version=args.version)
    inbox = Inbox(sock)
    subscribe(sock, args.filter, args.qos, args.version)
    print("subscribed", flush=True)
    start = time.perf_counter()
    seen: set[bytes] = set()
    repeated = 0
    while len(seen) < args.messages:
        packets = inbox.packets(PATIENCE_SECONDS)
        if not packets:
            raise SystemExit(f"{len(seen)} of {args.messages} messages came, then none for {PATIENCE_SECONDS:.0f} s")
        acks = []
        for kind, body in packets:
            if kind != PUBLISH:
                continue
            payload_at = 2 + (body[0] << 8 | body[1])
            if args.qos:
                acks.append(PUBACK + body[payload_at : payload_at + 2])
                payload_at += 2
            if args.version == MQTT5:
                payload_at += 1 + body[payload_at]  # less than 128 bytes of properties
            number = body[payload_at : payload_at + NUMBER_BYTES]
            repeated += number in seen
            seen.add(number)
        sock.sendall(b"".join(acks))
    print(json.dumps({"messages": len(seen), "repeated": repeated, "seconds": time.perf_counter() - start}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
