"""Another client that takes the session of a link again and again, at a broker that does not say so (0x8E) when it happens."""

from __future__ import annotations

from typing import Final

from federation.links.backoff import STABLE_SECONDS
from federation.links.client import End

CUT_SHORT_MAX: Final = 3
"""Connections in a row that resumed the session and were closed within STABLE_SECONDS: a network fails less regularly, and
a broker that restarts refuses connections in between."""
TEXT: Final = (
    f"{CUT_SHORT_MAX} connections in a row were closed soon: another node of this domain, or a cluster with the same `domain` "
    "or `consumer-tag`, may have connected"
)


class Rival:
    """Counts connections that were cut short."""

    def __init__(self) -> None:
        self._times = 0

    def has_session(self, end: End, is_resumed: bool, ran_for: float) -> bool:
        """A connection is over, or could not be made. True when another client probably has the session now."""
        if end is End.LOST and is_resumed and ran_for < STABLE_SECONDS:
            self._times += 1
        elif end is not End.TAKEN:
            self._times = 0
        return self._times >= CUT_SHORT_MAX
