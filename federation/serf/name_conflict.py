"""The decision which of two nodes keeps a name: the members vote in the query `_serf_conflict` (wire-gossip 8.6)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from federation.gossip.addresses import ip_text
from federation.gossip.counters import Counters, DropReason
from federation.gossip.errors import WireError
from federation.gossip.members import NodeFacts
from federation.serf import messages
from federation.serf.asked_queries import AskedQuery
from federation.serf.events import Event, MemberStatus, NameConflict
from federation.serf.messages import ConflictResponse
from federation.serf.roster import Roster

CONFLICT_REPORT_INTERVAL: Final = 30.0
"""Seconds between two reports of a conflict about the same name."""
CONFLICT_REPORTS_MAX: Final = 128
"""Names whose last report is remembered; the oldest is forgotten for a further one."""


class NameConflicts:
    """`vote`: the query about this node's own name that is under way."""

    def __init__(self, roster: Roster, events: list[Event], counters: Counters) -> None:
        self._roster = roster
        self._events = events
        self._counters = counters
        self._reports: OrderedDict[str, float] = OrderedDict()
        self.vote: AskedQuery | None = None

    def report(self, existing: NodeFacts, other: NodeFacts, now: float) -> bool:
        """Another node claims the name of a member. False when the conflict was reported a short time ago."""
        last = self._reports.get(existing.name)
        if last is not None and now - last < CONFLICT_REPORT_INTERVAL:
            return False
        self._reports.pop(existing.name, None)
        if len(self._reports) >= CONFLICT_REPORTS_MAX:
            self._reports.popitem(last=False)
        self._reports[existing.name] = now
        ours = existing.name == self._roster.own.facts.name
        self._events.append(NameConflict(existing.name, other.ip, other.port, ours, False))
        return True

    def handle_timeout(self) -> None:
        """Decide when the vote is over."""
        vote = self.vote
        if vote is not None and vote.is_over:
            self.vote = None
            self._decide(vote.responses.values())

    def _decide(self, responses: Iterable[bytes]) -> None:
        """Decide by majority which node keeps the name. Without responses this node keeps it.

        Only responses that name an alive or leaving member count.
        """
        own = self._roster.own.facts
        claims = 0
        matching = 0
        other: ConflictResponse | None = None
        for payload in responses:
            if not payload or payload[0] != messages.CONFLICT_RESPONSE:
                continue
            try:
                claim = ConflictResponse.decode(payload[1:])
            except WireError:
                self._counters.drop(DropReason.MALFORMED_SERF)
                continue
            if claim is None or claim.status not in (MemberStatus.ALIVE, MemberStatus.LEAVING):
                continue
            claims += 1
            if ip_text(claim.addr) == own.ip and claim.port == own.port:
                matching += 1
            else:
                other = claim
        if other is not None and matching < claims // 2 + 1:
            self._events.append(NameConflict(own.name, ip_text(other.addr), other.port, True, True))
