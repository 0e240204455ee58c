"""Jobs that wait in the queue of a shared group go to consumers of other nodes of the cluster, and of other domains.

A queue link is no member of the group. It is offered the jobs for which no member here has credit, says how many of them it
takes, and gets no more. A job is the other end's when it is acknowledged. Until then it is in the session of the link, which
outlives a connection; it is requeued when the session ends, or the other end refuses it.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.reason_codes import QUOTA_EXCEEDED, SUCCESS, TOPIC_FILTER_INVALID
from broker.counters import DROP_GROUP_GONE
from broker.message import NEVER, Message
from broker.routing.names import full_filter
from broker.routing.shared import SharedGroup
from broker.session.draining import dispatch, first_waiting, queue_session, take_out
from broker.session.left_behind import find_group
from broker.session.outgoing import Outgoing
from broker.session.output import Output
from broker.session.session import NO_IDENTIFIERS, Session
from broker.session.subscribable import judge_filter
from federation.links.bridging.headers import (
    NO_QUEUE,
    QUEUE_BYTES_MAX,
    job,
    offer,
    queue_of,
    quoted,
    unquoted,
    visits_of,
)
from federation.links.bridging.own_domain import OwnDomain

OFFER_TOPIC: Final = b"$gmqttd/offer"
CONSUMERS_MAX: Final = 65_536  # groups of all queue links together; a SUBSCRIBE beyond them is refused
REST_SECONDS: Final = 30.0  # without jobs for a domain that has refused one
VISITS_MAX: Final = 1_000  # links that a job passes; it stays where it is then
STAYING_MAX: Final = 64  # oldest jobs of a queue that no link takes; further ones hold up what is behind them
HEADER_BYTES: Final = 4_096  # more than the header and the fixed parts of a PUBLISH with a job have
NOT_OFFERED: Final = -2


class Consumer:
    """One queue link as a consumer of one group, during one connection.

    limit        jobs that the link takes since the connection began
    sent         jobs that it got
    offered         the offer that it knows; NO_QUEUE, or NOT_OFFERED before the first
    rests_until  it has refused a job, and gets none before
    group        whose queue it consumes, None while there is none
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.connection: Output | None = session.connection
        self.limit = 0
        self.sent = 0
        self.offered = NOT_OFFERED
        self.rests_until = 0.0
        self.group: SharedGroup | None = None

    def is_over(self) -> bool:
        """Return whether the connection has ended."""
        return self.connection is None or self.session.connection is not self.connection

    def follow(self, group: SharedGroup | None) -> None:
        """The link consumes from this group from now on: it is looked at when the link has credit again."""
        if self.group is not None and self.group is not group:
            self.session.remove_queued_group(self.group)
        self.group = group
        if group is not None:
            self.session.add_queued_group(group)

    def has_credit(self, now: float) -> bool:
        """Return whether the link may be sent jobs now."""
        return self.sent < self.limit and now >= self.rests_until and self.session.is_available()

    def takes(self, message: Message, now: float) -> bool:
        """Return whether the job may be sent to the link now."""
        if not self.has_credit(now):
            return False
        size = len(message.topic) + len(message.payload) + len(message.properties) + HEADER_BYTES
        if self.connection is None or not self.connection.takes(size):
            return False
        authorization = self.session.context.authorization
        return authorization is None or authorization.may_read(self.session.identity(), message.topic)


