"""The server's side of the event stream from one other node: sessions, duplicates, and what the events do here.

An event is done once: ids below `next_event_id` are acknowledged again and not applied. What cannot be read is skipped,
acknowledged and counted, so that a newer node can speak to an older one. It knows nothing of gRPC.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be

from broker.errors import MqttError
from broker.message import NEVER, Message
from broker.publisher import Publisher
from broker.routing.router import Router
from federation.api.pb import federation_pb2 as pb
from federation.stream.counters import (
    SKIP_DUPLICATE,
    SKIP_EXPIRED,
    SKIP_MALFORMED,
    SKIP_RETAINED_OLDER,
    SKIP_UNKNOWN,
    StreamCounters,
)
from federation.stream.frames import (
    HAS_EXTENSIONS,
    HEADER_SIZE,
    IS_NEWS,
    IS_WRITTEN_THERE,
    MUST_UNDERSTAND,
    PUBLISH,
    PUBLISH_BLOCK,
    RETAINED,
    STATE_BEGIN,
    STATE_END,
    SUBSCRIBE,
    UNSUBSCRIBE,
    FrameError,
    body_start,
    decode_block_header,
    decode_groups,
    decode_interest,
    decode_packet,
)
from federation.stream.plain import interest_from_event, message_from_event
from federation.stream.retained_changes import LONG_AGO, RetainedChanges
from federation.stream.tree import FILTERS_MAX, FederationTree, Interest
from federation.stream.waiting import StreamError, WaitingBatch, WaitingBatches

CONFIRM_SECONDS: Final = 1.0  # a plain stream that is quiet so long after its start has told all its interest
STATE_TOPICS_MAX: Final = 1_000_000  # retained messages of a plain stream that are taken for its state
SESSION_ID_CHARS_MAX: Final = 256


class PeerReceiver:
    """Doors: hello, open_stream, receive_batch, receive_event, close_stream; next_timeout, handle_timeout.

    stream  number of the stream that counts; a shell that serves an older one ends it
    """

    __slots__ = (
        "_block",
        "_changes",
        "_confirm_at",
        "_confirmed",
        "_fresh",
        "_gaps",
        "_known_since",
        "_router",
        "_sessions",
        "_state_topics",
        "_tree",
        "_waiting",
        "counters",
        "name",
        "next_event_id",
        "publisher",
        "session_id",
        "stream",
        "streaming",
    )

    def __init__(
        self,
        name: str,
        tree: FederationTree,
        router: Router,
        counters: StreamCounters,
        changes: RetainedChanges,
        now: float,
    ) -> None:
        # What each message touches comes first (see Connection).
        self.stream = 0
        self.streaming = False
        self.next_event_id = 0
        self._gaps = 0
        self.counters = counters
        self._router = router
        self.publisher = Publisher(None)  # what full receivers ask to wait
        self._block: tuple[bytes, int] | None = None  # rest of a PUBLISH_BLOCK, and its version
        # Because the publisher is held. What is forgotten of it comes again on the next stream; the rest of a block is
        # counted as done and stays.
        self._waiting = WaitingBatches()
        self.name = name
        self.session_id = ""
        self._tree = tree
        self._changes = changes
        self._known_since = now
        self._fresh: dict[Interest, None] | None = None  # between STATE_BEGIN and STATE_END
        self._confirmed: dict[Interest, None] | None = None  # what a plain stream has told since its clean start
        self._state_topics: set[bytes] | None = None  # of retained messages in the state of a plain stream
        self._confirm_at = NEVER
        self._sessions = 0

    # --- sessions and streams ---

    def hello(self, session_id: str) -> tuple[bool, int]:
        """(clean_start, next_event_id). After a clean start the old interest stays until the new one is complete."""
        if not session_id or len(session_id) > SESSION_ID_CHARS_MAX:
            raise StreamError(f"session_id of {len(session_id)} characters, 1 to {SESSION_ID_CHARS_MAX}", True)
        self._waiting.clear()
        if session_id == self.session_id:
            return False, self.next_event_id
        self.session_id = session_id
        if self.streaming:
            # What still comes on the stream of the session before this one has other ids.
            self.stream += 1
            self.streaming = False
            self.counters.streams_replaced += 1
        self.next_event_id = 0
        self._gaps = 0
        self._fresh = None
        self._confirmed = {}
        self._state_topics = set()
        self._confirm_at = NEVER
        self._sessions += 1
        self.counters.full_states_received += 1
        return True, 0

    def open_stream(self, batched: bool, now: float) -> int:
        """A stream of the session begins and replaces an older one; its number goes with everything that it brings."""
        if not self.session_id:
            raise StreamError("event stream without Hello: say Hello first", False)
        if self.streaming:
            self.counters.streams_replaced += 1
        self._waiting.clear()
        self.stream += 1
        self.streaming = True
        self._confirm_at = NEVER
        if batched:
            self._confirmed = None  # it marks the end of its state
            self._state_topics = None
        elif self._state_topics is not None:
            self._confirm_at = now + CONFIRM_SECONDS
        return self.stream

    def close_stream(self, stream: int) -> None:
        """The stream ended; nothing to do when another one has replaced it."""
        if stream == self.stream:
            self.streaming = False
            self._confirm_at = NEVER
            self._waiting.clear()

    def end(self, now: float) -> None:
        """The node is no member any more. The rest of a block that was begun is acknowledged and does not come again:
        receivers get it now, and those that are full lose by their own bounds."""
        self.close_stream(self.stream)
        if self._block is not None:
            data, version = self._block
            self._block = None
            self._router.publish_block(data, version, None, now)

    def _check(self, stream: int, first_id: int) -> None:
        if stream != self.stream or not self.streaming:
            raise StreamError("replaced by a newer stream of this node", False)
        if first_id > self.next_event_id:
            self._gaps += 1
            if self._gaps > 1:
                # It cannot go on where we stand: the next Hello begins a new session with a full state.
                self.session_id = ""
            raise StreamError(f"event {first_id} came, {self.next_event_id} is the next: say Hello and resume", False)

    # --- the batched stream ---

    def receive_batch(
        self, stream: int, first_id: int, count: int, data: bytes, now: float, start: int = 0, stop: int = -1
    ) -> int:
        """Apply `count` frames with ids from first_id, data[start:stop] or all of data; the event id to acknowledge, -1
        for none (yet). Raises StreamError for frames that cannot be told apart, after everything in front of them was
        applied.

        While `publisher.held` is above zero batches wait; the shell should not read then, and call `resume` afterwards.
        """
        if stop < 0:
            stop = len(data)
        if self.publisher.held or self._block is not None or not self._waiting.is_empty():
            if stream != self.stream or not self.streaming:
                raise StreamError("replaced by a newer stream of this node", False)
            self._waiting.append(WaitingBatch(first_id, count, 0, data[start:stop]))
            return self.resume(now)
        self._check(stream, first_id)
        self._router.context.slices.begin()
        return self._apply(first_id, count, 0, data, start, stop, now)

    def resume(self, now: float) -> int:
        """Go on with what waits, as far as the publisher is not held; the event id to acknowledge, -1 for none.
        Raises StreamError as receive_batch."""
        self._router.context.slices.begin()
        ack = -1
        if self._block is not None:
            data, version = self._block
            self._block = None
            self._publish_block(data, version, 0, len(data), now)
        while not self._waiting.is_empty() and not self.publisher.held and self._block is None:
            batch = self._waiting.take()
            if batch.number == 0:
                self._check(self.stream, batch.first_id)
            ack = max(ack, self._apply(batch.first_id, batch.count, batch.number, batch.data, 0, len(batch.data), now))
        return ack

    def _apply(self, first_id: int, count: int, number: int, data: bytes, pos: int, end: int, now: float) -> int:
        """`number` frames of the batch are passed, the others are data[pos:end]."""
        counters = self.counters
        if number == 0:
            counters.batches_received += 1
            counters.bytes_received += end - pos
            if first_id < self.next_event_id:
                counters.drop(SKIP_DUPLICATE, min(self.next_event_id - first_id, count))
        context = self._router.context
        slices = context.slices
        while pos < end:
            if slices.is_over() and not self.publisher.held:
                context.rest(self.publisher)
            slices.steps += 1
            if self.publisher.held or self._block is not None:
                self._waiting.put_back(WaitingBatch(first_id, count, number, data[pos:end]))
                return -1
            start = pos + HEADER_SIZE
            if start > end:
                raise StreamError(f"batch ends inside the header of its frame {number}", True)
            size: int = read_i32_be(data, pos + 2)
            if size < 0:
                size += 1 << 32
            stop = start + size
            if stop > end:
                raise StreamError(
                    f"frame {number} has a body of {stop - start} bytes, the batch has {end - start} left", True
                )
            if number >= count:
                raise StreamError(f"batch of {count} events has more frames", True)
            if first_id + number >= self.next_event_id:
                # Counted as done before it is done: whatever is wrong with it, it does not come again.
                self.next_event_id += 1
                counters.events_received += 1
                self._apply_frame(data, data[pos], data[pos + 1], start, stop, now)
            pos = stop
            number += 1
        if number < count:
            raise StreamError(f"batch of {count} events has {number} frames", True)
        self._gaps = 0
        return first_id + count - 1

    def _publish_block(self, data: bytes, version: int, pos: int, end: int, now: float) -> None:
        """data[pos:end] to receivers here, until one of them is full: then the rest waits."""
        pos = self._router.publish_block(data, version, self.publisher, now, pos, end)
        if pos < end:
            self._block = (data[pos:end], version)

    def _apply_frame(self, data: bytes, kind: int, flags: int, start: int, end: int, now: float) -> None:
        if flags & MUST_UNDERSTAND:
            self.counters.drop(SKIP_UNKNOWN, 1)
            return
        try:
            if flags & HAS_EXTENSIONS:
                start = body_start(data, flags, start, end)
            if kind == PUBLISH_BLOCK:
                version, _ = decode_block_header(data, start, end)
                self._publish_block(data, version, start + 5, end, now)
            elif kind == PUBLISH:
                groups, start = decode_groups(data, start, end)
                message, start = decode_packet(data, start, end, 5, now)
                self._publish(message, groups, now)
            elif kind == SUBSCRIBE:
                share_name, topic_filter = decode_interest(data, start, end)
                # At once also in a state: all of a large one at its end would be a long pause for everybody here.
                is_there = self._tree.add_interest(self.name, share_name, topic_filter)
                fresh = self._fresh
                if fresh is not None and len(fresh) < FILTERS_MAX and (is_there or self._tree.is_full(self.name)):
                    fresh[(share_name, topic_filter)] = None
            elif kind == UNSUBSCRIBE:
                share_name, topic_filter = decode_interest(data, start, end)
                if self._fresh is not None:
                    self._fresh.pop((share_name, topic_filter), None)
                else:
                    self._tree.remove_interest(self.name, share_name, topic_filter)
            elif kind == RETAINED:
                message, start = decode_packet(data, start, end, 5, now)
                if flags & IS_NEWS:
                    self._store_news(message, now)
                else:
                    self._store_state(message, flags & IS_WRITTEN_THERE != 0, now)
            elif kind == STATE_BEGIN:
                self._fresh = {}
            elif kind == STATE_END:
                if self._fresh is not None:
                    self._tree.replace_interest(self.name, self._fresh)
                    self._fresh = None
            else:
                self.counters.drop(SKIP_UNKNOWN, 1)
        except (FrameError, MqttError):
            self.counters.drop(SKIP_MALFORMED, 1)

    def _store_news(self, message: Message, now: float) -> None:
        """As a message that was published there and is not delivered: those before it were dropped on the way."""
        if message.expires_at <= now:
            message = Message(message.topic, b"", 0, True)
        self._changes.note(message.topic, now, self.name)
        self._router.store_retained(message, now)

    def _store_state(self, message: Message, is_written_there: bool, now: float) -> None:
        if message.expires_at <= now:
            self.counters.drop(SKIP_EXPIRED, 1)
            return
        held = self._router.context.retained.get(message.topic)
        changes = self._changes
        if changes.takes_state(message, held, self.name, self._known_since, is_written_there, self._tree.members):
            self._router.store_retained(message, now)
            if is_written_there:
                changes.note(message.topic, LONG_AGO, self.name)
        else:
            self.counters.drop(SKIP_RETAINED_OLDER, 1)
            topic = message.topic
            if (
                is_written_there
                and changes.is_written_here(topic)
                and not changes.changed_since(topic, self._known_since)
            ):
                # Of two nodes that wrote this one keeps its value, and that node takes it; a third one may hold theirs.
                self._tree.tell_others(self.name, topic)

    def _publish(self, message: Message, groups: tuple[tuple[bytes, bytes], ...] | None, now: float) -> None:
        if message.expires_at <= now:
            self.counters.drop(SKIP_EXPIRED, 1)
            if message.retain:  # it was the topic's, and so nothing is now
                self._changes.note(message.topic, now, self.name)
                self._router.store_retained(Message(message.topic, b"", 0, True), now)
            return
        if message.retain:
            self._changes.note(message.topic, now, self.name)
        self._router.publish_remote(message, groups, self.publisher, now)

    # --- the plain stream ---

    def receive_event(self, stream: int, event: pb.Event, now: float) -> int:
        """Apply one event; the event id to acknowledge."""
        event_id = event.id
        self._check(stream, event_id)
        if event_id < self.next_event_id:
            self.counters.drop(SKIP_DUPLICATE, 1)
            return event_id
        self.next_event_id = event_id + 1
        self._gaps = 0
        self.counters.events_received += 1
        kind = event.WhichOneof("Event")
        is_state = self._state_topics is not None and self._is_state(event, kind, now)
        try:
            if kind == "message":
                message = message_from_event(event.message, now)
                if is_state:
                    self._take_plain_state(message, now)
                else:
                    self._publish(message, None, now)
            elif kind == "Subscribe":
                share_name, topic_filter = interest_from_event(event)
                if self._tree.add_interest(self.name, share_name, topic_filter) and self._confirmed is not None:
                    self._confirmed[(share_name, topic_filter)] = None
            elif kind == "unsubscribe":
                share_name, topic_filter = interest_from_event(event)
                self._tree.remove_interest(self.name, share_name, topic_filter)
            else:
                self.counters.drop(SKIP_UNKNOWN, 1)
        except (FrameError, MqttError):
            self.counters.drop(SKIP_MALFORMED, 1)
        return event_id

    def _is_state(self, event: pb.Event, kind: str | None, now: float) -> bool:
        """Whether an event after the clean start of a plain stream may belong to its state: filters first, then retained
        messages, each topic once. Nothing marks the end."""
        topics = self._state_topics
        assert topics is not None
        if kind == "Subscribe" and self._confirmed is not None:
            self._confirm_at = now + CONFIRM_SECONDS
            return True
        if kind == "message" and event.message.retained and len(topics) < STATE_TOPICS_MAX:
            topic = event.message.topic_name.encode()
            if topic not in topics:
                self._confirm()
                topics.add(topic)
                self._confirm_at = now + CONFIRM_SECONDS
                return True
        self._end_state()
        return False

    def _confirm(self) -> None:
        """A plain stream has told all its interest: what it has not told by now is gone."""
        confirmed = self._confirmed
        if confirmed is not None:
            self._confirmed = None
            self._tree.replace_interest(self.name, confirmed)

    def _end_state(self) -> None:
        self._confirm()
        self._state_topics = None
        self._confirm_at = NEVER

    def _take_plain_state(self, message: Message, now: float) -> None:
        """A retained message that is the state of a plain member, or may be a fresh one: it has no versions and takes
        whatever it is sent. So which value stays is decided here, and where the two differ that value is sent back.

        What was changed here since the node is known is newer. Without such a change its value is, unless this is the
        first session since it became a member: then nobody knows, and the value here stays on both."""
        held = self._router.context.retained.get(message.topic)
        if held is None:
            if not message.payload:
                self.counters.drop(SKIP_DUPLICATE, 1)  # a gmqttd keeps what others deleted as a message without payload
            elif self._is_ours(message.topic):
                self.counters.drop(SKIP_RETAINED_OLDER, 1)  # deleted here
                self._tree.tell(self.name, Message(message.topic, b"", 0, True), now)
            else:
                self._publish(message, None, now)
        elif held.payload == message.payload and held.properties == message.properties:
            self.counters.drop(SKIP_DUPLICATE, 1)  # receivers here had it
        elif self._sessions == 1 or self._is_ours(message.topic):
            self.counters.drop(SKIP_RETAINED_OLDER, 1)
            self._changes.touch(message.topic, now)
            self._tree.tell(self.name, held, now)
        else:
            self._publish(message, None, now)
            self._tree.tell(self.name, message, now)

    def _is_ours(self, topic: bytes) -> bool:
        since = LONG_AGO if self._sessions == 1 else self._known_since
        return self._changes.changed_since(topic, since)

    # --- time ---

    def next_timeout(self) -> float:
        """When to call handle_timeout; NEVER for not at all."""
        if self._block is not None and not self.streaming and not self.publisher.held:
            return 0.0
        return self._confirm_at

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early."""
        if now >= self._confirm_at:
            self._end_state()
        if self._block is not None and not self.streaming:
            self.resume(now)  # nobody reads for it any more
