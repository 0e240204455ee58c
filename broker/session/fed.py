"""The subscriptions of a session that a plugin feeds (broker/feeds.py)."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.context import Context
from broker.feeds import FEED_PREFIX, FeedReader
from broker.message import Publication
from broker.routing.subscriber import Subscriber
from broker.routing.subscription import Subscription
from broker.slices import Slices, Work

MESSAGE_STEPS: Final = 4  # of a slice for a message of a feed, or a run
RUN_STEP: Final = 4  # messages of a run that are one more


class FedSubscription(FeedReader):
    """message  the next one to send, or a run of them; None when it is not found yet"""

    def __init__(self, context: Context, subscription: Subscription) -> None:
        super().__init__(subscription.session.client_id)
        self.subscription = subscription
        self.message: Publication | None = None
        self._context = context
        self._version = 5
        self._rules = 0
        self._found_by = 0  # the rules by which the message was found
        self._judged_by = -1
        self._judged_as: object = None

    # --- for the session ---

    def find(self, fed: FedSubscriptions, version: int, now: float, slices: Slices) -> bool:
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
            feed = feeds.open(self, self.subscription.position)
            self.subscription.feed = feed
        self._found_by = self.rules()
        self.message = feed.next(now)
        slices.steps += feed.steps
        if self.message is None and feed.is_resting:
            fed.is_idle = False
        return self.message is not None

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
        session = self.subscription.session
        session.feed_woken()
        session.pump(now)


class FedSubscriptions:
    """is_idle   no feed has a message: each of them wakes the session when it has
    resting  the search goes on in a later turn
    """

    def __init__(self) -> None:
        self.is_idle = False
        self.resting = False
        self._all: dict[bytes, FedSubscription] = {}
        self._turns: list[FedSubscription] = []
        self._at = 0  # whose turn it is: each gets one message after the other

    def is_resting(self) -> bool:
        return self.resting

    def add(self, context: Context, subscription: Subscription) -> None:
        """A subscription was added, or begins anew."""
        self.remove(subscription.topic_filter)
        self._all[subscription.topic_filter] = FedSubscription(context, subscription)
        self._turns = list(self._all.values())
        self.is_idle = False

    def remove(self, full_filter: bytes) -> None:
        fed = self._all.pop(full_filter, None)
        if fed is not None:
            fed.stop()
            self._turns = list(self._all.values())

    def stop(self) -> None:
        """The client has gone."""
        for fed in self._turns:
            fed.stop()
        self.is_idle = False

    def find(self, version: int, now: float, slices: Slices) -> FedSubscription | None:
        """Return a subscription with a message; None for none now."""
        if slices.is_over():
            self.resting = True
            return None
        self.is_idle = True
        turns = self._turns
        for _ in range(len(turns)):
            if self._at >= len(turns):
                self._at = 0
            fed = turns[self._at]
            if fed.find(self, version, now, slices):
                self.is_idle = False
                return fed
            self._at += 1
        self.resting = not self.is_idle
        return None

    def taken(self, fed: FedSubscription) -> None:
        """The message of this one was sent, or given up."""
        fed.taken()
        self._at += 1


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
