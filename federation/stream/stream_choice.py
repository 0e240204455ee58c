"""The choice between the two streams for the next attempt to reach a node.

A node of this kind is reached on a direct stream. Something between may let only gRPC through: an address that takes the
Hello of a direct stream and does not answer it is tried over gRPC next. Each attempt over gRPC uses that up. While the stream
is one of gRPC, a probe asks every PROBE_SECONDS whether a direct Hello is answered by now. Nothing stands between workers of
one node, which have Unix sockets.
"""

# compiled with mypyc
from __future__ import annotations

from enum import Enum
from typing import Final

from broker.message import NEVER

PROBE_SECONDS: Final = 30.0
UNIX: Final = "unix:"  # before the path of a Unix socket


class StreamKind(Enum):
    DIRECT = "direct"
    GO = "gRPC"


class StreamChoice:
    """kind   of the present attempt
    probe   number of the newest probe; the shell makes each once
    is_tls      the address takes TLS: nothing between can let only gRPC through, so there is no other kind to try
    is_go_only  the address takes the Go broker's stream and no other
    """

    def __init__(self) -> None:
        self.is_tls = False
        self.is_go_only = False
        self.kind = StreamKind.DIRECT
        self.probe = 0
        self._addr = ""
        self._unanswered_addr = ""
        self._is_hello_sent = False  # on a direct stream, and not answered
        self._probe_at = NEVER

    def begin(self, extended: bool, addr: str) -> None:
        """An attempt begins. `extended`: the node takes direct streams."""
        self._addr = addr
        self._is_hello_sent = False
        self._probe_at = NEVER
        is_tried = addr != self._unanswered_addr or self.is_tls or addr.startswith(UNIX)
        if extended and not self.is_go_only and is_tried:
            self.kind = StreamKind.DIRECT
        else:
            self.kind = StreamKind.GO
            self._unanswered_addr = ""

    def hello_sent(self) -> None:
        """The connection of a direct stream took a Hello."""
        self._is_hello_sent = True

    def hello_answered(self) -> None:
        """With a reply of a direct stream, also a refusal."""
        self._is_hello_sent = False

    def attempt_ended(self) -> None:
        self._probe_at = NEVER
        if self._is_hello_sent:
            self._is_hello_sent = False
            self._unanswered_addr = self._addr

    def stream_began(self, extended: bool, now: float) -> None:
        if extended and self.kind is StreamKind.GO and not self.is_go_only:
            self._probe_at = now + PROBE_SECONDS

    def next_timeout(self) -> float:
        """Return when to call handle_timeout; NEVER for not at all."""
        return self._probe_at

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early."""
        if now >= self._probe_at:
            self.probe += 1
            self._probe_at = now + PROBE_SECONDS
