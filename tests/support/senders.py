"""Senders without a node, for the tests of the streams."""

from __future__ import annotations

import random

from broker.message import Message
from federation.stream.counters import StreamCounters
from federation.stream.full_state import LocalState
from federation.stream.outbox import Outbox
from federation.stream.sender import Outlets, PeerSender


class Local(LocalState):
    """A node with these filters, and these retained messages; those without payload are deletions. `links` has the note of
    filters."""

    def __init__(
        self,
        filters: list[tuple[bytes, bytes]] | None = None,
        messages: list[Message] | None = None,
    ) -> None:
        self.filters = filters or []
        self.messages = {message.topic: message for message in messages or []}
        self.links: dict[bytes, bytes] = {}
        self.stamps: list[tuple[int, int]] = [(7, 7)]  # of every part
        self.has_room = True

    def interest(self) -> list[tuple[bytes, bytes]]:
        return list(self.filters)

    def note(self, share_name: bytes, topic_filter: bytes) -> bytes:
        return self.links.get(topic_filter, b"")

    def retained_stamps(self, part: int) -> list[tuple[int, int]]:
        return self.stamps

    def has_retained_room(self) -> bool:
        return self.has_room

    def retained_topics(self) -> list[bytes]:
        return list(self.messages)

    def retained_message(self, topic: bytes, now: float) -> Message | None:
        return self.messages.get(topic)


def make_outbox(bytes_max: int = 2**26, age_max: float = 300.0, drop_oldest: bool = True) -> Outbox:
    return Outbox(bytes_max, age_max, drop_oldest, StreamCounters())


def make_sender(local: LocalState | None = None, extended: bool = True, bytes_max: int = 2**26) -> PeerSender:
    return PeerSender(
        "other",
        extended,
        local or LocalState(),
        Outlets(),
        make_outbox(bytes_max),
        random.Random(1),
    )
