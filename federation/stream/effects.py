"""The effects of another node's events on this one, whichever stream brought them."""

# compiled with mypyc
from __future__ import annotations

from broker.message import Message
from broker.publisher import Publisher
from broker.routing.router import Router
from federation.stream.counters import SkipReason, StreamCounters
from federation.stream.frames import IS_MENDED, IS_NEWS, IS_WRITTEN_THERE, STATE_BEGIN, STATE_END
from federation.stream.retained_changes import HERE, LONG_AGO, RetainedChanges
from federation.stream.tree import FILTERS_MAX, FederationTree, Interest


class EventEffects:
    """publisher   what full receivers here ask to wait"""

    def __init__(
        self,
        name: str,
        tree: FederationTree,
        router: Router,
        counters: StreamCounters,
        changes: RetainedChanges,
        now: float,
    ) -> None:
        self.counters = counters
        self._router = router
        self.publisher = Publisher(None)
        self.name = name
        self._tree = tree
        self._changes = changes
        self._known_since = now
        self.has_interest = False  # the whole interest of the node has come once
        self._fresh: dict[Interest, bytes] | None = None  # between STATE_BEGIN and STATE_END
        self._sessions = 0
        self._has_refused = False  # a filter of this session: the node has others than are known here

    def begin_session(self) -> None:
        """A full state follows."""
        self._fresh = None
        self._has_refused = False
        self._sessions += 1

    def change_interest(self, wanted: bool, share_name: bytes, topic_filter: bytes, note: bytes = b"") -> None:
        fresh = self._fresh
        if wanted:
            # At once also in a state: all of a large one at its end would be a long pause for everybody here.
            is_there = self._tree.add_interest(self.name, share_name, topic_filter, note)
            self._has_refused = self._has_refused or not is_there
            if fresh is not None and len(fresh) < FILTERS_MAX and (is_there or self._tree.is_full(self.name)):
                fresh[(share_name, topic_filter)] = note
        elif fresh is not None:
            fresh.pop((share_name, topic_filter), None)
        else:
            self._tree.remove_interest(self.name, share_name, topic_filter)

    def interest_differs(self, digest: bytes) -> bool:
        """Compare the node's digest of its interest with what is known here. Filters that were refused are no difference."""
        if self._fresh is not None or not self.has_interest or self._has_refused:
            return False
        return digest != self._tree.digest_of(self.name)

    def mark_state(self, kind: int) -> None:
        if kind == STATE_BEGIN:
            self._fresh = {}
        elif kind == STATE_END:
            if self._fresh is not None:
                self._tree.replace_interest(self.name, self._fresh)
                self._fresh = None
                self.has_interest = True
        else:
            self.counters.drop(SkipReason.UNKNOWN, 1)

    def store(self, message: Message, flags: int, now: float) -> None:
        """A retained message as state (docs/protocol-extensions.md, RETAINED)."""
        if flags & IS_NEWS:
            # As a message that was published there and is not delivered: those before it were dropped on the way.
            if message.expires_at <= now:
                message = Message(message.topic, b"", 0, True)
            self._changes.note(message.topic, now, self.name)
            self._router.store_retained(message, now)
        elif message.expires_at <= now:
            self.counters.drop(SkipReason.EXPIRED, 1)
        elif flags & IS_MENDED:
            self._store_mended(message, now)
        else:
            self._store_state(message, flags & IS_WRITTEN_THERE != 0, now)

    def _store_mended(self, message: Message, now: float) -> None:
        """It is not known there who wrote it. What clients here or on a third node wrote stays, and is told to all."""
        topic = message.topic
        held = self._router.context.retained.get(topic)
        if held is not None and held.payload == message.payload and held.properties == message.properties:
            return
        changed_by = self._changes.changed_by(topic)
        if changed_by is None or changed_by == self.name:
            self._router.store_retained(message, now)
        else:
            self.counters.drop(SkipReason.RETAINED_OLDER, 1)
            self._tree.tell_others("", topic)

    def _store_state(self, message: Message, is_written_there: bool, now: float) -> None:
        held = self._router.context.retained.get(message.topic)
        changes = self._changes
        if changes.takes_state(message, held, self.name, self._known_since, is_written_there, self._tree.members):
            self._router.store_retained(message, now)
            if is_written_there:
                changes.note(message.topic, LONG_AGO, self.name)
        else:
            self.counters.drop(SkipReason.RETAINED_OLDER, 1)
            topic = message.topic
            if (
                is_written_there
                and changes.changed_by(topic) == HERE
                and not changes.changed_since(topic, self._known_since)
            ):
                # Of two nodes that wrote this one keeps its value, and that node takes it; a third one may hold theirs.
                self._tree.tell_others(self.name, topic)

    def publish(self, message: Message, groups: tuple[tuple[bytes, bytes], ...] | None, now: float) -> None:
        if message.expires_at <= now:
            self.counters.drop(SkipReason.EXPIRED, 1)
            if message.retain:  # it was the topic's, and so nothing is now
                self._changes.note(message.topic, now, self.name)
                self._router.store_retained(Message(message.topic, b"", 0, True), now)
            return
        if message.retain:
            self._changes.note(message.topic, now, self.name)
        self._router.publish_remote(message, groups, self.publisher, now)

    def take_go_state(self, message: Message, now: float) -> None:
        """A retained message of the state of a Go broker. What was changed here since the node is known is newer. Without
        such a change its value is newer, unless this is the first session since it became a member: then nobody knows, and
        the value here stays on both."""
        topic = message.topic
        held = self._router.context.retained.get(topic)
        since = LONG_AGO if self._sessions == 1 else self._known_since
        is_changed_here = self._changes.changed_since(topic, since)
        if held is None:
            if not message.payload:
                self.counters.drop(SkipReason.DUPLICATE, 1)  # a Go broker keeps a deleted message, without payload
            elif is_changed_here:
                self.counters.drop(SkipReason.RETAINED_OLDER, 1)  # deleted here
                self._tree.tell(self.name, Message(topic, b"", 0, True), now)
            else:
                self.publish(message, None, now)
        elif held.payload == message.payload and held.properties == message.properties:
            self.counters.drop(SkipReason.DUPLICATE, 1)  # receivers here had it
        elif self._sessions == 1 or is_changed_here:
            self.counters.drop(SkipReason.RETAINED_OLDER, 1)
            self._changes.touch(topic, now)
            self._tree.tell(self.name, held, now)
        else:
            self.publish(message, None, now)
            self._tree.tell(self.name, message, now)
