"""Broadcasts that were decoded lately: a node gets each of them some ten times, and nodes of one process share them."""

from __future__ import annotations

from typing import Final, TypeVar

from federation.gossip.messages import Accusation, Alive

DECODED_MAX: Final = 2048
"""Decoded broadcasts that are kept; when there are so many all are forgotten."""
DECODED_BYTES_MAX: Final = 1024
"""Longest broadcast that is kept; longer ones are decoded each time."""

_Decoded = TypeVar("_Decoded", Alive, Accusation)


class DecodedBroadcasts:
    """Both methods take a whole message with its type byte and raise WireError. What they give must not be changed."""

    def __init__(self) -> None:
        self._alive: dict[bytes, Alive] = {}
        self._accusations: dict[bytes, Accusation] = {}

    def alive(self, message: bytes) -> Alive:
        found = self._alive.get(message)
        if found is None:
            found = Alive.decode(message[1:])
            _keep(self._alive, message, found)
        return found

    def accusation(self, message: bytes) -> Accusation:
        """A suspect or a dead message."""
        found = self._accusations.get(message)
        if found is None:
            found = Accusation.decode(message[1:])
            _keep(self._accusations, message, found)
        return found


def _keep(kept: dict[bytes, _Decoded], message: bytes, decoded: _Decoded) -> None:
    if len(message) <= DECODED_BYTES_MAX:
        if len(kept) >= DECODED_MAX:
            kept.clear()
        kept[message] = decoded
