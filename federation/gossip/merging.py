"""Merges of what push-pulls brought (wire-gossip 4.1 and 6.7), in slices: no large cluster or large state holds others up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

from federation.gossip.counters import Counters, DropReason
from federation.gossip.delegate import GossipDelegate
from federation.gossip.errors import WireError
from federation.gossip.members import STATE_ALIVE
from federation.gossip.membership import Membership
from federation.gossip.messages import PushPull
from federation.gossip.push_pull import VersionRange

SLICE_NODES: Final = 512
"""Nodes that one turn merges. Each that is new takes some 15 µs, and as much again for the line of the log that tells of it."""

Steps = Generator[None, float, str]
"""Each time that it is sent it goes on with the next slice. Gives "", or the reason of a refusal."""

Ended = Callable[[str, float], None]
"""Is called with what the steps gave, and with the time."""


@dataclass(slots=True)
class _Merge:
    steps: Steps
    ended: Ended


class Merges:
    """All merges of one node that are under way. Each belongs to a stream of either side, whose number is bounded.

    merged_at  time of the last push-pull whose members were merged; None before the first one
    """

    def __init__(self, membership: Membership, counters: Counters, delegate: GossipDelegate) -> None:
        self._membership = membership
        self._counters = counters
        self._delegate = delegate
        self._under_way: deque[_Merge] = deque()
        self._at = 0.0
        self.merged_at: float | None = None

    def begin(self, remote: PushPull, ended: Ended, now: float) -> None:
        """Merge the first slice now, the others in calls of `handle_timeout`."""
        steps = self._steps(remote)
        next(steps)
        self._go_on(_Merge(steps, ended), now)

    def next_timeout(self) -> float | None:
        """At once: a merge goes on when others had their turn."""
        return self._at if self._under_way else None

    def handle_timeout(self, now: float) -> None:
        """Merge one slice of one push-pull."""
        if self._under_way:
            self._go_on(self._under_way.popleft(), now)

    def _go_on(self, merge: _Merge, now: float) -> None:
        self._at = now
        try:
            merge.steps.send(now)
        except StopIteration as end:
            merge.ended(end.value, now)
        else:
            self._under_way.append(merge)

    def _steps(self, remote: PushPull) -> Steps:
        now = yield
        refused = self._refused_versions(remote)
        if refused:
            self._counters.drop(DropReason.BAD_VERSION)
            return refused
        for at in range(0, len(remote.nodes), SLICE_NODES):
            if at > 0:
                now = yield
            self._membership.merge(remote.nodes[at : at + SLICE_NODES], now)
        self.merged_at = now
        if remote.user_state:
            try:
                yield from self._delegate.merge_remote_state(remote.user_state, now)
            except WireError as error:
                self._counters.drop(DropReason.MALFORMED_SERF)
                return f"its Serf state does not decode: {error}"
        return ""

    def _refused_versions(self, remote: PushPull) -> str:
        versions = VersionRange()
        for remote_node in remote.nodes:
            versions.add(remote_node.name, remote_node.versions, remote_node.state == STATE_ALIVE)
        for node in self._membership.table.nodes.values():
            versions.add(node.facts.name, node.facts.versions, node.state == STATE_ALIVE)
        return versions.refused()
