"""`retry_join`: the seeds are tried again for ever, while the node already serves its clients. So are members of a snapshot,
until the first one answers.

A core: it says which hosts to join, takes the result, and gives the time of the next attempt. The shell resolves names and
joins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RETRY_INTERVAL_MAX: Final = 60.0
"""After `retry_timeout` the interval doubles up to this many seconds; a longer `retry_interval` stays as it is."""
KNOWN_AT_ONCE: Final = 8
"""Members of a snapshot that one attempt tries."""


@dataclass(frozen=True, slots=True)
class SeedsJoined:
    """These hosts were joined."""

    hosts: list[str]


@dataclass(frozen=True, slots=True)
class SeedsUnreachable:
    """Some seeds were not joined within `retry_timeout` seconds. `errors` by host. Reported once; the attempts go on."""

    after: float
    errors: dict[str, str]


class RetryJoin:
    """`retry_interval` and `retry_timeout` in seconds. ValueError for an interval that is not positive.

    `known`: members that a snapshot has, in the order in which they are tried. Any of them is enough, while each of `hosts` is
    tried until it is joined: it may belong to another part of a cluster that was split.
    """

    def __init__(
        self, hosts: list[str], retry_interval: float, retry_timeout: float, now: float, known: list[str] | None = None
    ) -> None:
        if retry_interval <= 0:
            raise ValueError(f"retry_interval is {retry_interval} seconds; it must be more than 0")
        if retry_timeout < 0:
            raise ValueError(f"retry_timeout is {retry_timeout} seconds; it must not be negative")
        self._hosts = list(dict.fromkeys(hosts))
        self._known = list(dict.fromkeys(known or []))
        self._retry_interval = retry_interval
        self._retry_timeout = retry_timeout
        self._events: list[SeedsJoined | SeedsUnreachable] = []
        self._attempt_running = False
        self._pending: list[str] = []
        self._tried: list[str] = []
        self._delay = retry_interval
        self._started_at = now
        self._attempt_at = now
        self._reported = False
        self._member_lost = False
        self._stopped = False
        self.reached = False
        """At least one host has been joined, or is the node itself."""
        self._start(now, now)

    def _start(self, now: float, attempt_at: float) -> None:
        self._pending = list(self._hosts)
        self._delay = self._retry_interval
        self._started_at = now
        self._attempt_at = attempt_at
        self._reported = False

    @property
    def pending(self) -> list[str]:
        """Hosts that are not joined yet."""
        return list(self._pending)

    def next_timeout(self) -> float | None:
        if self._attempt_running or self._stopped or not (self._pending or self._known):
            return None
        return self._attempt_at

    def take_hosts(self, now: float) -> list[str]:
        """Hosts to join now, [] before the next attempt. After the attempt `attempt_finished` must be called."""
        at = self.next_timeout()
        if at is None or now < at:
            return []
        self._attempt_running = True
        tried = self._known[:KNOWN_AT_ONCE]
        self._known = self._known[KNOWN_AT_ONCE:] + tried
        self._tried = list(dict.fromkeys(self._pending + tried))
        return list(self._tried)

    def attempt_finished(self, errors: dict[str, str], now: float) -> None:
        """The attempt is over. Its hosts that are not in `errors` were joined."""
        self._attempt_running = False
        joined = [host for host in self._tried if host not in errors]
        self._pending = [host for host in self._pending if host in errors]
        if joined:
            self._known = []
            self.reached = True
            self._events.append(SeedsJoined(joined))
        if self._pending or self._known:
            self._plan(errors, now)
        if self._member_lost:
            self._member_lost = False
            self.member_lost(now)

    def _plan(self, errors: dict[str, str], now: float) -> None:
        """Set the time of the next attempt for the hosts that were not joined."""
        late = now - self._started_at >= self._retry_timeout
        if late and not self._reported:
            self._reported = True
            self._events.append(
                SeedsUnreachable(now - self._started_at, {host: errors[host] for host in self._tried if host in errors})
            )
        elif late:
            self._delay = max(self._retry_interval, min(self._delay * 2, RETRY_INTERVAL_MAX))
        self._attempt_at = now + self._delay

    def remove(self, host: str) -> None:
        """Forget a host: it is the node itself."""
        self._hosts = [known for known in self._hosts if known != host]
        self._pending = [known for known in self._pending if known != host]
        self._known = [known for known in self._known if known != host]
        self._tried = [known for known in self._tried if known != host]

    def leads_here(self, host: str) -> None:
        """A name has no other address than the node's own. It counts as reached, and is asked again while the node is alone."""
        self.reached = True
        self._pending = [known for known in self._pending if known != host]
        self._tried = [known for known in self._tried if known != host]

    def stop(self) -> None:
        """The node was told to leave. No attempts follow until `resume`."""
        self._stopped = True

    def resume(self) -> None:
        """The node was told to join. The attempts go on."""
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    def member_lost(self, now: float, delay: float = 0.0) -> None:
        """A member failed or left: try all seeds again until each is joined.

        The member may be a seed that names no seeds itself; after its restart only these attempts find it. `delay`: further
        seconds, different on each node, because all nodes notice a loss at about the same time.
        """
        if self._attempt_running:
            self._member_lost = True
        elif self._pending:
            self._pending = list(self._hosts)
        elif self._hosts:
            self._start(now, now + self._retry_interval + delay)

    def members_changed(self, alive_others: int, now: float) -> None:
        """Try all seeds again when no other member is alive: the cluster may have been split completely. Members of a snapshot
        are no longer tried once one is."""
        if alive_others:
            self._known = []
        if alive_others == 0 and self._hosts and not self._pending and not self._attempt_running:
            self._start(now, now + self._retry_interval)

    def take_events(self) -> list[SeedsJoined | SeedsUnreachable]:
        events = self._events
        self._events = []
        return events
