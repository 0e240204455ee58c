"""Homes that other nodes send to, and that this node, which has a session of the client, does not know.

A node that has just started, or was cut off, hears where the messages of another one go before it has met that home. It waits
for the home, whose claim says the rest. Where none has come in time, that one is away: this node claims the client above it,
and the two merge their sessions when they meet.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.message import NEVER
from federation.sessions.arriving import Epoch
from federation.sessions.home import Home
from federation.sessions.homes import Homes

KNOWN_SECONDS_MAX: Final = 5.0  # a home is waited for so long that another node sends to
CLAIMS_OF_A_TURN: Final = 256


class UnknownHomes:
    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        # By client id, the oldest first: until when it is waited for, and its epoch.
        self._waiting: dict[str, tuple[float, Epoch]] = {}

    def add(self, client_id: str, epoch: Epoch, until: float) -> None:
        """The client has this home, which is waited for until then."""
        until, known = self._waiting.get(client_id, (until, epoch))
        self._waiting[client_id] = until, max(epoch, known)

    def next_timeout(self) -> float:
        """Return when to call take_due; NEVER for not at all."""
        for until, _ in self._waiting.values():
            return until
        return NEVER

    def take_due(self, now: float) -> list[tuple[Home, Epoch]]:
        """Some that are waited for no more, with the home here of the same client, which has a lower epoch."""
        found: list[tuple[Home, Epoch]] = []
        for client_id, (until, epoch) in list(self._waiting.items())[:CLAIMS_OF_A_TURN]:
            if until > now:
                break
            del self._waiting[client_id]
            home = self._homes.by_client.get(client_id)
            if home is not None and self._homes.epoch_of(home) < epoch:
                found.append((home, epoch))
        return found
