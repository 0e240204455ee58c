#!/usr/bin/env python3
"""Read a node's event log at full speed, from its first record to its last one, and drop the blocks.

It asks for the next answer while it has one, as a task of Spark does (pipeline/client.py). Without --once it begins again and
again, until its standard input ends, and prints a line when it has the first blocks. Prints one JSON object at the end: bytes,
seconds, bytes a second.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time

from gmqttctl.connection import Connection
from pipeline.client import NodeClient


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--api", required=True, metavar="HOST:PORT", help="the node's gRPC API")
    ap.add_argument("--once", action="store_true", help="read the log once")
    args = ap.parse_args()
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    if not args.once:
        threading.Thread(target=wait_for_end, daemon=True).start()
    count = 0
    start = time.perf_counter()
    with NodeClient(args.api, Connection((args.api,))) as client:
        while not ended.is_set():
            log = client.describe()
            for _, _, blocks in client.read(log.log_id, log.first_offset, log.next_offset):
                if not count and not args.once:
                    print("reading", flush=True)
                count += len(blocks)
                if ended.is_set():
                    break
            if args.once:
                break
    seconds = time.perf_counter() - start
    print(json.dumps({"bytes": count, "seconds": seconds, "bytes_per_s": count / seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
