"""A join under way: its addresses and their errors (wire-gossip 6.9)."""

from __future__ import annotations

from typing import Final

from federation.gossip.addresses import Address
from federation.serf.events import JoinResult

JOIN_ADDRESSES_MAX: Final = 64
"""Addresses of one join; more are refused."""


class PendingJoin:
    def __init__(self, join_id: int, addresses: list[Address], ignores_old: bool = False) -> None:
        self.join_id = join_id
        self.ignores_old = ignores_old
        self._addresses = addresses
        self._missing = len(addresses)
        self._errors: dict[Address, str] = {}
        self.joined = 0

    def finished(self, index: int, error: str) -> bool:
        """The push-pull with address number `index` is over. True when all are."""
        self._missing -= 1
        if error:
            self._errors[self._addresses[index]] = error
        else:
            self.joined += 1
        return self._missing == 0

    def result(self) -> JoinResult:
        return JoinResult(self.join_id, self.joined, self._errors)
