#!/usr/bin/env python3
"""What stands around the node that scripts/bench gossip measures. It runs until it is ended.

members  many bare members of a cluster in one process, each with sockets and gossip of its own, that join a node
flood    packets that are no gossip, at a steady rate: random bytes, and messages that are cut off, changed or nested
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # of this checkout, whatever is installed

from broker.server.logging import get_logger
from federation.gossip.keyring import parse_key
from federation.gossip.messages import OUR_VERSIONS, Alive, Ping
from federation.serf.config import SerfConfig
from federation.serf.serf import Serf
from federation.shell.gossip import GossipShell
from federation.shell.gossip_sockets import bind_gossip

BURST_SECONDS = 0.002


async def members(count: int, join: str, keys: tuple[bytes, ...]) -> None:
    shells = []
    for number in range(count):
        sockets = bind_gossip("127.0.0.1", 0)
        config = SerfConfig(f"member{number}", "127.0.0.1", sockets.port, encrypt_keys=keys)
        serf = Serf(config, random.Random(number), asyncio.get_running_loop().time())
        shell = GossipShell(serf, sockets, lambda events: None, get_logger("gossip"))
        await shell.start()
        await shell.join([join])
        shells.append(shell)
    await asyncio.Event().wait()


def garbage(rng: random.Random) -> bytes:
    """One packet of which nothing can be used."""
    alive = Alive(1, "x" * 20, bytes(4), 1, bytes(100), OUR_VERSIONS).encode()
    ping = Ping(1, "somebody", bytes((127, 0, 0, 1)), 1, "else").encode()
    return rng.choice(
        (
            rng.randbytes(rng.randrange(1, 1400)),
            alive[: rng.randrange(1, len(alive))],
            ping,
            b"\x07\x04" + bytes((0, len(ping))) * 4 + ping * 3,
            b"\x07\x01\x00\x40" * 16,
            b"\x08\x04" + rng.randbytes(60),
            b"\x09\x82\xa4Algo\x00\xa3Buf\xa8" + rng.randbytes(8),
            b"\x0c" + rng.randbytes(200),
            bytes((rng.randrange(256),)) + b"\xdf\xff\xff\xff\xff",
        )
    )


def flood(target: str, rate: int) -> None:
    host, _, port = target.rpartition(":")
    rng = random.Random(1)
    packets = [garbage(rng) for _ in range(1000)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.connect((host, int(port)))
        began, sent = time.perf_counter(), 0
        while True:
            due = int((time.perf_counter() - began) * rate)
            for number in range(sent, due):
                sending.send(packets[number % len(packets)])
            sent = max(sent, due)
            time.sleep(BURST_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("members", "flood"))
    parser.add_argument("--to", required=True, metavar="HOST:PORT", help="gossip address of the node")
    parser.add_argument("--count", type=int, default=49)
    parser.add_argument("--key", default="")
    parser.add_argument("--rate", type=int, default=50_000, help="packets a second")
    options = parser.parse_args()
    if options.kind == "flood":
        flood(options.to, options.rate)
    else:
        asyncio.run(members(options.count, options.to, (parse_key(options.key),) if options.key else ()))


if __name__ == "__main__":
    main()
