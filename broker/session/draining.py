"""Messages that wait in the queue of a shared group go to members that have credit."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.counters import DROP_EXPIRED, DROP_GROUP_GONE
from broker.message import Message
from broker.routing.group_copy import GroupCopy
from broker.routing.router import Router
from broker.routing.shared import SharedGroup
from broker.routing.subscription import Subscription
from broker.session.durable import begin_records, note_change
from broker.session.left_behind import UNKNOWN, take_left_behind
from broker.session.outgoing import Outgoing
from broker.session.session import Session
from broker.store.journal import Journal

LEFT_GROUPS_MAX: Final = 64  # of a session. Policy: messages of groups that it leaves later end with it


def join_groups(router: Router, session: Session, journal: Journal | None, now: float) -> None:
    """The session has subscribed, and may be a member of a group with a queue now."""
    if session.queued_groups is None:
        return
    if journal is not None:
        begin_records(session, journal)
    for group in list(session.queued_groups):
        drain(router, group, now)


def leave_group(session: Session, full: bytes, subscription: Subscription) -> None:
    """The session unsubscribes: the messages that it has not acknowledged go back when its connection ends, or the process."""
    if session.inflight_length() == 0:
        session.left_groups = None
        return
    group = subscription.group
    if group is None or group.queue is None:
        return
    left = session.left_groups
    if left is None:
        left = session.left_groups = {}
    if len(left) < LEFT_GROUPS_MAX:
        left[full] = None
        note_change(session)


def drain(router: Router, group: SharedGroup, now: float) -> None:
    """Something has changed for the members of the group on this node: give them what waits."""
    context = router.context
    context.slices.steps += 1
    if group.queue is not None:
        context.changed_groups[group] = None
        dispatch(router, group, now)


def dispatch(router: Router, group: SharedGroup, now: float) -> None:
    """Give members of the group on this node what waits, oldest first, until none of them has credit."""
    session = queue_session(group)
    while True:
        outgoing = None if session is None else first_waiting(session, now)
        if session is None or outgoing is None or outgoing.message is None:
            return
        copy = outgoing.copy
        if copy is None or copy is UNKNOWN:  # a record of an earlier build
            copy = group.copy
        if not router.redeliver(copy, outgoing.message, now, True):
            return
        outgoing.copy = None
        session.context.counters.redelivered += 1
        take_out(session, outgoing)


def queue_session(group: SharedGroup) -> Session | None:
    """The queue of a group, None for one without."""
    return None if group.queue is None else cast(Session, cast(Subscription, group.queue).session)


def first_waiting(session: Session, now: float) -> Outgoing | None:
    """The oldest message of a group's queue. Expired ones before it are dropped."""
    queue = session.queue
    while queue is not None:
        outgoing = queue.first()
        if outgoing is None or outgoing.expires_at > now:
            return outgoing
        session.messages_dropped += 1
        session.context.counters.drop_for_client(DROP_EXPIRED, 1, outgoing.qos, session.client_id)
        outgoing.end_copy()
        take_out(session, outgoing)
    return None


def take_out(session: Session, outgoing: Outgoing) -> None:
    """Take a message, which is one of the oldest, out of a group's queue."""
    if outgoing.record and session.records is not None:
        session.records.remove(outgoing)
    if session.queue is not None:
        session.queue.take_out(outgoing)


def free_credit(group: SharedGroup) -> int:
    """Return how many messages the members of the group on this node can be sent now."""
    found = 0
    for member in group.members():
        session = cast(Session, cast(Subscription, member).session)
        if session.is_available():
            found += session.inflight_max - session.inflight_length()
    return found


def give_back(router: Router, session: Session, now: float) -> None:
    """The connection of a session ended: messages of groups with a queue that it has not acknowledged are requeued, or go to
    others [MQTT5 4.8.2]. QoS 2 messages that were sent stay with the session, and so does everything of a session with a
    BridgeEnd until it ends: the other broker may have it."""
    if session.queued_groups is not None:
        router.context.changed_groups.update(session.queued_groups)
    elif session.left_groups is None:
        return
    if session.bridge_end is not None:
        return
    redeliver_all(router, take_left_behind(router.tree, session, now, True), now)
    session.left_groups = None


def redeliver_all(router: Router, left_behind: list[tuple[GroupCopy, Message]], now: float) -> None:
    """Give other members of their groups what was taken from a session."""
    for copy, message in left_behind:
        if not router.redeliver(copy, message, now):
            router.context.counters.drop_of_topic(DROP_GROUP_GONE, 1, message.qos, message.topic)
            copy.end()
