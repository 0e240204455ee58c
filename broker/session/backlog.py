"""Retained messages that a subscription brought and the client has not taken yet.

They do not stand in the session's queue, whose bound is for what is published: the retained store keeps the messages
anyway, and they are looked for as the client takes them. Each is looked at again when its turn comes, so that a client
never gets an older value after a newer one.
"""

from __future__ import annotations

from broker.message import Message
from broker.routing.retained import RetainedStore, RetainedWalk


class Portion:
    """What one filter brings. `without`: No Local, the client's own messages are passed over; "" for none."""

    __slots__ = ("full_filter", "identifiers", "qos", "walk", "without")

    def __init__(
        self, full_filter: bytes, walk: RetainedWalk, qos: int, identifiers: tuple[int, ...], without: str
    ) -> None:
        self.full_filter = full_filter
        self.walk = walk
        self.qos = qos
        self.identifiers = identifiers
        self.without = without


class RetainedBacklog:
    """Portions in the order of their subscriptions, one for each subscription at most: subscribing to a filter again
    replaces its portion.

    message  the next one to send, None when none was found yet
    portion  the one that it is of
    resting  more is to be looked for in a later turn
    """

    __slots__ = ("_portions", "message", "portion", "resting")

    def __init__(self) -> None:
        self._portions: dict[bytes, Portion] = {}
        self.message: Message | None = None
        self.portion: Portion | None = None
        self.resting = False

    def __len__(self) -> int:
        """How many portions it has."""
        return len(self._portions)

    def is_resting(self) -> bool:
        return self.resting

    def add(self, portion: Portion) -> None:
        self.remove(portion.full_filter)
        self._portions[portion.full_filter] = portion

    def remove(self, full_filter: bytes) -> None:
        """The client unsubscribed."""
        portion = self._portions.pop(full_filter, None)
        if portion is not None and portion is self.portion:
            self.portion = None
            self.message = None

    def find(self, retained: RetainedStore, now: float, look_at_most: int) -> int:
        """Fill `message`, unless it is there already or no more may be looked at. What was replaced since (its successor
        went to the subscriber as any publish) or has expired is passed over. Returns how many topics were looked at."""
        looked = 0
        self.resting = False
        while True:
            message = self.message
            if message is not None:
                if message.expires_at > now and retained.get(message.topic) is message:
                    return looked
                self.message = None
            portion = self.portion
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
