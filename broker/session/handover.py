"""Messages of a shared group that their receiver did not take before its session ended: other members get them
[MQTT5 4.8.2]."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.errors import MqttError
from broker.message import Message
from broker.routing.names import parse_filter
from broker.routing.shared import SharedGroup
from broker.routing.subscription import FilterEntry
from broker.routing.trie import Trie
from broker.session.outgoing import AWAIT_PUBACK, Outgoing
from broker.session.session import Session
from broker.slices import SLICE_STEPS

# Bounds for one session. The messages beyond them end with it and are counted (`session_ended`). Messages of groups with a
# queue are bounded by the in-flight window alone: none of them is to be lost.
HANDED_OVER_MAX: Final = 256
HANDOVER_STEPS_MAX: Final = 10 * SLICE_STEPS  # levels of filters that are looked at: about 10 ms


def take_left_behind(
    tree: Trie, session: Session, now: float, queued_only: bool = False
) -> list[tuple[SharedGroup, Message]]:
    """Take the messages that other members of their group can get out of the session's queue. The session is still
    subscribed, or has left a group that has a queue.

    These are QoS 1 messages without PUBACK, and QoS 1 and 2 messages that were not sent yet. A QoS 2 message that was sent is
    not sent to another member of the group [MQTT-4.8.2-5]. `queued_only`: only those of groups that have a queue. A
    session with a BridgeEnd is no member: that knows the group of a message."""
    handover = Handover(tree, session, now, queued_only)
    if not handover.groups and session.bridge_end is None:
        return []
    if session.inflight is not None:
        for outgoing in session.inflight.messages():
            if outgoing.state == AWAIT_PUBACK and handover.take(outgoing):
                session.inflight.discard(outgoing.packet_id)
    taken: set[int] = set()
    for outgoing in session.queued():
        if outgoing.qos and outgoing.expires_at > now and handover.take(outgoing):
            taken.add(outgoing.number)
    if session.queue is not None and taken:
        session.queue.remove(taken)
    session.context.counters.handed_over += len(handover.taken)
    return handover.taken


def find_group(tree: Trie, full: bytes) -> SharedGroup | None:
    """The group of `$share/GROUP/FILTER` on this node, None when it has neither members nor a queue."""
    try:
        share_name, topic_filter = parse_filter(full)
    except MqttError:
        return None
    entry = cast("FilterEntry | None", tree.get(topic_filter))
    return None if entry is None or entry.groups is None else entry.groups.get(share_name)


class Handover:
    """groups  by topic filter, of the session's shared subscriptions, and of those that it has left: the group if it has other
            members or a queue and no other group of the session has the filter, else None
    taken   messages with their group, in order
    """

    def __init__(self, tree: Trie, session: Session, now: float, queued_only: bool) -> None:
        self.groups: dict[bytes, SharedGroup | None] = {}
        self.taken: list[tuple[SharedGroup, Message]] = []
        self._tree = tree
        self._session = session
        self._now = now
        self._steps = 0
        self._by_topic: dict[bytes, SharedGroup | None] = {}
        for subscription in session.subscriptions.values():
            group = subscription.group
            if group is not None and (group.queue is not None or (len(group) > 1 and not queued_only)):
                self._add(group)
        for full in session.left_groups or ():
            left = find_group(tree, full)
            if left is not None and left.queue is not None:
                self._add(left)

    def _add(self, group: SharedGroup) -> None:
        self.groups[group.topic_filter] = None if group.topic_filter in self.groups else group

    def take(self, outgoing: Outgoing) -> bool:
        """Return whether another member of its group gets the message."""
        message = outgoing.message
        if message is None or message.expires_at <= self._now:
            return False
        end = self._session.bridge_end
        if end is not None:
            source = end.group_of(message)
            if source is not None:
                self.taken.append((source, message))
            return source is not None
        topic = message.topic
        if topic not in self._by_topic:
            if self._steps >= HANDOVER_STEPS_MAX:
                return False
            self._by_topic[topic] = self._group_of(topic)
        group = self._by_topic[topic]
        if group is None or (group.queue is None and len(self.taken) >= HANDED_OVER_MAX):
            return False
        self.taken.append((group, message))
        return True

    def _group_of(self, topic: bytes) -> SharedGroup | None:
        """The one group for which the session can have got a message of this topic. None when it can have got it by an
        ordinary subscription or for one of several groups: other members then have copies of their own."""
        found: SharedGroup | None = None
        matched = self._tree.match(topic)
        self._steps += self._tree.visited + len(matched)
        for value in matched:
            assert isinstance(value, FilterEntry)
            if self._session in value.subscriptions:
                return None
            if value.topic_filter in self.groups:
                group = self.groups[value.topic_filter]
                if group is None or found is not None:
                    return None
                found = group
        return found
