"""Frames about sessions, from the receivers to the sessions of this node."""

# compiled with mypyc
from __future__ import annotations

from federation.sessions.sessions import Sessions
from federation.stream.effects import SessionEvents


class SessionsHeard(SessionEvents):
    """Passes frames about sessions on to those of this node."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def receive(self, name: str, data: bytes, now: float) -> None:
        if self._sessions.lost is not None:
            self._sessions.lost.heard(name)
        self._sessions.receive(name, data, now)
