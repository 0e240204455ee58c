"""The time from suspect to dead: it shrinks with each member that confirms the suspicion (wire-gossip 6.3)."""

from __future__ import annotations

import math
from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Final

STALE_DEADLINES_MAX: Final = 64
"""Deadlines of ended suspicions that are kept in the heap, beside as many as there are suspicions."""


def suspicion_timeout(mult: int, node_count: int, probe_interval: float) -> float:
    """The shortest time from suspect to dead, in seconds. Its factor is truncated to three decimals."""
    scale = max(1.0, math.log10(max(1, node_count)))
    return mult * probe_interval * (math.floor(scale * 1000) / 1000)


def confirmations_wanted(mult: int, living: int, unsuspected: int) -> int:
    """Confirmations that bring the timeout to its shortest; 0 where the cluster is too small to give them.

    living       members that are alive or suspected, this node among them. memberlist counts the dead for another 30 s, which
                 waits for confirmations that no member can give
    unsuspected  members that are alive, without this node. All of them together are enough. At least one is wanted, because a
                 node that suspects all others may itself be the faulty one
    """
    wanted = mult - 2
    return min(wanted, max(1, unsuspected)) if living - 2 >= wanted else 0


class Suspicion:
    """The deadline of one suspected node. `incarnation`: the incarnation that was accused."""

    __slots__ = ("_confirmed_by", "_longest", "_shortest", "_started_at", "_wanted", "deadline", "incarnation")

    def __init__(self, incarnation: int, origin: str, wanted: int, shortest: float, longest: float, now: float) -> None:
        assert 0 < shortest <= longest
        self.incarnation = incarnation
        self._wanted = wanted
        self._shortest = shortest
        self._longest = longest
        self._started_at = now
        self._confirmed_by: dict[str, None] = {origin: None}
        self.deadline = self._deadline()

    def confirm(self, origin: str) -> bool:
        """Another member suspects the node too. False when the confirmation does not count: repeated, or not wanted."""
        if len(self._confirmed_by) - 1 >= self._wanted or origin in self._confirmed_by:
            return False
        self._confirmed_by[origin] = None
        self.deadline = self._deadline()
        return True

    def want(self, wanted: int) -> None:
        """Other members can confirm the suspicion than when it began."""
        self._wanted = wanted
        self.deadline = self._deadline()

    def _deadline(self) -> float:
        count = len(self._confirmed_by) - 1
        if count >= self._wanted:
            return self._started_at + self._shortest
        part = math.log(count + 1) / math.log(self._wanted + 1)
        timeout = self._longest - part * (self._longest - self._shortest)
        return self._started_at + max(self._shortest, math.floor(timeout * 1000) / 1000)


class Suspicions:
    """All suspicions of one node by name, the earliest deadline first. `wanted`: confirmations that each of them wants."""

    def __init__(self) -> None:
        self.wanted = 0
        self._by_name: dict[str, Suspicion] = {}
        self._reminders: OrderedDict[str, float] = OrderedDict()
        # A heap. The deadline of a suspicion that ended or was confirmed stays in it until it is due or the heap is rebuilt.
        self._deadlines: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Suspicion | None:
        return self._by_name.get(name)

    def add(self, name: str, suspicion: Suspicion) -> None:
        self._by_name[name] = suspicion
        self._note(name, suspicion)

    def remind(self, name: str, at: float) -> None:
        """This node accuses the member and will tell it so at this time; all calls are in the order of their times."""
        self._reminders[name] = at
        self._reminders.move_to_end(name)

    def take_reminder(self, now: float) -> str:
        """A member that is still suspected and is to be told so now; "" for none."""
        while self._reminders and next(iter(self._reminders.values())) <= now:
            name, _ = self._reminders.popitem(last=False)
            if name in self._by_name:
                return name
        return ""

    def confirm(self, name: str, origin: str) -> bool:
        """Another member suspects `name` too. False when the confirmation does not count."""
        suspicion = self._by_name[name]
        if not suspicion.confirm(origin):
            return False
        self._note(name, suspicion)
        return True

    def want(self, wanted: int) -> None:
        """All suspicions want so many confirmations from now on."""
        if wanted == self.wanted:
            return
        self.wanted = wanted
        for suspicion in self._by_name.values():
            suspicion.want(wanted)
        self._rebuild()

    def end(self, name: str) -> None:
        self._by_name.pop(name, None)

    def next_timeout(self) -> float | None:
        """The earliest deadline; it may be one of a suspicion that has ended."""
        return self._deadlines[0][0] if self._deadlines else None

    def take_expired(self, now: float) -> list[tuple[str, Suspicion]]:
        expired: list[tuple[str, Suspicion]] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, name = heappop(self._deadlines)
            suspicion = self._by_name.get(name)
            if suspicion is not None and suspicion.deadline <= now:
                del self._by_name[name]
                expired.append((name, suspicion))
        return expired

    def _note(self, name: str, suspicion: Suspicion) -> None:
        heappush(self._deadlines, (suspicion.deadline, name))
        if len(self._deadlines) > 2 * len(self._by_name) + STALE_DEADLINES_MAX:
            self._rebuild()

    def _rebuild(self) -> None:
        self._deadlines = [(suspicion.deadline, name) for name, suspicion in self._by_name.items()]
        heapify(self._deadlines)