class GroupConsumers:
    """Of one node. `dispatch` follows each change of a group, at the end of a turn.

    is_open   jobs are given at all: a plugin says so
    sent      jobs that went to other nodes of the cluster and to other domains
    requeued  jobs of these that came back
    again_at  when a domain that has refused a job gets others: `take_changed` has all groups then
    total     consumers of all groups
    """

    def __init__(self, home: OwnDomain) -> None:
        self.sent = 0
        self.requeued = 0
        self.again_at = NEVER
        self.total = 0
        self.home = home
        self.is_open = False
        self._context = home.broker
        self._router = home.broker.router
        self._consumers: dict[bytes, dict[Session, Consumer]] = {}  # by `$share/GROUP/FILTER`
        self._changed: dict[bytes, None] = {}

    def take_changed(self, now: float) -> list[bytes]:
        """The groups for which `dispatch` is to be called, as `$share/GROUP/FILTER`."""
        if now >= self.again_at:
            self.again_at = NEVER
            self._changed.update(dict.fromkeys(self._consumers))
        context = self._context
        if context.changed_groups:
            for group in context.changed_groups:
                self._changed[full_filter(group.share_name, group.topic_filter)] = None
            context.changed_groups = {}
        found = list(self._changed)
        self._changed = {}
        return found

    def count(self, full: bytes) -> int:
        """Number of links that consume from a group."""
        return sum([not consumer.is_over() for consumer in self._consumers.get(full, {}).values()])

    def group_of(self, full: bytes) -> SharedGroup | None:
        """The group on this node, None when it has neither members nor a queue."""
        return find_group(self._router.tree, full)

    # --- what links say

    def consume(self, session: Session, full: bytes, limit: int) -> int:
        """The link takes so many jobs of the group since its connection began. Returns the reason code for SUBACK."""
        code, share_name, _ = judge_filter(self._context, session, full)
        if code or not share_name or len(full) > QUEUE_BYTES_MAX:
            return code or TOPIC_FILTER_INVALID
        consumer = self._consumers.get(full, {}).get(session)
        if consumer is not None and consumer.is_over():
            self.end(session, full)
            consumer = None
        if consumer is None:
            if self.total >= CONSUMERS_MAX:
                return QUOTA_EXCEEDED
            self.total += 1
            consumer = self._consumers.setdefault(full, {})[session] = Consumer(session)
        consumer.limit = limit
        self._changed[full] = None
        return SUCCESS + 1  # jobs have QoS 1

    def end(self, session: Session, full: bytes) -> bool:
        """The link consumes from the group no more. False when it did not."""
        consumers = self._consumers.get(full)
        consumer = None if consumers is None else consumers.pop(session, None)
        if consumer is None:
            return False
        consumer.follow(None)
        self.total -= 1
        if not consumers:
            del self._consumers[full]
        return True

    def refuse(self, session: Session, packet_id: int, now: float) -> None:
        """The other domain does not take a job: it goes back to its queue."""
        outgoing = None if session.inflight is None else session.inflight.find(packet_id)
        if outgoing is None or outgoing.message is None or session.inflight is None:
            return
        message = outgoing.message
        name = queue_of(message.origin)
        if not name:
            return
        session.inflight.discard(packet_id)
        full = unquoted(name)
        consumers = self._consumers.get(full)
        if consumers is not None and session in consumers:
            consumers[session].rests_until = now + REST_SECONDS
            self.again_at = min(self.again_at, now + REST_SECONDS)
        self._changed[full] = None
        self.requeued += 1
        self._context.counters.redelivered += 1
        group = self.group_of(full)
        if group is None or not self._router.redeliver(group.copy, message, now):
            self._context.counters.drop_of_topic(DROP_GROUP_GONE, 1, message.qos, message.topic)

    # --- what they get

    def dispatch(self, full: bytes, now: float) -> None:
        """Give links the jobs that they take and no member here has credit for, oldest first; then offer the rest."""
        consumers = self._consumers.get(full)
        if consumers is None:
            return
        group = self.group_of(full)
        queue = None if group is None else queue_session(group)
        if queue is None:
            group = None
        for session, consumer in list(consumers.items()):
            if consumer.is_over():
                self.end(session, full)
            else:
                consumer.follow(group)
        if not consumers:
            return
        name = quoted(full)
        waiting = NO_QUEUE
        if group is not None and queue is not None:
            dispatch(self._router, group, now)
            self._send_jobs(queue, name, consumers, now)
            waiting = queue.queue_length()
        for consumer in consumers.values():
            self._offer(consumer, name, waiting, now)

    def _send_jobs(self, queue: Session, name: bytes, consumers: dict[Session, Consumer], now: float) -> None:
        oldest = first_waiting(queue, now)
        while oldest is not None and self._send_job(queue, oldest, name, consumers, now):
            oldest = first_waiting(queue, now)
        if oldest is None or queue.queue is None:
            return
        if True in [consumer.has_credit(now) for consumer in consumers.values()]:  # so it is the job that stays
            for outgoing in queue.queue.oldest(STAYING_MAX + 1):
                if outgoing is not oldest and outgoing.expires_at > now:
                    self._send_job(queue, outgoing, name, consumers, now)

    def _send_job(
        self, queue: Session, outgoing: Outgoing, name: bytes, consumers: dict[Session, Consumer], now: float
    ) -> bool:
        """Give a link one of the oldest jobs. False when none takes it now."""
        message = outgoing.message
        if message is None:
            return False
        visits = visits_of(message.origin) + 1
        consumer = None if visits > VISITS_MAX else _next_consumer(consumers, message, now)
        if consumer is None:
            return False
        take_out(queue, outgoing)
        node, sequence = self.home.next_number()
        sent = message.copy()
        sent.qos = 1
        sent.retain = False
        sent.origin = job(name, visits, node, sequence)
        consumer.sent += 1
        consumer.offered = max(0, consumer.offered - 1)
        self.sent += 1
        self._context.counters.redelivered += 1
        consumer.session.deliver(sent, 1, False, NO_IDENTIFIERS, None, now)
        return True

    def _offer(self, consumer: Consumer, name: bytes, waiting: int, now: float) -> None:
        """Tell the link how many jobs there are for it, where it knows another number. While it asks for none, it only has to
        know whether there are any."""
        session = consumer.session
        count = min(waiting, session.inflight_max)
        if now < consumer.rests_until:
            count = min(count, 0)
        is_news = count != consumer.offered and (consumer.limit > consumer.sent or count <= 0 or consumer.offered <= 0)
        if is_news and session.is_available():
            consumer.offered = count
            message = Message(OFFER_TOPIC, b"", 0, False, b"", NEVER, "", offer(name, count, consumer.sent))
            session.deliver(message, 0, False, NO_IDENTIFIERS, None, now)


def _next_consumer(consumers: dict[Session, Consumer], message: Message, now: float) -> Consumer | None:
    """The next one that takes the job, round robin; nodes of the cluster come before other domains."""
    found: Consumer | None = None
    for consumer in consumers.values():
        is_node = consumer.session.bridge_end is not None and consumer.session.bridge_end.is_node
        if (found is None or is_node) and consumer.takes(message, now):
            found = consumer
            if is_node:
                break
    if found is not None:
        del consumers[found.session]
        consumers[found.session] = found
    return found
