"""Who is a member, with which status: the rules of sections 8.1, 8.3 and 8.10.

Serf's table outlives gossip's: failed and left members stay in it for a day.
"""

from __future__ import annotations

from typing import Final

from federation.gossip import counters as reasons
from federation.gossip.counters import Counters
from federation.gossip.errors import WireError
from federation.gossip.members import MEMBERS_MAX, NodeFacts
from federation.serf.config import SerfConfig
from federation.serf.event_queue import EventQueue
from federation.serf.events import (
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

# What became of an intent.
INTENT_IGNORED: Final = 0
INTENT_NEWS: Final = 1
INTENT_ABOUT_US: Final = 2
"""A leave intent about ourselves while we are alive: it must be refuted."""


RECORDS_MAX: Final = 2 * MEMBERS_MAX
"""Members, the failed and left ones included. Past it the one that is gone longest is forgotten, and counted: gossip's
table bounds those that are there."""


class MemberRecord:
    """`status_time`: Lamport time of the last intent that was applied. `gone_at`: since when it has failed or left."""

    __slots__ = ("facts", "gone_at", "status", "status_time")

    def __init__(self, facts: NodeFacts, status: MemberStatus, status_time: int) -> None:
        self.facts = facts
        self.status = status
        self.status_time = status_time
        self.gone_at = 0.0


class Roster:
    """`records` by name, `own` among them; `clock` is the member clock."""

    __slots__ = ("_config", "_counters", "_events", "_prunes", "_recent_intents", "clock", "own", "records")

    def __init__(self, facts: NodeFacts, config: SerfConfig, counters: Counters, events: EventQueue) -> None:
        self._config = config
        self._counters = counters
        self._events = events
        self._recent_intents = RecentIntents()
        self._prunes: dict[str, float] = {}
        self.clock = LamportClock()
        self.own = MemberRecord(facts, MemberStatus.ALIVE, 0)
        self.records: dict[str, MemberRecord] = {facts.name: self.own}

    def member(self, record: MemberRecord) -> Member:
        facts = record.facts
        return Member(facts.name, facts.ip, facts.port, self.tags(facts), record.status)

    def tags(self, facts: NodeFacts) -> dict[str, str]:
        """The tags of a member, decoded once for all who share its facts. Not to be changed."""
        tags = facts.tags
        if tags is None:
            try:
                tags = decode_tags(facts.meta)
            except WireError:
                self._counters.drop(reasons.MALFORMED_TAGS)
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
        return [record for record in self.records.values() if record.status == MemberStatus.FAILED]

    def status_times(self) -> tuple[dict[str, int], list[str]]:
        """For a push-pull (section 7.2): the times of all members, and who has left."""
        times: dict[str, int] = {}
        left: list[str] = []
        for name, record in self.records.items():
            if record.status in (MemberStatus.LEFT, MemberStatus.LEAVING):
                # The receiver makes a leave intent one higher than this of it: exactly the one that we applied. Serf itself
                # reports the full time, and a leaving member as not left: then exchanges push the time up for ever, and
                # one during a leave makes the receiver ignore the real intent and hold the member for failed.
                times[name] = max(0, record.status_time - 1)
                left.append(name)
            else:
                times[name] = record.status_time
        return times, left

    # --- what gossip sees

    def node_joined(self, facts: NodeFacts, now: float) -> None:
        record = self.records.get(facts.name)
        if record is None:
            if len(self.records) >= RECORDS_MAX:
                self._forget_oldest()
            record = MemberRecord(facts, MemberStatus.ALIVE, 0)
            self.records[facts.name] = record
            intent = self._recent_intents.take(facts.name)
            if intent is not None:
                record.status_time = intent.lamport_time
                if intent.leave:
                    record.status = MemberStatus.LEAVING
        else:
            record.facts = facts
            record.status = MemberStatus.ALIVE
            record.gone_at = 0.0
        self._events.add(MemberJoin(self.member(record)))

    def node_updated(self, facts: NodeFacts, now: float) -> None:
        record = self.records.get(facts.name)
        if record is not None:
            record.facts = facts
            self._events.add(MemberUpdate(self.member(record)))

    def node_left(self, facts: NodeFacts, gracefully: bool, now: float) -> None:
        record = self.records.get(facts.name)
        if record is None:
            return
        # Serf itself only believes a leave intent. But its spreading is not waited for, so where it comes late, or gets
        # lost, a graceful leave would show as a failure; a member's own word of its death is word enough.
        if record.status == MemberStatus.LEAVING or (gracefully and record.status == MemberStatus.ALIVE):
            record.status = MemberStatus.LEFT
            record.gone_at = now
            self._events.add(MemberLeave(self.member(record)))
        elif record.status == MemberStatus.ALIVE:
            record.status = MemberStatus.FAILED
            record.gone_at = now
            self._events.add(MemberFailed(self.member(record)))

    # --- intents

    def apply_join(self, intent: JoinIntent, now: float) -> int:
        """INTENT_NEWS must be passed on."""
        self.clock.witness(intent.lamport_time)
        record = self.records.get(intent.node)
        if record is None:
            return self._remember_intent(intent.node, False, intent.lamport_time, now)
        if intent.lamport_time <= record.status_time:
            return INTENT_IGNORED
        record.status_time = intent.lamport_time
        if record.status == MemberStatus.LEAVING:
            record.status = MemberStatus.ALIVE
        return INTENT_NEWS

    def apply_leave(self, intent: LeaveIntent, leaving: bool, now: float) -> int:
        """INTENT_NEWS must be passed on. `leaving`: we are on our way out ourselves."""
        self.clock.witness(intent.lamport_time)
        record = self.records.get(intent.node)
        if record is None:
            return self._remember_intent(intent.node, True, intent.lamport_time, now)
        if record is self.own and not leaving:
            # At the same time too: a former life of ours may have left at the time at which this one joined, and whoever
            # heard of the leave first ignores that join.
            return INTENT_ABOUT_US if intent.lamport_time >= record.status_time else INTENT_IGNORED
        if intent.lamport_time <= record.status_time:
            return INTENT_IGNORED
        record.status_time = intent.lamport_time
        if record.status == MemberStatus.ALIVE:
            record.status = MemberStatus.LEAVING
        elif record.status == MemberStatus.FAILED:
            record.status = MemberStatus.LEFT
            self._events.add(MemberLeave(self.member(record)))
        if intent.prune:
            self._prune(record, now)
        return INTENT_NEWS

    def _remember_intent(self, name: str, leave: bool, lamport_time: int, now: float) -> int:
        if self._recent_intents.add(name, leave, lamport_time, now):
            return INTENT_NEWS
        if self._recent_intents.is_full():
            self._counters.drop(reasons.INTENTS_FULL)
        return INTENT_IGNORED

    # --- forgetting

    def _prune(self, record: MemberRecord, now: float) -> None:
        if record.status == MemberStatus.LEAVING:
            # It is still going: forget it when it has gone.
            wait = self._config.broadcast_timeout + self._config.leave_propagate_delay
            self._prunes.setdefault(record.facts.name, now + wait)
        elif record is not self.own:
            self._forget(record)

    def next_timeout(self) -> float | None:
        first: float | None = None
        for prune_at in self._prunes.values():
            if first is None or prune_at < first:
                first = prune_at
        return first

    def prune_due(self, now: float) -> None:
        """Members that were leaving when they were to be forgotten, and have gone since."""
        if not self._prunes:
            return
        due = [name for name, prune_at in self._prunes.items() if prune_at <= now]
        for name in due:
            del self._prunes[name]
            record = self.records.get(name)
            if (
                record is not None
                and record is not self.own
                and record.status in (MemberStatus.LEFT, MemberStatus.FAILED)
            ):
                self._forget(record)

    def reap(self, now: float) -> None:
        self._recent_intents.expire(now - self._config.recent_intent_timeout)
        for record in list(self.records.values()):
            if record is self.own:
                continue
            gone_for = now - record.gone_at
            if (record.status == MemberStatus.FAILED and gone_for > self._config.reconnect_timeout) or (
                record.status == MemberStatus.LEFT and gone_for > self._config.tombstone_timeout
            ):
                self._forget(record)

    def _forget_oldest(self) -> None:
        oldest: MemberRecord | None = None
        for record in self.records.values():
            if record.status in (MemberStatus.LEFT, MemberStatus.FAILED) and record is not self.own:
                if oldest is None or record.gone_at < oldest.gone_at:
                    oldest = record
        if oldest is not None:
            self._counters.drop(reasons.TABLE_FULL)
            self._forget(oldest)

    def _forget(self, record: MemberRecord) -> None:
        del self.records[record.facts.name]
        self._events.add(MemberReap(self.member(record)))
