"""Retained messages (section 3.3.1.3): the last one of each topic, found by topic filter."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from broker.message import NEVER, Message, message_bytes

RETAINED_MESSAGES_MAX: Final = 1_000_000
RETAINED_BYTES_MAX: Final = 2**30
EXPIRE_MAX: Final = 1_000  # deadlines looked at in one sweep
WALK_TO_THE_END: Final = 2**62
_BELOW_HASH: Final = -1
_DEADLINES_SPARE: Final = 1_024  # stale deadlines that are kept before the heap is built anew


class _Node:
    """`changed`: the store's `changes` when it got its message."""

    __slots__ = ("changed", "children", "message")

    def __init__(self) -> None:
        self.changed = 0
        self.children: dict[bytes, _Node] | None = None
        self.message: Message | None = None


class RetainedStore:
    """One message for each topic, at most `messages_max` of them with at most `bytes_max` bytes.

    Policy at the limits: what does not fit is refused and counted in `refused`. A topic that has a message goes on being
    replaced and deleted; when its new one has too many bytes it has none any more, rather than an old value for ever.
    `expired` counts what `expire` took away.
    """

    __slots__ = (
        "_deadlines",
        "_messages",
        "bytes",
        "bytes_max",
        "changes",
        "expired",
        "messages_max",
        "refused",
        "root",
    )

    def __init__(self, messages_max: int = RETAINED_MESSAGES_MAX, bytes_max: int = RETAINED_BYTES_MAX) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.bytes = 0
        self.refused = 0
        self.expired = 0
        self._messages: dict[bytes, Message] = {}
        self.root = _Node()
        self.changes = 0  # how many messages were ever put
        # (expires_at, topic); entries of replaced messages stay until they come up or the heap is built anew.
        self._deadlines: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Message) -> bool:
        """Keep a message, or delete its topic's when the payload is empty [MQTT-3.3.1-6]. True when that changed
        something; False for a delete of nothing and for a message that a limit refuses where there was none."""
        topic = message.topic
        if not message.payload:
            return self._delete(topic)
        if not self.has_room(message):
            self.refused += 1
            return self._delete(topic)
        known = self._messages.get(topic)
        if known is not None:
            self.bytes -= message_bytes(known)
        self.bytes += message_bytes(message)
        self._messages[topic] = message
        node = self.root
        for level in topic.split(b"/"):
            children = node.children
            if children is None:
                children = {}
                node.children = children
            child = children.get(level)
            if child is None:
                child = _Node()
                children[level] = child
            node = child
        node.message = message
        self.changes += 1
        node.changed = self.changes
        if message.expires_at != NEVER:
            heappush(self._deadlines, (message.expires_at, topic))
            if len(self._deadlines) > 2 * len(self._messages) + _DEADLINES_SPARE:
                self._rebuild_deadlines()
        return True

    def has_room(self, message: Message) -> bool:
        """Whether both limits take the message in place of the one that its topic has."""
        known = self._messages.get(message.topic)
        if known is None:
            return len(self._messages) < self.messages_max and self.bytes + message_bytes(message) <= self.bytes_max
        return self.bytes - message_bytes(known) + message_bytes(message) <= self.bytes_max

    def get(self, topic: bytes) -> Message | None:
        """The topic's message, also an expired one that `expire` has not taken yet."""
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
        """All of them, in the order in which their topics first came, also expired ones."""
        return list(self._messages.values())

    def next_expiry(self) -> float:
        """When to call `expire`: no message expires before it; NEVER for none."""
        return self._deadlines[0][0] if self._deadlines else NEVER

    def expire(self, now: float, limit: int = EXPIRE_MAX) -> int:
        """Delete expired messages, looking at no more than `limit` deadlines; how many were deleted."""
        deleted = 0
        while limit > 0 and self._deadlines and self._deadlines[0][0] <= now:
            limit -= 1
            expires_at, topic = heappop(self._deadlines)
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
        self.bytes -= message_bytes(message)
        levels = topic.split(b"/")
        path: list[_Node] = [self.root]
        for level in levels:
            children = path[-1].children
            assert children is not None
            path.append(children[level])
        path[-1].message = None
        for depth in range(len(path) - 1, 0, -1):
            node = path[depth]
            if node.message is not None or node.children:
                break
            children = path[depth - 1].children
            assert children is not None
            del children[levels[depth - 1]]
            if not children:
                path[depth - 1].children = None
        return True

    def _rebuild_deadlines(self) -> None:
        deadlines: list[tuple[float, bytes]] = []
        for topic, message in self._messages.items():
            if message.expires_at != NEVER:
                deadlines.append((message.expires_at, topic))
        heapify(deadlines)
        self._deadlines = deadlines


class RetainedWalk:
    """The messages that a filter matches, found a few at a time: a filter with wildcards may have to look at every topic
    there is, also when it matches none of them.

    Found are those that were there when the walk was made and still are; what came later the subscriber gets as any
    message. `found` is the last one, None after an `advance` that found none.
    """

    __slots__ = ("_depths", "_levels", "_nodes", "_until", "found")

    def __init__(self, store: RetainedStore, topic_filter: bytes) -> None:
        self.found: Message | None = None
        self._levels = topic_filter.split(b"/")
        self._until = store.changes
        # What is still to be looked at, and how many levels of the filter lead there; _BELOW_HASH: all of them.
        self._nodes: list[_Node] = [store.root]
        self._depths: list[int] = [0]

    def is_done(self) -> bool:
        return not self._nodes

    def advance(self, limit: int) -> int:
        """Go on to the next message, or until `limit` topics were looked at (or a few more: those below one level are
        taken together). Returns how many it was."""
        levels = self._levels
        nodes = self._nodes
        depths = self._depths
        looked = 0
        self.found = None
        while nodes and looked < limit:
            node = nodes.pop()
            depth = depths.pop()
            looked += 1
            children = node.children
            if depth == len(levels):
                if node.message is not None and node.changed <= self._until:
                    self.found = node.message
                    break
                continue
            level = b"#" if depth == _BELOW_HASH else levels[depth]
            if level == b"#":
                if children is not None:
                    self._push_children(children, depth == 0, _BELOW_HASH)
                    looked += len(children)
                if node.message is not None and node.changed <= self._until:
                    self.found = node.message
                    break
            elif children is None:
                continue
            elif level == b"+":
                self._push_children(children, depth == 0, depth + 1)
                looked += len(children)
            else:
                child = children.get(level)
                if child is not None:
                    nodes.append(child)
                    depths.append(depth + 1)
        return looked

    def _push_children(self, children: dict[bytes, _Node], at_root: bool, depth: int) -> None:
        """All of them, the oldest on top; at the root without `$` topics [MQTT-4.7.2-1]."""
        if at_root:
            following = [child for name, child in children.items() if not name.startswith(b"$")]
        else:
            following = list(children.values())
        following.reverse()
        self._nodes += following
        self._depths += [depth] * len(following)
