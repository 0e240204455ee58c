"""`retry_join`: seeds are tried again and again, for ever, and nothing waits for them.

A core: it says which hosts to join now, is told what came of it, and knows when to be asked again. Resolving names and
joining is the shell's work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RETRY_INTERVAL_MAX: Final = 60.0
"""After `retry_timeout` the interval doubles up to this many seconds (or stays at `retry_interval`, if that is longer)."""


@dataclass(frozen=True, slots=True)
class SeedsJoined:
    """These hosts were reached."""

    hosts: list[str]


@dataclass(frozen=True, slots=True)
class SeedsUnreachable:
    """Not all seeds could be joined within `retry_timeout` seconds: `errors` by host. Told once; the tries go on."""

    after: float
    errors: dict[str, str]


class RetryJoin:
    """`retry_interval` and `retry_timeout` in seconds. ValueError for an interval that is not positive."""

    __slots__ = (
        "_attempt_at",
        "_attempt_running",
        "_delay",
        "_errors",
        "_events",
        "_hosts",
        "_member_lost",
        "_pending",
        "_reported",
        "_retry_interval",
        "_retry_timeout",
        "_started_at",
        "_stopped",
        "reached",
    )

    def __init__(self, hosts: list[str], retry_interval: float, retry_timeout: float, now: float) -> None:
        if retry_interval <= 0:
            raise ValueError(f"retry_interval is {retry_interval} seconds; it must be more than 0")
        if retry_timeout < 0:
            raise ValueError(f"retry_timeout is {retry_timeout} seconds; it must not be negative")
        self._hosts = list(dict.fromkeys(hosts))
        self._retry_interval = retry_interval
        self._retry_timeout = retry_timeout
        self._events: list[SeedsJoined | SeedsUnreachable] = []
        self._attempt_running = False
        self._pending: list[str] = []
        self._errors: dict[str, str] = {}
        self._delay = retry_interval
        self._started_at = now
        self._attempt_at = now
        self._reported = False
        self._member_lost = False
        self._stopped = False
        self.reached = False
        """Whether any host was ever joined."""
        self._start(now, now)

    def _start(self, now: float, attempt_at: float) -> None:
        self._pending = list(self._hosts)
        self._errors = {}
        self._delay = self._retry_interval
        self._started_at = now
        self._attempt_at = attempt_at
        self._reported = False

    @property
    def pending(self) -> list[str]:
        """Hosts that were not reached yet."""
        return list(self._pending)

    def next_timeout(self) -> float | None:
        if self._attempt_running or self._stopped or not self._pending:
            return None
        return self._attempt_at

    def take_hosts(self, now: float) -> list[str]:
        """Hosts to be joined now, [] when it is not time. Then `attempt_finished` must be called."""
        if self._attempt_running or self._stopped or not self._pending or now < self._attempt_at:
            return []
        self._attempt_running = True
        return list(self._pending)

    def attempt_finished(self, errors: dict[str, str], now: float) -> None:
        """The hosts of the attempt that are not in `errors` were joined."""
        self._attempt_running = False
        joined = [host for host in self._pending if host not in errors]
        self._pending = [host for host in self._pending if host in errors]
        self._errors = dict(errors)
        if joined:
            self.reached = True
            self._events.append(SeedsJoined(joined))
        if self._pending:
            self._plan(errors, now)
        if self._member_lost:
            self._member_lost = False
            self.member_lost(now)

    def _plan(self, errors: dict[str, str], now: float) -> None:
        """When to try the rest again."""
        late = now - self._started_at >= self._retry_timeout
        if late and not self._reported:
            self._reported = True
            self._events.append(
                SeedsUnreachable(now - self._started_at, {host: errors[host] for host in self._pending})
            )
        elif late:
            self._delay = max(self._retry_interval, min(self._delay * 2, RETRY_INTERVAL_MAX))
        self._attempt_at = now + self._delay

    def remove(self, host: str) -> None:
        """This host turned out to be the node itself."""
        self._hosts = [known for known in self._hosts if known != host]
        self._pending = [known for known in self._pending if known != host]

    def stop(self) -> None:
        """The node was told to leave: it must not come back by itself."""
        self._stopped = True

    def resume(self) -> None:
        """The node was told to join: the rest is our work again."""
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    def member_lost(self, now: float, delay: float = 0.0) -> None:
        """A member failed or left: all seeds are tried again until each was reached. It may have been a seed, and where
        only its name is in the others' retry_join, nobody else would find it after its return. `delay`: further seconds,
        each node its own, as all hear of a loss at one time."""
        if self._attempt_running:
            self._member_lost = True
        elif self._pending:
            self._pending = list(self._hosts)
        elif self._hosts:
            self._start(now, now + self._retry_interval + delay)

    def members_changed(self, alive_others: int, now: float) -> None:
        """With nobody else alive, after a full split, all seeds are tried again."""
        if alive_others == 0 and self._hosts and not self._pending and not self._attempt_running:
            self._start(now, now + self._retry_interval)

    def take_events(self) -> list[SeedsJoined | SeedsUnreachable]:
        events = self._events
        self._events = []
        return events
