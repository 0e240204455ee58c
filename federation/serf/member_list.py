"""Serf's own table of members: status and the Lamport time of the last intent (section 8.1).

It outlives gossip's table: failed and left members stay for a day.
"""

from __future__ import annotations

from federation.gossip import counters as reasons
from federation.gossip.counters import Counters
from federation.gossip.errors import WireError
from federation.gossip.members import NodeFacts
from federation.serf.events import Member, MemberStatus
from federation.serf.tags import decode_tags


class MemberRecord:
    """`status_time`: Lamport time of the last intent that was applied. `gone_at`: since when it has failed or left."""

    __slots__ = ("facts", "gone_at", "status", "status_time")

    def __init__(self, facts: NodeFacts, status: MemberStatus, status_time: int) -> None:
        self.facts = facts
        self.status = status
        self.status_time = status_time
        self.gone_at = 0.0


def shared_tags(facts: NodeFacts, counters: Counters) -> dict[str, str]:
    """The tags of a member, decoded once for all who share its facts. Not to be changed."""
    tags = facts.tags
    if tags is None:
        try:
            tags = decode_tags(facts.meta)
        except WireError:
            counters.drop(reasons.MALFORMED_TAGS)
            tags = {}
        facts.tags = tags
    return tags


def to_member(record: MemberRecord, counters: Counters) -> Member:
    facts = record.facts
    return Member(facts.name, facts.ip, facts.port, shared_tags(facts, counters), record.status)
