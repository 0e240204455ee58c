"""The subscriptions of a session that a plugin feeds (broker/feeds.py)."""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from typing import Final

from broker.context import Context
from broker.feeds import FeedReader
from broker.message import Publication
from broker.routing.names import FEED_PREFIX
from broker.routing.subscriber import Subscriber
from broker.routing.subscription import Subscription
from broker.slices import Slices, Work

MESSAGE_STEPS: Final = 4  # of a slice for a message of a feed, or a run
RUN_STEP: Final = 4  # messages of a run that are one more
ASK_STEPS: Final = 1  # for a feed that is asked, beside its own
OPEN_STEPS: Final = 50


class FedSubscription(FeedReader):
    """message  the next one to send, or a run of them; None when it is not found yet"""

    def __init__(self, context: Context, subscription: Subscription, fed: FedSubscriptions) -> None:
        super().__init__(subscription.session.client_id)
        self.subscription = subscription
        self._fed = fed
        self.message: Publication | None = None
        self._context = context
        self._version = 5
        self._rules = 0
        self._found_by = 0  # the rules by which the message was found
        self._judged_by = -1
        self._judged_as: object = None

    # --- for the session ---

    def find(self, version: int, now: float, slices: Slices) -> bool:
        """Return whether there is a message to send."""
        message = self.message
        if message is not None:
            if self.rules() == self._found_by or self.may_have(message.topic):
                return True
            self.taken()
        feed = self.subscription.feed
        if feed is None:
            feeds = self._context.feeds
            if feeds is None:  # the plugin of the SUBSCRIBE is not loaded any more
                return False
            self._version = version
            slices.steps += OPEN_STEPS
            feed = feeds.open(self, self.subscription.position)
            self.subscription.feed = feed
        self._found_by = self.rules()
        self.message = feed.next(now)
        slices.steps += ASK_STEPS + feed.steps
        return self.message is not None

    def is_resting(self) -> bool:
        """Return whether the feed has not ended its search."""
        feed = self.subscription.feed
        return feed is not None and feed.is_resting

    def taken(self) -> None:
        """The message was sent, or given up."""
        self.message = None
        feed = self.subscription.feed
        if feed is not None:
            feed.taken()

    def stop(self) -> None:
        """The client has gone, or asks for something else. Its position stays."""
        self.message = None
        self.subscription.stop_feed()

    # --- for the feed ---

    def version(self) -> int:
        return self._version

    def rules(self) -> int:
        authorization = self._context.authorization
        number = -1 if authorization is None else authorization.number
        identity = self.subscription.session.identity()
        if number != self._judged_by or identity is not self._judged_as:
            self._judged_by = number
            self._judged_as = identity
            self._rules += 1
        return self._rules

    def may_have(self, topic: bytes) -> bool:
        authorization = self._context.authorization
        return authorization is None or authorization.may_read(self.subscription.session.identity(), topic)

    def is_unwanted(self, client_id: str) -> bool:
        return self.subscription.no_local and client_id == self.client_id

    def wake(self, now: float) -> None:
        self._fed.woken(self)
        self.subscription.session.pump(now)


class FedSubscriptions:
    """resting  the search goes on in a later turn"""

    def __init__(self) -> None:
        self.resting = False
        self._all: dict[bytes, FedSubscription] = {}
        # Those that may have a message, in the order of their turns: each sends one after the other. The others are not asked
        # until their feeds wake them.
        self._woken: OrderedDict[FedSubscription, None] = OrderedDict()

    def count(self) -> int:
        return len(self._all)

    def is_idle(self) -> bool:
        """Return whether no feed has a message: each of them wakes the session when it has."""
        return not self._woken

    def is_resting(self) -> bool:
        return self.resting

    def add(self, context: Context, subscription: Subscription) -> None:
        """A subscription was added, or begins anew."""
        self.remove(subscription.topic_filter)
        fed = FedSubscription(context, subscription, self)
        self._all[subscription.topic_filter] = fed
        self._woken[fed] = None

    def place(self, context: Context, subscription: Subscription, position: bytes) -> None:
        """The subscription goes on from another position."""
        subscription.stop_feed()
        subscription.position = position
        self.add(context, subscription)

    def remove(self, full_filter: bytes) -> None:
        fed = self._all.pop(full_filter, None)
        if fed is not None:
            fed.stop()
            self._woken.pop(fed, None)

    def woken(self, fed: FedSubscription) -> None:
        """The feed of this one has messages again."""
        self._woken[fed] = None

    def stop(self) -> None:
        """The client has gone."""
        for fed in self._all.values():
            fed.stop()
            self._woken[fed] = None

    def find(self, version: int, now: float, slices: Slices) -> FedSubscription | None:
        """Return a subscription with a message; None for none now."""
        woken = self._woken
        for _ in range(len(woken)):
            if slices.is_over():
                break
            fed = next(iter(woken))
            if fed.find(version, now, slices):
                return fed
            if fed.is_resting():
                woken.move_to_end(fed)
            else:
                woken.pop(fed)
        self.resting = len(woken) > 0
        return None

    def taken(self, fed: FedSubscription) -> None:
        """The message of this one was sent, or given up."""
        fed.taken()
        self._woken.move_to_end(fed)


class FedWork(Work):
    """Continue with the feeds of a session in a later turn."""

    __slots__ = ("_fed", "_subscriber")

    def __init__(self, fed: FedSubscriptions, subscriber: Subscriber) -> None:
        self._fed = fed
        self._subscriber = subscriber

    def go_on(self, now: float) -> bool:
        self._fed.resting = False
        self._subscriber.pump(now)
        return True


def is_fed(subscription: Subscription) -> bool:
    """Return whether a plugin feeds the subscription, and not the router."""
    return subscription.topic_filter.startswith(FEED_PREFIX) and not subscription.share_name
