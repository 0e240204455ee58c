"""Retained messages that changed lately, and the nodes whose clients changed them.

The full state of a node that connects is a picture of its past. It must not bring back what is older than a change here:

- A change that happened while the other node is known is on its way to it. The change wins on both nodes.
- What clients here wrote or deleted gives way only to what clients there did. A node that only holds the values of others
  does not know better than the node that wrote them.
- Where clients of both nodes wrote before the nodes knew each other, the value of the node whose name comes first wins on
  both.

Versions that order changes of all nodes would be the next step; the frames have room for them (docs/protocol-extensions.md).
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from typing import Final

from broker.message import Message

CHANGES_MAX: Final = 65_536  # topics
TOPIC_BYTES_MAX: Final = 16 * 2**20  # of all topics together; past either the oldest change is forgotten, and counted

HERE: Final = ""  # clients of this node
LONG_AGO: Final = -1.0


class RetainedChanges:
    """Of one node: when the retained message of a topic was changed last by publishing, and clients of which node did it.

    forgotten  how many changes had to make room for later ones
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # The oldest change first. An OrderedDict because a dict walks over all deleted entries to find its first one.
        self._changes: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._topic_bytes = 0
        self.forgotten = 0

    def note(self, topic: bytes, now: float, node: str) -> None:
        """A client of `node` published or deleted a retained message; LONG_AGO: a full state says so."""
        changes = self._changes
        if topic in changes:
            changes.move_to_end(topic)
        else:
            self._topic_bytes += len(topic)
        changes[topic] = (now, node)
        while len(changes) > CHANGES_MAX or self._topic_bytes > TOPIC_BYTES_MAX:
            oldest, _ = changes.popitem(last=False)
            self._topic_bytes -= len(oldest)
            self.forgotten += 1

    def touch(self, topic: bytes, now: float) -> None:
        """The topic's retained message is sent again, whoever wrote it."""
        known = self._changes.get(topic)
        self.note(topic, now, HERE if known is None else known[1])

    def changed_since(self, topic: bytes, since: float) -> bool:
        known = self._changes.get(topic)
        return known is not None and known[0] >= since

    def changed_by(self, topic: bytes) -> str | None:
        """The node whose clients changed the topic last, HERE for this one; None when that is not known."""
        known = self._changes.get(topic)
        return None if known is None else known[1]

    def written_here(self) -> list[bytes]:
        """Topics that clients here changed last, the oldest change first."""
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
        """Return whether a message of the full state of `node` replaces the one that is held here (None: there is
        none).

        message           an empty payload is a deletion
        known_since       when `node` became a member
        is_written_there  clients of `node` wrote it
        members           names of all nodes that are members now
        """
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
                return False  # `node` may have missed a change; the node that wrote it tells us, or is this one
        same = held is not None and held.payload == message.payload and held.properties == message.properties
        if same or node < self._name:
            return True
        return not by_here and (held is None or is_written_there)
