"""One end of a simulated event stream: what the shells around the cores have in common."""

from __future__ import annotations

from typing import Any

from simulator.network import Stream


class StreamEnd:
    """This node's end of one stream. `core` is of federation.stream; each subclass names its type."""

    core: Any

    def __init__(self, core: object, stream: Stream) -> None:
        self.core = core
        self.stream = stream

    @property
    def is_over(self) -> bool:
        """The stream is to be closed."""
        over: bool = self.core.is_over
        return over

    def received(self, data: bytes, now: float) -> None:
        raise AssertionError("a subclass implements this")

    def closed(self, reason: str, now: float) -> None:
        raise AssertionError("a subclass implements this")

    def flush(self, now: float) -> bool:
        """Write what the core wants written; whether there was anything."""
        return False

    def next_timeout(self) -> float:
        at: float = self.core.next_timeout()
        return at

    def handle_timeout(self, now: float) -> None:
        self.core.handle_timeout(now)
