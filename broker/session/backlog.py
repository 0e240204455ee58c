"""Retained messages that a subscription brought and the client has not taken yet.

They do not stand in the session's queue, whose bound is for what is published: a list of references is enough, because
the retained store keeps the messages anyway. Each is looked at again when its turn comes, so that a client never gets an
older value after a newer one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.message import Message
from broker.topics.retained import RetainedStore

BACKLOG_MAX: Final = 2_000_000  # references of one session; what is more is dropped and counted


class Portion:
    """What one filter matched; `at` is the next one."""

    __slots__ = ("at", "full_filter", "identifiers", "messages", "qos")

    def __init__(self, full_filter: bytes, messages: list[Message], qos: int, identifiers: tuple[int, ...]) -> None:
        self.full_filter = full_filter
        self.messages = messages
        self.qos = qos
        self.identifiers = identifiers
        self.at = 0


class RetainedBacklog:
    """Portions in the order of their subscriptions; subscribing to a filter again replaces its portion."""

    __slots__ = ("_portions", "_size")

    def __init__(self) -> None:
        self._portions: deque[Portion] = deque()
        self._size = 0

    def __len__(self) -> int:
        """How many references it keeps."""
        return self._size

    def add(self, portion: Portion) -> bool:
        """False when it is too much."""
        self.remove(portion.full_filter)
        if self._size + len(portion.messages) > BACKLOG_MAX:
            return False
        self._portions.append(portion)
        self._size += len(portion.messages)
        return True

    def remove(self, full_filter: bytes) -> None:
        """The client unsubscribed."""
        for index, portion in enumerate(self._portions):
            if portion.full_filter == full_filter:
                self._size -= len(portion.messages)
                del self._portions[index]
                return

    def first(self, retained: RetainedStore, now: float) -> Portion | None:
        """The portion whose `messages[at]` is the next to send; None when nothing is left. What was replaced since (its
        successor went to the subscriber as any publish) or has expired is passed over."""
        while self._portions:
            portion = self._portions[0]
            messages = portion.messages
            while portion.at < len(messages):
                message = messages[portion.at]
                if message.expires_at > now and retained.get(message.topic) is message:
                    return portion
                portion.at += 1
            self._size -= len(messages)
            self._portions.popleft()
        return None
