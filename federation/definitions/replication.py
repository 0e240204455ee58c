"""The times at which a node exchanges definitions with each other node, without I/O.

With each node that appears, after each change that this node made, and every EXCHANGE_SECONDS. Changes of other nodes are not
passed on at once: who made them tells all that it reaches, and the exchanges at intervals bring them to the rest.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.message import NEVER

EXCHANGE_SECONDS: Final = 60.0  # between two exchanges with one node, a quarter more or less
RETRY_SECONDS: Final = 1.0  # after the first failure; doubled up to EXCHANGE_SECONDS
UNKNOWN_SECONDS: Final = 600.0  # for a node that does not know the service
EXCHANGES_MAX: Final = 8  # that run at one time


class Outcome(Enum):
    """The end of an exchange. UNKNOWN: the other node does not have the service."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class _Member:
    """due  when the next exchange begins. changed  there was a change while one ran."""

    due: float
    failures: int = 0
    running: bool = False
    changed: bool = False
    unknown: bool = False


class Replication:
    """`take_exchanges` names the nodes with which an exchange begins now; each ends with `exchange_over`."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._members: dict[str, _Member] = {}
        self._running = 0

    def set_members(self, names: Iterable[str], now: float) -> None:
        """The other nodes that live now."""
        wanted = set(names)
        for name in [name for name in self._members if name not in wanted]:
            self._running -= self._members.pop(name).running
        for name in sorted(wanted - self._members.keys()):
            self._members[name] = _Member(now)

    def changed(self, now: float) -> None:
        """This node has changed a definition."""
        for member in self._members.values():
            if member.running:
                member.changed = True
            elif not member.unknown:
                member.due = now

    def exchange_over(self, name: str, outcome: Outcome, now: float) -> None:
        """An exchange that `take_exchanges` began has ended."""
        member = self._members.get(name)
        if member is None or not member.running:
            return  # it left meanwhile
        member.running = False
        self._running -= 1
        member.unknown = outcome is Outcome.UNKNOWN
        if outcome is Outcome.DONE:
            member.failures = 0
            wait = 0.0 if member.changed else EXCHANGE_SECONDS
        elif outcome is Outcome.FAILED:
            wait = min(RETRY_SECONDS * 2**member.failures, EXCHANGE_SECONDS)
            member.failures = min(member.failures + 1, 10)
        else:
            wait = UNKNOWN_SECONDS
        member.changed = False
        member.due = now + wait * self._rng.uniform(0.75, 1.25)

    def take_exchanges(self, now: float) -> list[str]:
        """The nodes with which an exchange begins now, those first that wait longest."""
        due = sorted(
            (member.due, name) for name, member in self._members.items() if not member.running and member.due <= now
        )
        names = [name for _, name in due[: EXCHANGES_MAX - self._running]]
        for name in names:
            self._members[name].running = True
        self._running += len(names)
        return names

    def next_timeout(self) -> float:
        """The time of the next call of `take_exchanges`; NEVER while as many run as may."""
        if self._running >= EXCHANGES_MAX:
            return NEVER
        return min((member.due for member in self._members.values() if not member.running), default=NEVER)
