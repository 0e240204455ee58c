"""A digest of the filters of one node, which two nodes compare. It changes with each filter, in any order."""

# compiled with mypyc
from __future__ import annotations

from hashlib import blake2b
from typing import Final

DIGEST_BYTES: Final = 8
DIGESTS: Final = 1 << 64


class InterestDigest:
    """count  number of filters
    total  sum of their hashes, modulo 2^64: not against forgery, a node may say of its interest what it likes
    """

    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0

    def change(self, share_name: bytes, topic_filter: bytes, is_added: bool) -> None:
        data = len(share_name).to_bytes(2, "big") + share_name + topic_filter
        number = int.from_bytes(blake2b(data, digest_size=DIGEST_BYTES).digest(), "big")
        self.count += 1 if is_added else -1
        self.total = (self.total + (number if is_added else -number)) % DIGESTS

    def encode(self) -> bytes:
        """count u32 | total u64."""
        return self.count.to_bytes(4, "big") + self.total.to_bytes(8, "big")
