"""Strategies of shared groups (`shared_subscription_strategy`): which member gets the next message, and which node.

A hash goes to whoever has the highest score for it among the nodes, and there among the members (rendezvous hashing): every
node finds the same one, and one that comes or goes changes only what it takes or had. The numbers are the same on every node:
docs/protocol-extensions.md.
"""

# compiled with mypyc
from __future__ import annotations

from math import log
from typing import Final
from zlib import crc32

from mypy_extensions import i64

LOCAL_FIRST: Final = 0
ROUND_ROBIN: Final = 1
LEAST_INFLIGHT: Final = 2
HASH_TOPIC: Final = 3
HASH_CLIENTID: Final = 4
STRATEGIES: Final = ("local_first", "round_robin", "least_inflight", "hash_topic", "hash_clientid")  # by number

MASK: Final = 0x7FFFFFFF
FIRST: Final = 0x7FEB352D
SECOND: Final = 0x2C1B3C6D
HASHES: Final = 2147483649.0  # one more than there are


def hash_of(text: bytes) -> int:
    """The hash of a topic, a client identifier or the name of a node: 1 to 2^31 - 1."""
    return (crc32(text) & MASK) or 1


def score(key: int, whose: int) -> int:
    """The score of a member or node, by its hash, for a key: 0 to 2^31 - 1."""
    x: i64 = key
    y: i64 = whose
    x = (x * FIRST + y * SECOND) & MASK  # below 2^63 before
    x ^= x >> 15
    x = (x * SECOND) & MASK
    x ^= x >> 14
    x = (x * FIRST) & MASK
    x ^= x >> 16
    return int(x)


def weighted_score(key: int, whose: int, members: int) -> float:
    """The score of a node with so many members: it is the highest one of that share of all keys."""
    return members / -log((score(key, whose) + 1) / HASHES)
