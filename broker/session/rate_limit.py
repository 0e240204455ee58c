"""Messages and bytes a second of one client.

A chunk of input is handled whole. Then the client is not read until its messages and bytes are within its rates again, so that
TCP slows it down and nothing is dropped. A client that stays below its rates for a second may send those of one second at once.
"""

# compiled with mypyc
from __future__ import annotations

from broker.context import Context
from broker.message import NEVER
from broker.publisher import Publisher
from broker.timers import Timed
from broker.token_bucket import TokenBucket


class RateLimit(Timed):
    """Pauses a publisher that is above its rates; 0 is no limit. The deadline is the end of the pause."""

    def __init__(self, context: Context, publisher: Publisher, messages_rate: int, bytes_rate: int, now: float) -> None:
        super().__init__()
        self._context = context
        self._publisher = publisher
        self._messages = TokenBucket(messages_rate, now) if messages_rate else None
        self._bytes = TokenBucket(bytes_rate, now) if bytes_rate else None
        self._messages_charged = 0
        self._bytes_charged = 0
        self._until = NEVER

    def charge(self, messages: int, size: int, now: float) -> None:
        """The publisher has sent so many messages and bytes since its connection began."""
        until = now
        if self._messages is not None:
            self._messages.take(messages - self._messages_charged, now)
            until = max(until, self._messages.in_debt_until())
            self._messages_charged = messages
        if self._bytes is not None:
            self._bytes.take(size - self._bytes_charged, now)
            until = max(until, self._bytes.in_debt_until())
            self._bytes_charged = size
        if until <= now:
            return
        if self._until == NEVER:
            self._context.counters.publishers_slowed += 1
            self._context.pause(self._publisher)
        self._until = until
        self._context.timers.schedule(self)

    def deadline(self) -> float:
        return self._until

    def handle_timeout(self, now: float) -> None:
        self._until = NEVER
        self._context.release(self._publisher)
