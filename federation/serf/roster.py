"""Members and their status (wire-gossip 8.1, 8.3 and 8.9).

Failed and left members stay in this table for a day, longer than in the table of gossip.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from federation.gossip.counters import Counters, DropReason
from federation.gossip.errors import WireError
from federation.gossip.members import MEMBERS_MAX, NodeFacts
from federation.serf.config import SerfConfig
from federation.serf.events import (
    Event,
    Member,
    MemberFailed,
    MemberJoin,
    MemberLeave,
    MemberReap,
    MemberStatus,
    MemberUpdate,
)
from federation.serf.lamport import LamportClock
from federation.serf.messages import JoinIntent, LeaveIntent
from federation.serf.recent import RecentIntents
from federation.serf.tags import decode_tags

# Results of an intent.
INTENT_IGNORED: Final = 0
INTENT_NEW: Final = 1
"""The intent was applied or remembered: pass it on."""
INTENT_ABOUT_SELF: Final = 2
"""A leave intent about this node, which is alive: refute it."""

RECORDS_MAX: Final = 2 * MEMBERS_MAX
"""Members, failed and left ones included. For a further member the one that failed or left first is forgotten and counted;
the table of gossip bounds the alive ones."""


@dataclass(slots=True, eq=False)
class MemberRecord:
    """`status_time`: Lamport time of the last applied intent. `gone_at`: time at which the member failed or left. `since`: time
    of the last change of `status`."""

    facts: NodeFacts
    status: MemberStatus
    status_time: int
    gone_at: float = 0.0
    since: float = 0.0

    def become(self, status: MemberStatus, now: float) -> None:
        if status is not self.status:
            self.status = status
            self.since = now


class Roster:
    """`records` by name, `own` included. `clock` is the member clock."""

    def __init__(self, facts: NodeFacts, config: SerfConfig, counters: Counters, events: list[Event]) -> None:
        self._config = config
        self._counters = counters
        self._events = events
        self._recent_intents = RecentIntents()
        # Both are in the order of their times, and the first entry of an OrderedDict is found in constant time.
        self._gone: OrderedDict[str, MemberRecord] = OrderedDict()
        self._prunes: OrderedDict[str, float] = OrderedDict()
        self.clock = LamportClock()
        self.own = MemberRecord(facts, MemberStatus.ALIVE, 0)
        self.records: dict[str, MemberRecord] = {facts.name: self.own}

    def member(self, record: MemberRecord) -> Member:
        facts = record.facts
        tags = self.tags(facts)
        return Member(facts.name, facts.ip, facts.port, tags, record.status, facts.versions, record.since)

    def tags(self, facts: NodeFacts) -> dict[str, str]:
        """The tags of a member, decoded once for all nodes that share its facts. The caller must not change them."""
        tags = facts.tags
        if tags is None:
            try:
                tags = decode_tags(facts.meta)
            except WireError:
                self._counters.drop(DropReason.MALFORMED_TAGS)
                tags = {}
            facts.tags = tags
        return tags

    def alive_count(self) -> int:
        count = 0
        for record in self.records.values():
            if record.status == MemberStatus.ALIVE:
                count += 1
        return count

    def failed(self) -> list[MemberRecord]:
        return [record for record in self._gone.values() if record.status == MemberStatus.FAILED]

    def status_times(self) -> tuple[dict[str, int], list[str]]:
        """For a push-pull (wire-gossip 7.2): the status times of all members, and the names of those that left."""
        times: dict[str, int] = {}
        left: list[str] = []
        for name, record in self.records.items():
            if record.status in (MemberStatus.LEFT, MemberStatus.LEAVING):
                # The receiver makes a leave intent of this time plus one, which is the intent that was applied here. Serf
                # sends the full time, and does not list a leaving member as left. Push-pulls then raise the time for ever,
                # and one during a leave makes the receiver ignore the real intent and take the member for failed.
                times[name] = max(0, record.status_time - 1)
                left.append(name)
            else:
                times[name] = record.status_time
        return times, left

    # --- events of gossip

    def node_joined(self, facts: NodeFacts, now: float) -> None:
        record = self.records.get(facts.name)
        if record is None:
            if len(self.records) >= RECORDS_MAX:
                self._forget_first_gone()
            record = MemberRecord(facts, MemberStatus.ALIVE, 0, since=now)
            self.records[facts.name] = record
            intent = self._recent_intents.take(facts.name)
            if intent is not None:
                record.status_time = intent.lamport_time
                if intent.leave:
                    record.become(MemberStatus.LEAVING, now)
        else:
            record.facts = facts
            record.become(MemberStatus.ALIVE, now)
            self._gone.pop(facts.name, None)
        self._events.append(MemberJoin(self.member(record)))

    def node_updated(self, facts: NodeFacts, now: float) -> None:
        record = self.records.get(facts.name)
        if record is not None:
            record.facts = facts
            self._events.append(MemberUpdate(self.member(record)))

    def node_left(self, facts: NodeFacts, gracefully: bool, now: float) -> None:
        record = self.records.get(facts.name)
        if record is None:
            return
        # Serf requires a leave intent for a graceful leave. A late or lost intent would turn the leave into a failure, so
        # the member's own dead message counts as a leave too.
        if record.status == MemberStatus.LEAVING or (gracefully and record.status == MemberStatus.ALIVE):
            record.become(MemberStatus.LEFT, now)
            self._events.append(MemberLeave(self.member(record)))
        elif record.status == MemberStatus.ALIVE:
            record.become(MemberStatus.FAILED, now)
            self._events.append(MemberFailed(self.member(record)))
        else:
            return
        if record is not self.own:
            record.gone_at = now
            self._gone[facts.name] = record

    # --- intents

    def apply_join(self, intent: JoinIntent, now: float) -> int:
        """Apply a join intent, or remember it when its node is unknown. Gives one of INTENT_*."""
        self.clock.witness(intent.lamport_time)
        record = self.records.get(intent.node)
        if record is None:
            return self._remember_intent(intent.node, False, intent.lamport_time, now)
        if intent.lamport_time <= record.status_time:
            return INTENT_IGNORED
        record.status_time = intent.lamport_time
        if record.status == MemberStatus.LEAVING:
            record.become(MemberStatus.ALIVE, now)
        return INTENT_NEW

    def apply_leave(self, intent: LeaveIntent, leaving: bool, now: float) -> int:
        """Apply a leave intent, or remember it when its node is unknown. `leaving`: this node leaves or has left."""
        self.clock.witness(intent.lamport_time)
        record = self.records.get(intent.node)
        if record is None:
            return self._remember_intent(intent.node, True, intent.lamport_time, now)
        if record is self.own and not leaving:
            # An equal time is refuted too. The leave may be one of a former process of this node, at the time of this
            # process's join; nodes that got the leave first ignore that join.
            return INTENT_ABOUT_SELF if intent.lamport_time >= record.status_time else INTENT_IGNORED
        if intent.lamport_time <= record.status_time:
            return INTENT_IGNORED
        record.status_time = intent.lamport_time
        if record.status == MemberStatus.ALIVE:
            record.become(MemberStatus.LEAVING, now)
        elif record.status == MemberStatus.FAILED or (intent.forced and intent.node in self._gone):
            record.become(MemberStatus.LEFT, now)
            self._events.append(MemberLeave(self.member(record), intent.forced))
        if intent.prune:
            self._prune(record, now)
        return INTENT_NEW

    def _remember_intent(self, name: str, leave: bool, lamport_time: int, now: float) -> int:
        if self._recent_intents.add(name, leave, lamport_time, now):
            return INTENT_NEW
        if self._recent_intents.is_full():
            self._counters.drop(DropReason.INTENTS_FULL)
        return INTENT_IGNORED

    # --- forgetting

    def _prune(self, record: MemberRecord, now: float) -> None:
        if record.status == MemberStatus.LEAVING:
            # The member still leaves: forget it after its leave.
            wait = self._config.broadcast_timeout + self._config.leave_propagate_delay
            self._prunes.setdefault(record.facts.name, now + wait)
        elif record is not self.own:
            self._forget(record)

    def next_timeout(self) -> float | None:
        for prune_at in self._prunes.values():
            return prune_at
        return None

    def prune_due(self, now: float) -> None:
        """Forget members that were to be forgotten while they left, and have left since."""
        while self._prunes and next(iter(self._prunes.values())) <= now:
            name, _ = self._prunes.popitem(last=False)
            record = self._gone.get(name)
            if record is not None:
                self._forget(record)

    def reap(self, now: float) -> None:
        """Forget members that failed or left long ago, and old intents about unknown names."""
        self._recent_intents.expire(now - self._config.recent_intent_timeout)
        for record in list(self._gone.values()):
            gone_for = now - record.gone_at
            if (record.status == MemberStatus.FAILED and gone_for > self._config.reconnect_timeout) or (
                record.status == MemberStatus.LEFT and gone_for > self._config.tombstone_timeout
            ):
                self._forget(record)

    def _forget_first_gone(self) -> None:
        for record in self._gone.values():
            self._counters.drop(DropReason.TABLE_FULL)
            self._forget(record)
            return

    def _forget(self, record: MemberRecord) -> None:
        del self.records[record.facts.name]
        self._gone.pop(record.facts.name, None)
        self._events.append(MemberReap(self.member(record)))
