"""Which retained messages changed lately, so that the state of a node that connects does not bring back what is older.

A full state is a picture of the other node's past. A change that happened while it is known to us is on its way to it, so
the change wins here and there. Where both had a different value before they knew each other, the value of the node whose
name comes first wins on both. Versions that order changes of all nodes, and tombstones, would be the next step; the frames
have room for them (docs/protocol-extensions.md).
"""

from __future__ import annotations

from typing import Final

from broker.message import Message

CHANGES_MAX: Final = 65_536  # topics; the oldest change is forgotten first, and counted


class RetainedChanges:
    """Of one node: what its clients and other nodes changed by publishing (states do not count)."""

    __slots__ = ("_changed_at", "_name", "forgotten")

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed_at: dict[bytes, float] = {}
        self.forgotten = 0

    def note(self, topic: bytes, now: float) -> None:
        """A retained message was published, or deleted."""
        changed_at = self._changed_at
        changed_at.pop(topic, None)
        if len(changed_at) >= CHANGES_MAX:
            del changed_at[next(iter(changed_at))]
            self.forgotten += 1
        changed_at[topic] = now

    def changed_since(self, topic: bytes, since: float) -> bool:
        return self._changed_at.get(topic, -1.0) >= since

    def takes_state(self, message: Message, held: Message | None, node: str, known_since: float) -> bool:
        """Whether a message of the state of `node` replaces what is held (None: nothing)."""
        if self.changed_since(message.topic, known_since):
            return False
        if held is None or (held.payload == message.payload and held.properties == message.properties):
            return True
        return node < self._name
