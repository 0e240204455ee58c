"""Retained messages that subscriptions brought and the client has not taken yet.

They are not put in the session's queue, whose bounds are for published messages. The retained store keeps them anyway, and
is searched only as fast as the client takes them. Each message is compared with the store again just before it is sent, so
that a client never gets an older retained message after a newer one. What is published meanwhile without RETAIN does not wait
behind them: with its RETAIN flag the older message tells what it is.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from broker.authorization import Authorization
from broker.codec.packets import SubscribeFilter
from broker.message import Message
from broker.routing.retained import RetainedStore, RetainedWalk, TopicMessages
from broker.routing.subscriber import Subscriber
from broker.slices import Work

DELETIONS: Final = b"\0"  # behind a filter, which has no such character: the name of its portion of deletions


@dataclass
class Portion:
    """The retained messages of one filter.

    full_filter  as subscribed
    walk         the search through the retained store
    without      client identifier whose messages are passed over (No Local), "" for none
    retained     of deletions: topics that have a message again are passed over; None for retained messages
    """

    full_filter: bytes
    walk: RetainedWalk
    qos: int
    identifiers: tuple[int, ...]
    without: str
    retained: RetainedStore | None = None


def new_portion(
    store: RetainedStore, request: SubscribeFilter, topic_filter: bytes, qos: int, identifier: int, client_id: str
) -> Portion:
    """Return what a subscription brings [MQTT-3.3.1-9..11]. `topic_filter`: the one of the request."""
    identifiers = (identifier,) if identifier else ()
    without = client_id if request.no_local else ""  # [MQTT-3.8.3-3]
    return Portion(request.topic_filter, RetainedWalk(store, topic_filter), qos, identifiers, without)


def deleted_portion(
    deletions: TopicMessages, retained: RetainedStore, request: SubscribeFilter, topic_filter: bytes, qos: int
) -> Portion:
    """The deletions that a subscription brings: its client may have had none when they were made."""
    return Portion(request.topic_filter + DELETIONS, RetainedWalk(deletions, topic_filter), qos, (), "", retained)


class RetainedBacklog:
    """Portions in the order of their subscriptions, at most one for each. A second subscription to a filter replaces the
    first one's portion.

    message  the next message to send, None when it is not found yet
    portion  the portion that is being searched
    resting  the search goes on in a later turn
    """

    __slots__ = ("_portions", "message", "portion", "resting")

    def __init__(self) -> None:
        # A plain dict takes quadratic time when it is emptied from its front.
        self._portions: OrderedDict[bytes, Portion] = OrderedDict()
        self.message: Message | None = None
        self.portion: Portion | None = None
        self.resting = False

    def is_resting(self) -> bool:
        return self.resting

    def add(self, portion: Portion) -> None:
        if portion.retained is None:
            self.remove(portion.full_filter)
        self._portions[portion.full_filter] = portion

    def remove(self, full_filter: bytes) -> None:
        """Give up what a filter that the client unsubscribed has brought."""
        for name in (full_filter, full_filter + DELETIONS):
            portion = self._portions.pop(name, None)
            if portion is not None and portion is self.portion:
                self.portion = None
                self.message = None

    def find(self, now: float, look_at_most: int, authorization: Authorization | None, reader: Subscriber) -> int:
        """Search for the next `message`, unless there is one. Messages that expired or were replaced since are passed over:
        a successor went to the subscriber as any other publish. Also those that the reader may not read, or
        that do not go to its domain. Returns the number of retained topics that were looked at, at most look_at_most or one
        level of a filter more."""
        looked = 0
        self.resting = False
        while True:
            message = self.message
            portion = self.portion
            if message is not None and portion is not None:
                if message.expires_at > now and portion.walk.store.get(message.topic) is message:
                    if self._may_have(message, portion, authorization, reader):
                        return looked
                    looked += 1
                self.message = None
            if portion is None:
                if not self._portions:
                    return looked
                portion = self.portion = next(iter(self._portions.values()))
            if looked >= look_at_most:
                self.resting = True
                return looked
            walk = portion.walk
            looked += walk.advance(look_at_most - looked)
            found = walk.found
            if found is not None:
                if not portion.without or found.client_id != portion.without:
                    self.message = found
            elif walk.is_done():
                del self._portions[portion.full_filter]
                self.portion = None

    def _may_have(
        self, message: Message, portion: Portion, authorization: Authorization | None, reader: Subscriber
    ) -> bool:
        if portion.retained is not None and portion.retained.get(message.topic) is not None:
            return False
        if message.origin is not None and reader.bridge_end is not None and reader.bridge_end.refuses(message.origin):
            return False
        return authorization is None or authorization.may_read(reader.identity(), message.topic)


class BacklogWork(Work):
    """Continue with the retained messages of a session in a later turn."""

    __slots__ = ("_backlog", "_subscriber")

    def __init__(self, backlog: RetainedBacklog, subscriber: Subscriber) -> None:
        self._backlog = backlog
        self._subscriber = subscriber

    def go_on(self, now: float) -> bool:
        self._backlog.resting = False
        self._subscriber.pump(now)
        return True
