"""Shared groups that are durable as groups: messages wait in the group's queue while no member has credit, also while there is
no member at all.

The queue is a session without a connection: bounded, with the counters of any other session, and kept by the stores. It takes
the place of the queues of the members' sessions, so that each message goes to the member that has credit first.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.broker import Broker
from broker.routing.names import full_filter
from broker.routing.subscriber import GROUP_QUEUE_PREFIX
from broker.routing.subscription import FilterEntry, Subscription
from broker.session.durable import attach_records, begin_records, note_subscription
from broker.session.group_queue import GroupQueue
from broker.session.session import EXPIRY_NEVER, Session

QUEUE_VERSION: Final = 5  # properties of messages are kept


class GroupQueues:
    """The queues of a node. A queue outlives the process with a durable store; whoever declared it does so again."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def declare(
        self,
        share_name: bytes,
        topic_filter: bytes,
        messages_max: int,
        bytes_max: int,
        seconds_max: float,
        now: float,
        rejects: bool = False,
    ) -> Session:
        """Give a group a queue, or the queue that it has other limits. A full one drops its oldest messages, or `rejects`."""
        broker = self._broker
        client_id = queue_id(share_name, topic_filter)
        session = cast("GroupQueue | None", broker.sessions.get(client_id))
        if session is None:
            session = broker.sessions[client_id] = GroupQueue(broker, client_id, now)
            session.version = QUEUE_VERSION
            session.expiry_interval = EXPIRY_NEVER
            session.disconnected_at = now
            broker.counters.sessions_created += 1
            if broker.commits.journal is not None:
                attach_records(session, broker.commits.journal)
        session.group_limits = (messages_max, bytes_max, seconds_max)
        session.rejects = rejects
        session.take_limits(broker.settings)
        full = full_filter(share_name, topic_filter)
        if full not in session.subscriptions:
            subscription = Subscription(session, share_name, topic_filter, 2, False, True, 2, 0)
            broker.insert_subscription(session, full, subscription)
            note_subscription(session, subscription)
            self._keep_members(subscription)
        return session

    def _keep_members(self, queue: Subscription) -> None:
        """Messages of members that were there before outlive the process from now on, too."""
        journal = self._broker.commits.journal
        entry = cast(FilterEntry, self._broker.router.tree.get(queue.topic_filter))
        if journal is not None and entry.groups is not None:
            for member in entry.groups[queue.share_name].members():
                begin_records(cast(Session, cast(Subscription, member).session), journal)

    def remove(self, share_name: bytes, topic_filter: bytes, now: float) -> None:
        """Take a group its queue. Messages that wait are dropped and counted."""
        session = self._broker.sessions.get(queue_id(share_name, topic_filter))
        if session is not None:
            self._broker.end_session(session, now)

    def declared(self) -> list[tuple[bytes, bytes]]:
        """(share_name, topic_filter) of all queues."""
        found: list[tuple[bytes, bytes]] = []
        for topic_filter, value in self._broker.router.tree.items():
            assert isinstance(value, FilterEntry)
            if value.groups is not None:
                found.extend([(name, topic_filter) for name, group in value.groups.items() if group.queue is not None])
        return found


def queue_id(share_name: bytes, topic_filter: bytes) -> str:
    """The client identifier of a group's queue."""
    return GROUP_QUEUE_PREFIX + share_name.decode() + "/" + topic_filter.decode()
