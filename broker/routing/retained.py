"""Retained messages (section 3.3.1.3): the last one of each topic, found by topic filter."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from broker.message import NEVER, Message
from broker.routing.trie import Node, Trie, levels_below

RETAINED_MESSAGES_MAX: Final = 1_000_000
RETAINED_BYTES_MAX: Final = 2**30
ENTRY_BYTES: Final = 1_024  # of each message, beside what it carries
EXPIRE_MAX: Final = 1_000  # deadlines looked at in one sweep
WALK_TO_THE_END: Final = 2**62
_DEADLINE_BYTES: Final = 128  # of an entry of the heap, beside its topic
# Deadlines of messages that were replaced or deleted may take so much, and a quarter of what the messages count for.
_STALE_BYTES_SPARE: Final = 256 * 2**10


def retained_bytes(message: Message) -> int:
    """What a message counts for in `max_retained_bytes`: at least the memory that it takes, its place in the tables
    included (tests/broker/routing/test_memory.py). Parts of the topic name are in the tree more than once."""
    carried = len(message.payload) + len(message.properties) + len(message.client_id)
    return carried + 4 * len(message.topic) + ENTRY_BYTES


class RetainedStore:
    """One message for each topic, at most `messages_max` of them with at most `bytes_max` bytes.

    Policy at the limits: a message that does not fit is refused and counted in `refused`. A topic that has a message can
    still be changed and deleted. A topic whose new message has too many bytes has none afterwards: its subscribers would
    get an old value for ever. `expired` counts the messages that `expire` deleted.
    """

    __slots__ = (
        "_deadlines",
        "_messages",
        "_stale_bytes",
        "bytes",
        "bytes_max",
        "expired",
        "messages_max",
        "refused",
        "topics",
    )

    def __init__(self, messages_max: int = RETAINED_MESSAGES_MAX, bytes_max: int = RETAINED_BYTES_MAX) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.bytes = 0
        self.refused = 0
        self.expired = 0
        self._messages: dict[bytes, Message] = {}
        self.topics = Trie()  # topic name -> Message
        # A heap of (expires_at, topic). Entries of replaced and deleted messages stay in it until their time, or until
        # there are too many of them.
        self._deadlines: list[tuple[float, bytes]] = []
        self._stale_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Message) -> bool:
        """Keep a message; an empty payload deletes the topic's message [MQTT-3.3.1-6]. False when that changes nothing:
        the topic has no message, and there is none to keep or a limit refuses it."""
        topic = message.topic
        if not message.payload:
            return self._delete(topic)
        if not self.has_room(message):
            self.refused += 1
            return self._delete(topic)
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
        return True

    def has_room(self, message: Message) -> bool:
        """Whether the message fits into both limits, in place of the topic's present one."""
        known = self._messages.get(message.topic)
        if known is None:
            return len(self._messages) < self.messages_max and self.bytes + retained_bytes(message) <= self.bytes_max
        return self.bytes - retained_bytes(known) + retained_bytes(message) <= self.bytes_max

    def get(self, topic: bytes) -> Message | None:
        """The topic's message, also when it has expired and `expire` has not deleted it yet."""
        return self._messages.get(topic)

    def match(self, topic_filter: bytes, now: float) -> list[Message]:
        """Messages whose topic the filter matches and that have not expired at `now`."""
        found: list[Message] = []
        walk = RetainedWalk(self, topic_filter)
        while True:
            walk.advance(WALK_TO_THE_END)
            message = walk.found
            if message is None:
                return found
            if message.expires_at > now:
                found.append(message)

    def messages(self) -> list[Message]:
        """All messages, also expired ones, in the order in which their topics got their first message."""
        return list(self._messages.values())

    def next_expiry(self) -> float:
        """When to call `expire`: no message expires earlier. NEVER when none expires."""
        return self._deadlines[0][0] if self._deadlines else NEVER

    def expire(self, now: float, limit: int = EXPIRE_MAX) -> int:
        """Delete expired messages; look at `limit` deadlines at most. Returns how many messages were deleted."""
        deleted = 0
        while limit > 0 and self._deadlines and self._deadlines[0][0] <= now:
            limit -= 1
            expires_at, topic = heappop(self._deadlines)
            self._stale_bytes -= _DEADLINE_BYTES + len(topic)  # a delete adds it again
            message = self._messages.get(topic)
            if message is not None and message.expires_at == expires_at:
                self._delete(topic)
                deleted += 1
        self.expired += deleted
        return deleted

    def _delete(self, topic: bytes) -> bool:
        message = self._messages.pop(topic, None)
        if message is None:
            return False
        self.bytes -= retained_bytes(message)
        self.topics.delete(topic)
        self._note_stale(message)
        return True

    def _note_stale(self, message: Message) -> None:
        """The message was replaced or deleted; the heap still has its deadline. Build the heap anew when it has too many."""
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
    """Finds the messages that a filter matches, a few at a time: the search for a filter with wildcards may look at every
    topic, also when none matches.

    The walk finds the messages that were there when it was made and still are. A subscriber gets later ones as any
    message. `found` is the last one, None after an `advance` that found none.
    """

    __slots__ = ("_above", "_is_open", "_levels", "_until", "_waiting", "found")

    def __init__(self, store: RetainedStore, topic_filter: bytes) -> None:
        self.found: Message | None = None
        levels = topic_filter.split(b"/")
        self._is_open = levels[-1] == b"#"
        if self._is_open:
            levels.pop()
        self._levels = levels
        self._until = store.topics.changes
        # Nodes that are still to be looked at, by the node above them, up to which the filter matches. A node's path never
        # changes, so that topics may come and go meanwhile.
        self._above: list[Node] = [store.topics.root]
        self._waiting: list[list[Node]] = [[store.topics.root]]

    def is_done(self) -> bool:
        return not self._above

    def advance(self, limit: int) -> int:
        """Go on to the next message, or until about `limit` topics were looked at: those below one level count together.
        Returns how many it was."""
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
        """Note the children that may lead to matching topics, the oldest on top. Returns how many there are beside one."""
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
        """Whether topics at or below the node may match: the filter matches those levels of it that are below `above`."""
        levels = self._levels
        count = len(levels)
        depth = above.depth
        if depth == 0 and (count == 0 or levels[0] == b"+") and node.path.startswith(b"$"):
            return False  # [MQTT-4.7.2-1]
        if depth >= count or node.depth <= depth + 1:
            return True  # the filter ends above with #, or the one level was looked up or need not be
        if node.depth > count and not self._is_open:
            return False
        for level in levels_below(node, above):
            if depth == count:
                break
            if level != levels[depth] and levels[depth] != b"+":
                return False
            depth += 1
        return True
