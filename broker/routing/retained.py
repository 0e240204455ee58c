"""Retained messages [MQTT5 3.3.1.3], found by topic filter."""

# compiled with mypyc
from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import mypyc_attr

from broker.message import NEVER, Message
from broker.routing.trie import Node, Trie, levels_below
from broker.store.journal import Journal

RETAINED_MESSAGES_MAX: Final = 1_000_000
RETAINED_BYTES_MAX: Final = 2**30
ENTRY_BYTES: Final = 1_024  # memory of a message without topic, payload, properties and client id
STAMP_BYTES: Final = 16  # of the stamp of a RetainedMessage, in records and between nodes
EXPIRE_MAX: Final = 1_000  # deadlines that one `expire` examines
_DEADLINE_BYTES: Final = 128  # memory of a heap entry without its topic
# Deadlines of replaced and deleted messages may take this much, plus a quarter of the bytes of the messages.
_STALE_BYTES_SPARE: Final = 256 * 2**10


def retained_bytes(message: Message) -> int:
    """Bytes of a message for `max_retained_bytes`: at least the memory of the message and of its table entries
    (tests/broker/routing/test_memory.py). The tree holds parts of the topic name more than once."""
    carried = len(message.payload) + len(message.properties) + len(message.client_id)
    if message.origin is not None:
        carried += len(message.origin.encode())
    return carried + 4 * len(message.topic) + ENTRY_BYTES


class RetainedMessage(Message):
    """stamp  orders the changes of a topic over several nodes (Versions); 0 on a node without others"""

    __slots__ = ("stamp",)

    def __init__(self, message: Message, stamp: int) -> None:
        super().__init__(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            message.properties,
            message.expires_at,
            message.client_id,
            message.origin,
        )
        self.stamp = stamp


@mypyc_attr(allow_interpreted_subclasses=True)
class Versions:
    """Orders the changes of retained messages over several nodes. This base class is a node without others: of two changes the
    later one counts."""

    def next_stamp(self, topic: bytes, time_ms: int, now: float) -> int:
        """The stamp of a change that enters the federation at this node. time_ms: when it was published elsewhere, in Unix
        milliseconds; 0 for now."""
        return 0

    def time_ms(self, now: float) -> int:
        """Unix milliseconds, not before those of a change that is known; 0 on a node without others."""
        return 0

    def takes(self, topic: bytes, stamp: int) -> bool:
        """Return whether the change is newer than all that is known of the topic."""
        return True

    def changed(self, topic: bytes, stamp: int, is_deletion: bool) -> None:
        """The change was made here."""

    def forgotten(self, topic: bytes) -> None:
        """The topic's message was deleted because a limit refuses the change: nothing is known of the topic."""


class TopicMessages:
    """One message for each topic, in a tree."""

    def __init__(self) -> None:
        self.topics = Trie()  # topic name -> Message

    def __len__(self) -> int:
        raise AssertionError("a subclass implements this")

    def get(self, topic: bytes) -> Message | None:
        """The topic's message, or None."""
        raise AssertionError("a subclass implements this")


