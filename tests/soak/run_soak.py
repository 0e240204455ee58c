"""A long soak: see scripts/soak."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import uvloop

from soak import Soak

SHOWN = (
    "gmqtt_message_copies_total",
    "gmqtt_messages_sent_total 0",
    "gmqtt_messages_acknowledged_total",
    "gmqtt_messages_redelivered_total",
    "dropped",
    "waiting",
    "gmqtt_messages_without_receivers_total",
    "gmqtt_connections_opened_total",
)


async def soak(options: argparse.Namespace, directory: Path) -> int:
    run = Soak(directory, options.clients, options.seconds, options.seed)
    try:
        metrics = await run.run()
    except AssertionError as error:
        print(f"soak: {error}")
        return 1
    for name in SHOWN:
        print(f"{name:45} {metrics.get(name, 0):12.0f}")
    for way, count in sorted(run.left.items()):
        print(f"left by {way:37} {count:12}")
    print(f"memory {[size // 2**20 for size in run.memory]} MB, descriptors {run.descriptors}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=2000, help="at a time")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(soak(options, Path(directory)))


if __name__ == "__main__":
    sys.exit(main())
