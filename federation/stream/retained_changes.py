"""Which retained messages changed lately and who changed them, so that the state of a node that connects does not bring
back what is older.

A full state is a picture of the other node's past. A change that happened while it is known to us is on its way to it, so
the change wins here and there. What clients here wrote or deleted gives way only to what clients there did; a node that has
a value of others only does not know better than the one that wrote it. Where both wrote before they knew each other, the
value of the node whose name comes first wins on both. Versions that order changes of all nodes would be the next step; the
frames have room for them (docs/protocol-extensions.md).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from broker.message import Message

CHANGES_MAX: Final = 65_536  # topics; the oldest change is forgotten first, and counted


HERE: Final = ""  # clients of this node
LONG_AGO: Final = -1.0


class RetainedChanges:
    """Of one node: when the retained message of a topic was changed last by publishing, and clients of which node did it."""

    __slots__ = ("_changes", "_name", "forgotten")

    def __init__(self, name: str) -> None:
        self._name = name
        self._changes: dict[bytes, tuple[float, str]] = {}
        self.forgotten = 0

    def note(self, topic: bytes, now: float, node: str) -> None:
        """A retained message was published, or deleted, by a client of `node`; LONG_AGO: that was told by a state."""
        changes = self._changes
        changes.pop(topic, None)
        if len(changes) >= CHANGES_MAX:
            del changes[next(iter(changes))]
            self.forgotten += 1
        changes[topic] = (now, node)

    def touch(self, topic: bytes, now: float) -> None:
        """What is held is told again."""
        known = self._changes.get(topic)
        self.note(topic, now, HERE if known is None else known[1])

    def changed_since(self, topic: bytes, since: float) -> bool:
        known = self._changes.get(topic)
        return known is not None and known[0] >= since

    def is_written_here(self, topic: bytes) -> bool:
        known = self._changes.get(topic)
        return known is not None and known[1] == HERE

    def written_here(self) -> list[bytes]:
        """Topics that clients here changed last."""
        return [topic for topic, change in self._changes.items() if change[1] == HERE]

    def takes_state(
        self,
        message: Message,
        held: Message | None,
        node: str,
        known_since: float,
        is_written_there: bool,
        members: Container[str],
    ) -> bool:
        """Whether a message of the state of `node` (an empty payload: a deletion) replaces what is held (None: nothing)."""
        known = self._changes.get(message.topic)
        by_here = False
        if known is not None:
            changed_at, changed_by = known
            by_here = changed_by == HERE
            if changed_by == node and is_written_there:
                return True
            if changed_at >= known_since:
                return False
            if not is_written_there and (by_here or changed_by in members):
                return False  # it may have missed something; who wrote it tells us, or is this node
        same = held is not None and held.payload == message.payload and held.properties == message.properties
        if same or node < self._name:
            return True
        return not by_here and (held is None or is_written_there)
