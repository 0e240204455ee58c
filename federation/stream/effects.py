"""The effects of another node's events on this one, whichever stream brought them."""

# compiled with mypyc
from __future__ import annotations

from mypy_extensions import mypyc_attr

from broker.errors import MqttError
from broker.message import Message
from broker.publisher import NodePublisher, Publisher
from broker.routing.retained import RetainedMessage
from broker.routing.router import Router
from federation.hybrid_clock import seconds_of
from federation.stream.counters import SkipReason, StreamCounters
from federation.stream.frames import (
    COPIES_ENDED,
    GROUP_COPY,
    IS_NEWS,
    IS_WRITTEN_THERE,
    ONLY_THESE,
    RETAINED_DIGEST,
    RETAINED_STAMPS,
    STATE_BEGIN,
    STATE_END,
    decode_copy_head,
    decode_digest,
    decode_packet,
    decode_stamp,
    decode_stamps,
)
from federation.stream.group_peer import ReceivedCopy
from federation.stream.retained_versions import RetainedVersions, clock_of, oldest_stamp
from federation.stream.tree import FILTERS_MAX, FederationTree, Interest


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionEvents:
    """Takes what other nodes say about sessions. This base class is a node that does not share them."""

    def receive(self, name: str, data: bytes, now: float) -> None:
        """The body of a SESSION frame came from the node. Raises FrameError."""


class EventEffects:
    """sessions    what takes frames about sessions
    publisher   what full receivers here ask to wait"""

    def __init__(
        self,
        name: str,
        tree: FederationTree,
        router: Router,
        counters: StreamCounters,
        versions: RetainedVersions,
        now: float,
    ) -> None:
        self.counters = counters
        self._router = router
        self.publisher: Publisher = NodePublisher(name)
        self.name = name
        self._tree = tree
        self._versions = versions
        self._known_since = int(versions.time(now) * 1000) / 1000  # stamps have milliseconds
        self.sessions = SessionEvents()
        self.has_interest = False  # the whole interest of the node has come once
        self._fresh: dict[Interest, bytes] | None = None  # between STATE_BEGIN and STATE_END
        self._sessions = 0
        self._differed: set[int] = set()  # parts of the retained messages, at the last comparison of this session
        self._has_refused = False  # a filter of this session: the node has others than are known here

    def begin_session(self) -> None:
        """A full state follows."""
        self._fresh = None
        self._differed.clear()
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

    # --- retained messages ---

    def publish(self, message: Message, groups: tuple[tuple[bytes, bytes], ...] | None, now: float) -> None:
        if message.expires_at > now:
            refused = self._versions.refused_ahead
            self._router.publish_remote(message, groups, self.publisher, now)
            if message.retain:
                self._count_ahead(refused)
            return
        self.counters.drop(SkipReason.EXPIRED, 1)
        if message.retain:  # it was the topic's, and so nothing is now
            self._keep(message, now)

    def store(self, message: Message, flags: int, now: float) -> None:
        """A retained message as state (docs/protocol-extensions.md, RETAINED)."""
        if flags & IS_NEWS or isinstance(message, RetainedMessage):
            self._keep(message, now)
        elif message.expires_at <= now:
            self.counters.drop(SkipReason.EXPIRED, 1)
        elif self._takes_state(message, flags & IS_WRITTEN_THERE != 0, now):
            is_known = self._versions.stamp_of(message.topic) > 0
            self._keep(message if is_known else RetainedMessage(message, oldest_stamp(message)), now)

    def publish_copy(self, data: bytes, start: int, end: int, now: float) -> None:
        """The body of a GROUP_COPY. Raises FrameError and MqttError."""
        head, start = decode_copy_head(data, start, end)
        message, _ = decode_packet(data, start, end, 5, now)
        context = self._router.context
        context.now = now
        context.counters.messages_from_peers += 1
        copy = ReceivedCopy(self._tree.members[self.name], context, head)
        if message.expires_at <= now:
            self.counters.drop(SkipReason.EXPIRED, 1)
            copy.end()
            return
        try:
            self._router.deliver_copy(message, copy, self.publisher, now)
        except MqttError:
            copy.end()
            raise

    def take_go_state(self, message: Message, now: float) -> None:
        """A retained message of the state of a Go broker, of which receivers here may know nothing."""
        is_known = self._versions.stamp_of(message.topic) > 0
        if not message.payload and not is_known:
            self.counters.drop(SkipReason.DUPLICATE, 1)  # a Go broker keeps a deleted message, without payload
        elif self._takes_state(message, True, now):
            self.publish(message, None, now)
            if is_known:
                self._tree.tell(self.name, message, now)  # it may have got the former one meanwhile

    def _keep(self, message: Message, now: float) -> None:
        """Store it, and deliver it to nobody."""
        if message.expires_at <= now:
            gone = Message(message.topic, b"", 0, True)
            message = RetainedMessage(gone, message.stamp) if isinstance(message, RetainedMessage) else gone
        refused = self._versions.refused_ahead
        self._router.store_retained(message, now)
        self._count_ahead(refused)

    def _count_ahead(self, refused: int) -> None:
        """refused: versions.refused_ahead before the last change of the node."""
        if self._versions.refused_ahead != refused:
            self.counters.drop(SkipReason.RETAINED_AHEAD, 1)

    def _takes_state(self, message: Message, is_written_there: bool, now: float) -> bool:
        """Return whether state without stamps replaces what is known here. What was changed here since the node is known is
        newer, and so is what it has of others. In its first session nobody knows, and the value here stays on both."""
        topic = message.topic
        held = self._versions.message(topic, now)
        if held is None:
            return True
        if held.payload == message.payload and held.properties == message.properties:
            self.counters.drop(SkipReason.DUPLICATE, 1)
            return False
        is_newer = seconds_of(clock_of(held.stamp)) >= self._known_since
        if is_written_there and self._sessions > 1 and not is_newer:
            return True
        self.counters.drop(SkipReason.RETAINED_OLDER, 1)
        self._tree.members[self.name].tell_present(topic)
        return False

    def handle_frame(self, data: bytes, kind: int, flags: int, start: int, end: int, now: float) -> None:
        """A frame of a kind that Go brokers do not send. Raises FrameError and MqttError."""
        if kind in (RETAINED_DIGEST, RETAINED_STAMPS):
            self.compare(kind, flags, data, start, end, now)
        elif kind == GROUP_COPY:
            self.publish_copy(data, start, end, now)
        elif kind == COPIES_ENDED:
            self._tree.members[self.name].receive_ended(data, start, end)
        else:
            self.mark_state(kind)

    def compare(self, kind: int, flags: int, data: bytes, start: int, end: int, now: float) -> None:
        """RETAINED_DIGEST or RETAINED_STAMPS: where the node has other retained messages, it is told what is here. Raises
        FrameError."""
        versions = self._versions
        sender = self._tree.members[self.name]
        if kind == RETAINED_DIGEST:
            time, digests = decode_digest(data, start, end)
            versions.heard(self.name, time, now)
            parts = versions.differing(digests)
            self.counters.retained_differing = len(parts)
            self.counters.retained_unmended = len(self._differed.intersection(parts))
            self._differed = set(parts)
            sender.tell_retained([], parts)
        else:
            low, high, theirs = decode_stamps(data, start, end)
            sender.tell_retained(versions.newer(low, high, theirs, flags & ONLY_THESE != 0), [])


def stamped(message: Message, stamp: bytes) -> Message:
    """The message with the stamp that came with it, b"" for none. Raises FrameError."""
    number = decode_stamp(stamp)
    return RetainedMessage(message, number) if number and message.retain else message
