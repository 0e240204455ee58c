"""Messages of a shared group that their receiver did not take before its session ended: other members get them
[MQTT5 4.8.2]."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.errors import MqttError
from broker.message import Message
from broker.routing.group_copy import GroupCopy
from broker.routing.names import full_filter, parse_filter
from broker.routing.shared import SharedGroup
from broker.routing.subscription import FilterEntry
from broker.routing.trie import Trie
from broker.session.outgoing import AWAIT_PUBACK, Outgoing
from broker.session.session import Session
from broker.slices import SLICE_STEPS

# Bounds for one session. The messages beyond them end with it and are counted (`session_ended`). Messages of groups with a
# queue are bounded by the in-flight window alone: none of them is to be lost.
REDELIVERED_MAX: Final = SLICE_STEPS
FILTER_STEPS_MAX: Final = 10 * SLICE_STEPS  # levels of filters that are looked at: about 10 ms
UNKNOWN: Final = GroupCopy(b"", b"")  # of a message whose record does not tell for which subscription it came


def take_left_behind(
    tree: Trie, session: Session, now: float, queued_only: bool = False
) -> list[tuple[GroupCopy, Message]]:
    """Take the messages that other members of their group can get out of the session's queue. The session is still
    subscribed, or has left a group that has a queue.

    These are QoS 1 messages without PUBACK, and QoS 1 and 2 messages that were not sent yet. A QoS 2 message that was sent is
    not sent to another member of the group [MQTT-4.8.2-5]. `queued_only`: only those of groups that have a queue. A
    session with a BridgeEnd is no member: that knows the group of a message."""
    left = LeftBehind(tree, session, now, queued_only)
    if session.is_group_queue:
        return left.taken
    inflight = session.inflight
    if inflight is not None:
        for outgoing in inflight.messages():
            if outgoing.state == AWAIT_PUBACK and left.take(outgoing):
                inflight.discard(outgoing.packet_id)
    numbers: set[int] = set()
    for outgoing in session.queued():
        if outgoing.qos and outgoing.expires_at > now and left.take(outgoing):
            numbers.add(outgoing.number)
    if session.queue is not None and numbers:
        session.queue.remove(numbers)
    session.context.counters.redelivered += len(left.taken)
    return left.taken


def find_group(tree: Trie, full: bytes) -> SharedGroup | None:
    """The group of `$share/GROUP/FILTER` on this node, None when it has neither members nor a queue."""
    try:
        share_name, topic_filter = parse_filter(full)
    except MqttError:
        return None
    return _group_at(tree, share_name, topic_filter)


def _group_at(tree: Trie, share_name: bytes, topic_filter: bytes) -> SharedGroup | None:
    entry = cast("FilterEntry | None", tree.get(topic_filter))
    return None if entry is None or entry.groups is None else entry.groups.get(share_name)


def _is_member(session: Session, group: SharedGroup) -> bool:
    return full_filter(group.share_name, group.topic_filter) in session.subscriptions


def _has_left(session: Session, group: SharedGroup) -> bool:
    left = session.left_groups
    return left is not None and full_filter(group.share_name, group.topic_filter) in left


class LeftBehind:
    """taken   messages with their copy, in order"""

    def __init__(self, tree: Trie, session: Session, now: float, queued_only: bool) -> None:
        self.taken: list[tuple[GroupCopy, Message]] = []
        self._tree = tree
        self._session = session
        self._now = now
        self._queued_only = queued_only
        self._steps = 0
        self._by_topic: dict[bytes, GroupCopy | None] = {}
        self._limits: dict[tuple[bytes, bytes], int] = {}  # by group: how many messages may be taken in sum

    def take(self, outgoing: Outgoing) -> bool:
        """Return whether another member of its group gets the message. Then it has no copy any more."""
        message = outgoing.message
        copy = outgoing.copy
        end = self._session.bridge_end
        if message is None or message.expires_at <= self._now:
            return False
        if end is not None:
            source = end.group_of(message)
            if source is not None:
                self.taken.append((source.copy, message))
            return source is not None
        if copy is UNKNOWN:
            copy = self._found(message.topic)
        if copy is None or len(self.taken) >= self._limit(copy.share_name, copy.topic_filter):
            return False
        outgoing.copy = None
        self.taken.append((copy, message))
        return True

    def _limit(self, share_name: bytes, topic_filter: bytes) -> int:
        """Return how many messages may have been taken for one more of the group: none where nobody else gets it."""
        key = (share_name, topic_filter)
        known = self._limits.get(key)
        if known is not None:
            return known
        session = self._session
        group = _group_at(self._tree, share_name, topic_filter)
        limit = 0
        if group is not None and group.queue is not None:
            limit = 1 << 30
        elif not self._queued_only:
            others = 0 if group is None else len(group) - (1 if _is_member(session, group) else 0)
            if others or session.context.forwarder.has_members(share_name, topic_filter):
                limit = REDELIVERED_MAX
        self._limits[key] = limit
        return limit

    # --- records without a group: of stores that were written before these had one, and ordinary subscriptions

    def _found(self, topic: bytes) -> GroupCopy | None:
        """The one group for which the session can have got a message of this topic. None when it can have got it by an
        ordinary subscription or for one of several groups: other members then have copies of their own."""
        if topic not in self._by_topic:
            if self._steps >= FILTER_STEPS_MAX:
                return None
            self._by_topic[topic] = self._search(topic)
        return self._by_topic[topic]

    def _search(self, topic: bytes) -> GroupCopy | None:
        session = self._session
        found: GroupCopy | None = None
        matched = self._tree.match(topic)
        self._steps += self._tree.visited + len(matched)
        for value in matched:
            assert isinstance(value, FilterEntry)
            if session in value.subscriptions:
                return None
            for group in () if value.groups is None else value.groups.values():
                if _is_member(session, group) or _has_left(session, group):
                    if found is not None:
                        return None
                    found = group.copy
        return found