class RetainedStore(TopicMessages):
    """One message for each topic, at most `messages_max` of them with at most `bytes_max` bytes.

    Policy at the limits: a message that does not fit is refused. Messages of known topics can still be replaced and deleted.
    When the replacement has too many bytes, the topic's message is deleted: otherwise subscribers would get an outdated
    value. `journal` is told of each change, where the messages are durable.

    refused  number of messages that the limits have refused
    """

    def __init__(self, messages_max: int = RETAINED_MESSAGES_MAX, bytes_max: int = RETAINED_BYTES_MAX) -> None:
        super().__init__()
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.bytes = 0
        self.refused = 0
        self.journal: Journal | None = None
        self.versions = Versions()
        self._messages: dict[bytes, RetainedMessage] = {}
        # A heap of (expires_at, topic). Entries of replaced and deleted messages stay until they are due or too many.
        self._deadlines: list[tuple[float, bytes]] = []
        self._stale_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def keep(self, message: RetainedMessage, now: float) -> bool:
        """Store a published message, if need be in the place of those that have expired. False when a limit refuses it."""
        if message.payload and not self.has_room(message):
            self.expire(now)
        refused = self.refused
        kept = RetainedMessage(message, message.stamp)  # without the encodings that the router caches in the message
        kept.retain = True
        self.put(kept)
        return self.refused == refused

    def put(self, message: Message) -> bool:
        """Store a message; an empty payload deletes the topic's message [MQTT-3.3.1-6]. One without a stamp takes that of the
        topic's message. Returns False when nothing changes: it is not newer than what is known, there was no message to delete,
        or a limit refuses the first message of a topic."""
        if not isinstance(message, RetainedMessage):
            known = self._messages.get(message.topic)
            message = RetainedMessage(message, 0 if known is None else known.stamp)
        elif message.stamp and not self.versions.takes(message.topic, message.stamp):
            return False
        return self.restore(message)

    def restore(self, message: RetainedMessage) -> bool:
        """As `put`, of a message that the store has: it was the newest one."""
        topic = message.topic
        if not message.payload:
            is_known = self._delete(topic)
            self.versions.changed(topic, message.stamp, True)
            return is_known
        if not self.has_room(message):
            self.refused += 1
            self.versions.forgotten(topic)
            return self._delete(topic)
        self.versions.changed(topic, message.stamp, False)
        known = self._messages.get(topic)
        if known is not None:
            self.bytes -= retained_bytes(known)
            message.topic = known.topic  # one object in all tables
        self.bytes += retained_bytes(message)
        self._messages[topic] = message
        self.topics.set(topic, message)
        if message.expires_at != NEVER:
            heappush(self._deadlines, (message.expires_at, message.topic))
        if known is not None:
            self._note_stale(known)
        if self.journal is not None:
            if known is None:
                message.record = self.journal.add(message)
            else:
                message.record = known.record
                self.journal.change(known.record, message)
        return True

    def has_room(self, message: Message) -> bool:
        """Return whether the message fits into both limits once it replaces the topic's message."""
        known = self._messages.get(message.topic)
        if known is None:
            return len(self._messages) < self.messages_max and self.bytes + retained_bytes(message) <= self.bytes_max
        return self.bytes - retained_bytes(known) + retained_bytes(message) <= self.bytes_max

    def get(self, topic: bytes) -> RetainedMessage | None:
        """The topic's message, or None. Includes expired messages that `expire` has not deleted yet."""
        return self._messages.get(topic)

    def messages(self) -> list[RetainedMessage]:
        """All messages, also expired ones, ordered by the first message of their topics."""
        return list(self._messages.values())

    def expire(self, now: float, limit: int = EXPIRE_MAX) -> int:
        """Delete expired messages; examine at most `limit` deadlines. Returns the number of deleted messages."""
        deleted = 0
        while limit > 0 and self._deadlines and self._deadlines[0][0] <= now:
            limit -= 1
            expires_at, topic = heappop(self._deadlines)
            self._stale_bytes -= _DEADLINE_BYTES + len(topic)  # a delete adds it again
            message = self._messages.get(topic)
            if message is not None and message.expires_at == expires_at:
                self._delete(topic)
                self.versions.changed(topic, message.stamp, True)
                deleted += 1
        return deleted

    def _delete(self, topic: bytes) -> bool:
        message = self._messages.pop(topic, None)
        if message is None:
            return False
        self.bytes -= retained_bytes(message)
        self.topics.delete(topic)
        self._note_stale(message)
        if self.journal is not None:
            self.journal.remove(message.record)
            self.journal.is_touched = True
        return True

    def _note_stale(self, message: Message) -> None:
        """Count the deadline of a replaced or deleted message, which is still in the heap. Rebuild the heap when it holds
        too many of them."""
        if message.expires_at == NEVER:
            return
        self._stale_bytes += _DEADLINE_BYTES + len(message.topic)
        if self._stale_bytes <= self.bytes // 4 + _STALE_BYTES_SPARE:
            return
        deadlines: list[tuple[float, bytes]] = []
        for topic, kept in self._messages.items():
            if kept.expires_at != NEVER:
                deadlines.append((kept.expires_at, topic))
        heapify(deadlines)
        self._deadlines = deadlines
        self._stale_bytes = 0


class RetainedWalk:
    """Finds the messages that match a filter, in slices: a filter with wildcards may have to examine every topic.

    The walk finds messages that were stored before it began and are not deleted meanwhile. Messages that are published
    later are delivered like any other. `found` is the message of the last `advance`, None when it found none.
    """

    __slots__ = ("_above", "_is_open", "_levels", "_until", "_waiting", "found", "store")

    def __init__(self, store: TopicMessages, topic_filter: bytes) -> None:
        self.store = store
        self.found: Message | None = None
        levels = topic_filter.split(b"/")
        self._is_open = levels[-1] == b"#"
        if self._is_open:
            levels.pop()
        self._levels = levels
        self._until = store.topics.changes
        # Nodes to visit, by the node above them, up to which the filter matches. A node's path never changes, so topics
        # may be added and deleted between two slices.
        self._above: list[Node] = [store.topics.root]
        self._waiting: list[list[Node]] = [[store.topics.root]]

    def is_done(self) -> bool:
        return not self._above

    def advance(self, limit: int) -> int:
        """Search the next message; stop after about `limit` nodes, because all children of a node count at once. Returns
        the number of nodes."""
        count = len(self._levels)
        looked = 0
        self.found = None
        while self._above and looked < limit:
            looked += 1
            above = self._above[-1]
            waiting = self._waiting[-1]
            node = waiting.pop()
            if not waiting:
                self._above.pop()
                self._waiting.pop()
            if not self._leads_to(node, above):
                continue
            if node.children is not None:
                looked += self._push_children(node, node.children)
            value = node.value
            if node.depth >= count and value is not None and node.changed <= self._until:
                assert isinstance(value, Message)
                self.found = value
                break
        return looked

    def _push_children(self, node: Node, children: dict[bytes, Node]) -> int:
        """Push the children that may lead to matching topics, the oldest on top. Returns their number minus one."""
        levels = self._levels
        depth = node.depth
        following: list[Node] = []
        if depth >= len(levels):
            if self._is_open:
                following = list(children.values())
        elif levels[depth] == b"+":
            following = list(children.values())
        else:
            child = children.get(levels[depth])
            if child is not None:
                following.append(child)
        if not following:
            return 0
        following.reverse()
        self._above.append(node)
        self._waiting.append(following)
        return len(following) - 1

    def _leads_to(self, node: Node, above: Node) -> bool:
        """Return whether topics at or below the node may match: whether the filter matches its levels below `above`."""
        levels = self._levels
        count = len(levels)
        depth = above.depth
        if depth == 0 and (count == 0 or levels[0] == b"+") and node.path.startswith(b"$"):
            return False  # [MQTT-4.7.2-1]
        if depth >= count or node.depth <= depth + 1:
            return True  # the filter ends with # above, or the node's only level was matched by its parent
        if node.depth > count and not self._is_open:
            return False
        for level in levels_below(node, above):
            if depth == count:
                break
            if level != levels[depth] and levels[depth] != b"+":
                return False
            depth += 1
        return True
