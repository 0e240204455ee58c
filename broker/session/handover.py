"""What a member of a shared group leaves behind when its session ends (MQTT 5, 4.8.2): others of the group should get it."""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.message import Message
from broker.routing.shared import SharedGroup
from broker.routing.subscription import FilterEntry, Subscription
from broker.routing.trie import Trie
from broker.session.outgoing import AWAIT_PUBACK, Outgoing
from broker.session.session import Session

HANDED_OVER_MAX: Final = 256  # messages of one session; what is more ends with it, and is counted


def take_left_behind(tree: Trie, session: Session, now: float) -> list[tuple[SharedGroup, Message]]:
    """Messages that the session got for a group which has other members, and did not take: QoS 1 that was not
    acknowledged, QoS 1 and 2 that was not sent yet. QoS 2 that was sent is nobody else's [MQTT-4.8.2-5].

    They leave the session's queue. To be called while its subscriptions stand."""
    shared = [
        subscription
        for subscription in session.subscriptions.values()
        if subscription.group is not None and len(subscription.group) > 1
    ]
    left_behind: list[tuple[SharedGroup, Message]] = []
    if not shared:
        return left_behind
    groups: dict[bytes, SharedGroup | None] = {}
    if session.inflight is not None:
        for outgoing in session.inflight.messages():
            if outgoing.state == AWAIT_PUBACK and len(left_behind) < HANDED_OVER_MAX:
                _take(tree, session, shared, groups, outgoing, now, left_behind)
    if session.queue:
        stay: deque[Outgoing] = deque()
        for outgoing in session.queue:
            if outgoing.qos and outgoing.expires_at > now and len(left_behind) < HANDED_OVER_MAX:
                if _take(tree, session, shared, groups, outgoing, now, left_behind):
                    continue
            stay.append(outgoing)
        session.queue = stay
    return left_behind


def _take(
    tree: Trie,
    session: Session,
    shared: list[Subscription],
    groups: dict[bytes, SharedGroup | None],
    outgoing: Outgoing,
    now: float,
    left_behind: list[tuple[SharedGroup, Message]],
) -> bool:
    message = outgoing.message
    if message is None or message.expires_at <= now:
        return False
    topic = message.topic
    if topic not in groups:
        groups[topic] = _group_of(tree, session, shared, topic)
    group = groups[topic]
    if group is None:
        return False
    left_behind.append((group, message))
    return True


def _group_of(tree: Trie, session: Session, shared: list[Subscription], topic: bytes) -> SharedGroup | None:
    """The one group that a message of this topic can have come for. None when it may have come for the client itself or
    for one of several groups: then others have theirs."""
    matching: set[bytes] = set()
    for value in tree.match(topic):
        assert isinstance(value, FilterEntry)
        if session in value.subscriptions:
            return None
        matching.add(value.topic_filter)
    found: SharedGroup | None = None
    for subscription in shared:
        if subscription.topic_filter in matching:
            if found is not None:
                return None
            found = subscription.group
    return found
