"""What the rest of the broker knows about the listener of a connection."""

from __future__ import annotations

from typing import Final


class ListenerFacts:
    """name             the listener's address: HOST:PORT, or the path of a Unix socket
    transport        "tcp", "tls", "ws", "wss" or "unix"
    allow_anonymous  whether clients without credentials may connect here. None: the settings of authentication decide
    """

    def __init__(self, name: str, transport: str, allow_anonymous: bool | None = None) -> None:
        self.name = name
        self.transport = transport
        self.allow_anonymous = allow_anonymous


NO_LISTENER: Final = ListenerFacts("", "tcp")  # of a connection that no listener accepted: a simulated client
