"""What the receivers hear of the sessions of other nodes."""

# compiled with mypyc
from __future__ import annotations

from federation.sessions.sessions import Sessions
from federation.stream.effects import SessionEvents


class SessionsHeard(SessionEvents):
    """What the receivers hear of those of others."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def receive(self, name: str, data: bytes, now: float) -> None:
        if self._sessions.lost is not None:
            self._sessions.lost.heard(name)
        self._sessions.receive(name, data, now)
