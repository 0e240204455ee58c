"""Retained messages (section 3.3.1.3): the last one of each topic, found by topic filter."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from broker.message import NEVER, Message

RETAINED_MESSAGES_MAX: Final = 1_000_000
_DEADLINES_SPARE: Final = 1_024  # stale deadlines that are kept before the heap is built anew


class _Node:
    __slots__ = ("children", "message")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] | None = None
        self.message: Message | None = None


class RetainedStore:
    """One message for each topic, at most `messages_max` of them.

    Policy at the limit: a message for a topic that has none is refused and counted in `refused`; topics that have one
    go on being replaced and deleted. `expired` counts what `expire` took away.
    """

    __slots__ = ("_deadlines", "_messages", "_root", "expired", "messages_max", "refused")

    def __init__(self, messages_max: int = RETAINED_MESSAGES_MAX) -> None:
        self.messages_max = messages_max
        self.refused = 0
        self.expired = 0
        self._messages: dict[bytes, Message] = {}
        self._root = _Node()
        # (expires_at, topic); entries of replaced messages stay until they come up or the heap is built anew.
        self._deadlines: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Message) -> bool:
        """Keep a message, or delete its topic's when the payload is empty [MQTT-3.3.1-6]. True when that changed
        something; False for a delete of nothing and for a message that the limit refuses."""
        topic = message.topic
        if not message.payload:
            return self._delete(topic)
        if topic not in self._messages and len(self._messages) >= self.messages_max:
            self.refused += 1
            return False
        self._messages[topic] = message
        node = self._root
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
        if message.expires_at != NEVER:
            heappush(self._deadlines, (message.expires_at, topic))
            if len(self._deadlines) > 2 * len(self._messages) + _DEADLINES_SPARE:
                self._rebuild_deadlines()
        return True

    def get(self, topic: bytes) -> Message | None:
        """The topic's message, also an expired one that `expire` has not taken yet."""
        return self._messages.get(topic)

    def match(self, topic_filter: bytes, now: float) -> list[Message]:
        """Messages whose topic the filter matches and that have not expired at `now`."""
        found: list[Message] = []
        if b"+" not in topic_filter and b"#" not in topic_filter:
            message = self._messages.get(topic_filter)
            if message is not None and message.expires_at > now:
                found.append(message)
            return found
        nodes: list[_Node] = [self._root]
        first = True
        for level in topic_filter.split(b"/"):
            if level == b"#":
                _collect(nodes, first, now, found)
                return found
            following: list[_Node] = []
            for node in nodes:
                children = node.children
                if children is None:
                    continue
                if level == b"+":
                    for name, child in children.items():
                        if not first or not name.startswith(b"$"):  # [MQTT-4.7.2-1]
                            following.append(child)
                else:
                    child_or_none = children.get(level)
                    if child_or_none is not None:
                        following.append(child_or_none)
            nodes = following
            first = False
        for node in nodes:
            message = node.message
            if message is not None and message.expires_at > now:
                found.append(message)
        return found

    def messages(self) -> list[Message]:
        """All of them, in the order in which their topics first came, also expired ones."""
        return list(self._messages.values())

    def next_expiry(self) -> float:
        """When to call `expire`: no message expires before it; NEVER for none."""
        return self._deadlines[0][0] if self._deadlines else NEVER

    def expire(self, now: float, limit: int) -> int:
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
        if self._messages.pop(topic, None) is None:
            return False
        levels = topic.split(b"/")
        path: list[_Node] = [self._root]
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


def _collect(nodes: list[_Node], at_root: bool, now: float, found: list[Message]) -> None:
    """Messages of the nodes and of all below them; at the root without `$` topics [MQTT-4.7.2-1]."""
    stack: list[_Node] = []
    for node in nodes:
        if at_root and node.children is not None:
            for name, child in node.children.items():
                if not name.startswith(b"$"):
                    stack.append(child)
        elif not at_root:
            stack.append(node)
    while stack:
        node = stack.pop()
        message = node.message
        if message is not None and message.expires_at > now:
            found.append(message)
        if node.children is not None:
            stack.extend(node.children.values())
