"""Messages that wait in the queue of a shared group go to members that have room."""

from __future__ import annotations

from typing import cast

from broker.counters import DROP_EXPIRED, DROP_GROUP_GONE
from broker.errors import MqttError
from broker.message import Message
from broker.routing.router import Router
from broker.routing.shared import SharedGroup
from broker.routing.subscription import Subscription
from broker.session.durable import begin_records
from broker.session.handover import take_left_behind
from broker.session.session import Session
from broker.store.journal import Journal


def join_groups(router: Router, session: Session, journal: Journal | None, now: float) -> None:
    """The session has subscribed, and may be a member of a group with a queue now."""
    if session.queued_groups is None:
        return
    if journal is not None:
        begin_records(session, journal)
    for group in list(session.queued_groups):
        drain(router, group, now)


def drain(router: Router, group: SharedGroup, now: float) -> None:
    """Give members of the group on this node what waits, oldest first, until none of them has room."""
    if group.queue is None:
        return
    session = cast(Session, cast(Subscription, group.queue).session)
    queue = session.queue
    if queue is None:
        return
    while True:
        outgoing = queue.first()
        if outgoing is None or outgoing.message is None:
            return
        if outgoing.expires_at <= now:
            router.context.counters.drop_for_client(DROP_EXPIRED, 1, outgoing.qos, session.client_id)
        elif not _hand_on(router, group, outgoing.message, now):
            return
        if outgoing.record and session.records is not None:
            session.records.remove(outgoing)
        queue.remove_first()


def give_back(router: Router, session: Session, now: float) -> None:
    """The connection of a session ended: jobs of groups with a queue that it has not acknowledged go to others, or back to the
    queue [MQTT5 4.8.2]. QoS 2 messages that were sent stay with the session."""
    if session.queued_groups is None:
        return
    for group, message in take_left_behind(router.tree, session, now, True):
        if not router.hand_over(group, message, now):
            router.context.counters.drop_of_topic(DROP_GROUP_GONE, 1, message.qos, message.topic)


def _hand_on(router: Router, group: SharedGroup, message: Message, now: float) -> bool:
    """Deliver one message to a member that has room and may read it. False when there is none."""
    try:
        route = router.lookup(message.topic)
    except MqttError:
        return False
    for found in route.groups:
        if found.local is group:
            member = group.pick(True, found.skipped)
            if member is not None:
                router.context.counters.handed_over += 1
                router.deliver_member(cast(Subscription, member), message, None, now)
                return True
    return False
