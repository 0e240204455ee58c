"""The one copy of a message that a shared group gets [MQTT5 4.8.2]."""

# compiled with mypyc
from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class GroupCopy:
    """The copy goes with the message from the choice of a member until that has acknowledged it. Where the member goes before,
    the copy tells the group. This base class is that of a node that chose itself: nobody waits for the end.

    hops  number of nodes that have handed it on
    key   of the choice by a hash (broker/routing/strategy.py), 0 without one
    """

    __slots__ = ("hops", "key", "share_name", "topic_filter")

    def __init__(self, share_name: bytes, topic_filter: bytes, hops: int = 0, key: int = 0) -> None:
        self.share_name = share_name
        self.topic_filter = topic_filter
        self.hops = hops
        self.key = key

    def is_of(self, share_name: bytes, topic_filter: bytes) -> bool:
        return self.share_name == share_name and self.topic_filter == topic_filter

    def end(self) -> None:
        """Nobody else is to get it: the member has it, or it was dropped and counted."""

    def taken(self, qos: int, is_durable: bool) -> GroupCopy | None:
        """A session takes it. Return what goes with the message there: with QoS 0 nothing, the copy has ended."""
        if qos == 0:
            self.end()
            return None
        return self.stored() if is_durable else self

    def stored(self) -> GroupCopy:
        """A session that outlives the process has it: return the copy for which nobody else waits from here on."""
        return self
