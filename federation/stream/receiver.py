"""The server's side of the event stream from one other node, whichever stream that is: sessions, duplicates, and what the
events do here.

An event is done once: ids below `next_event_id` are acknowledged again and not applied. What cannot be read is skipped,
acknowledged and counted, so that a newer node can speak to an older one.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import mypyc_attr

from broker.errors import MqttError
from broker.hooks import NO_GROUPS
from broker.message import NEVER, Message
from broker.routing.router import Router
from federation.stream.counters import SkipReason, StreamCounters
from federation.stream.effects import EventEffects, stamped
from federation.stream.frames import (
    BLOCK_HEAD_SIZE,
    HAS_EXTENSIONS,
    HEADER_SIZE,
    INTEREST_DIGEST,
    MUST_UNDERSTAND,
    PUBLISH,
    PUBLISH_BLOCK,
    RETAINED,
    SESSION,
    STAMP,
    SUBSCRIBE,
    UNSUBSCRIBE,
    FrameError,
    body_start,
    count_events,
    count_packets,
    decode_block_version,
    decode_groups,
    decode_interest,
    decode_packet,
    extension,
    interest_note,
    is_awaited_copy,
    skip_packets,
)
from federation.stream.go_state import GoState
from federation.stream.held_batches import HeldBatch, HeldBatches, StreamError
from federation.stream.positions import Position, Positions
from federation.stream.retained_versions import RetainedVersions
from federation.stream.stored_events import StoredEvents
from federation.stream.tree import FederationTree

SESSION_ID_CHARS_MAX: Final = 256
LONG_AGO: Final = -1.0
MISSING_SECONDS_MAX: Final = 30.0  # without a stream; a Go broker connects again within 2 s


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenStream:
    """The server's end of an event stream, as far as its receiver ends it."""

    def end(self, text: str, malformed: bool = False) -> None:
        """Tell the other node why, and close."""
        raise AssertionError("a stream that cannot be ended")


class PeerReceiver(EventEffects):
    """Doors: hello, open_stream, receive_batch, accept_event with receive_event, resume, close_stream, end; next_timeout,
    handle_timeout.

    extended   the node marks its full state and names groups on both streams (its Serf tag says so)
    stream     the stream that counts, None while there is none
    stored     which of the events that are done are in the store
    position   how far the events of its store are done
    """

    def __init__(
        self,
        name: str,
        tree: FederationTree,
        router: Router,
        counters: StreamCounters,
        versions: RetainedVersions,
        now: float,
        positions: Positions | None = None,
    ) -> None:
        super().__init__(name, tree, router, counters, versions, now)
        self._positions = Positions(None) if positions is None else positions
        self.position = self._positions.of(name, "")
        self._block_position = self.position
        self.stream: OpenStream | None = None
        self.next_event_id = 0
        self._gaps = 0
        # The rest of a PUBLISH_BLOCK, which is counted as done, and the batches behind it, which are not: they come again on
        # the next stream where this one ends. Its node may have another store by then.
        self._block: bytes | None = None
        self._block_version = 0
        self._block_at = 0
        self._block_end = 0
        self._held = HeldBatches()
        self.stored = StoredEvents(router.context)
        self.extended = False
        self.session_id = ""
        # A session that must begin anew, with a full state, and which of its events were done: they do not come again.
        self._done_session_id = ""
        self._done_id = 0
        self._go_state: GoState | None = None
        self._quiet_since = NEVER  # without a stream

    # --- sessions and streams ---

    def hello(self, session_id: str, store_id: str = "") -> tuple[bool, int]:
        """(clean_start, next_event_id). After a clean start the old interest stays until the new one is complete; its
        next_event_id is of the session so far, whose ids begin at 0 again. store_id "": on a stream without it."""
        if store_id and store_id != self.position.store_id:
            self.position = self._positions.of(self.name, store_id)
        if not session_id or len(session_id) > SESSION_ID_CHARS_MAX:
            raise StreamError(f"session_id of {len(session_id)} characters, 1 to {SESSION_ID_CHARS_MAX}", True)
        self._held.clear()
        if session_id == self.session_id and (self.next_event_id > 0 or self._done_id == 0):
            self.note_done()  # events that are done and not stored come again, and are only acknowledged
            return False, self.stored.newest() + 1
        if session_id != self._done_session_id or not self.extended:
            self._done_id = 0
        self.session_id = session_id
        self._replace(None)  # what still comes on the stream of the session before has other ids
        self.next_event_id = 0
        self.stored.clear()
        self._gaps = 0
        self.begin_session()
        self._go_state = None if self.extended else GoState()
        return True, self._done_id

    def session_done(self) -> tuple[str, int]:
        """The present session and the event id below which it was done, for `begin_anew`."""
        return self.session_id, self.next_event_id

    def begin_anew(self, session_id: str, next_event_id: int) -> None:
        """That session was known, and cannot go on without a full state."""
        self.session_id = ""
        self._done_session_id = session_id
        self._done_id = next_event_id

    def open_stream(self, stream: OpenStream, now: float) -> None:
        """A stream of the session begins and replaces an older one; it goes with everything that it brings."""
        if not self.session_id:
            raise StreamError("event stream without Hello: say Hello first", False)
        self._replace(stream)
        self._held.clear()
        if self._go_state is not None:
            self._go_state.stream_began(now)

    def take_missing(self, now: float) -> bool:
        """Return whether a Go broker has had no stream for MISSING_SECONDS_MAX, once. It may give its stream up for
        good when a connection breaks under load, and look alive all the same. Ask now and then."""
        if self.stream is not None or self.extended or not self.session_id:
            self._quiet_since = NEVER
        elif self._quiet_since == NEVER:
            self._quiet_since = now
        elif self._quiet_since >= 0 and now - self._quiet_since >= MISSING_SECONDS_MAX:
            self._quiet_since = LONG_AGO
            return True
        return False

    def _replace(self, stream: OpenStream | None) -> None:
        older = self.stream
        self.stream = stream
        if older is not None:
            older.end("replaced by a newer stream of this node")

    def close_stream(self, stream: OpenStream) -> None:
        """The stream ended; nothing to do when another one has replaced it."""
        if stream is self.stream:
            self.stream = None
            self._held.clear()
            if self._go_state is not None:
                self._go_state.stream_ended()

    def end(self, now: float) -> None:
        """The node is no member any more. The rest of a block that was begun is acknowledged and does not come again:
        receivers get it now, and those that are full lose by their own bounds."""
        stream = self.stream
        if stream is not None:
            self.close_stream(stream)
            stream.end(f"{self.name} is not a member any more")
        data = self._block
        if data is not None:
            self._block = None
            self._router.publish_block(data, self._block_version, None, now, self._block_at, self._block_end)
            self._block_position.rest = 0
            self._positions.changed(self._block_position)
            self.note_done()

    def _check(self, stream: OpenStream, first_id: int) -> None:
        if stream is not self.stream:
            raise StreamError("replaced by a newer stream of this node", False)
        if first_id > self.next_event_id:
            self._gaps += 1
            if self._gaps > 1:
                # It cannot go on where we stand: a full state must follow the next Hello.
                self.begin_anew(self.session_id, self.next_event_id)
            raise StreamError(f"event {first_id} came, {self.next_event_id} is the next: say Hello and resume", False)

    # --- batches of frames: the direct stream ---

    def receive_batch(
        self,
        stream: OpenStream,
        first_id: int,
        count: int,
        data: bytes,
        now: float,
        start: int = 0,
        stop: int = -1,
        serial: int = 0,
        skipped: int = 0,
    ) -> int:
        """Apply `count` events with ids from first_id, in the frames data[start:stop] (-1: to the end), behind `skipped` events
        of the block `serial`; the event id to acknowledge, -1 for none (yet). Raises StreamError for frames that cannot be told
        apart, after everything in front of them. While `publisher.held` batches wait: do not read, and call `resume` later."""
        if stop < 0:
            stop = len(data)
        if self.publisher.held or self._block is not None or not self._held.is_empty():
            if stream is not self.stream:
                raise StreamError("replaced by a newer stream of this node", False)
            self._held.append(HeldBatch(first_id, count, 0, data[start:stop], 0, serial, skipped))
            return self.resume(now)
        self._check(stream, first_id)
        self._router.context.slices.begin()
        try:
            return self._apply(first_id, count, 0, data, start, stop, serial, skipped, now)
        finally:
            self.note_done()

    def note_done(self) -> None:
        """Acknowledgements wait for the store from here on."""
        self._positions.changed(self.position)
        self.stored.done(self.next_event_id - 1, self._block is None)

    def resume(self, now: float) -> int:
        """Go on with what waits, as far as the publisher is not held; the event id to acknowledge, -1 for none.
        Raises StreamError as receive_batch."""
        self._router.context.slices.begin()
        try:
            return self._resume(now)
        finally:
            self.note_done()

    def _resume(self, now: float) -> int:
        ack = -1
        data = self._block
        if data is not None:
            self._block = None
            self._publish_block(data, self._block_version, self._block_at, self._block_end, self._block_position, now)
            self._positions.changed(self._block_position)
        while not self._held.is_empty() and not self.publisher.held and self._block is None:
            batch = self._held.take()
            if batch.done == 0 and self.stream is not None:
                self._check(self.stream, batch.first_id)
            data = batch.data
            ack = max(
                ack,
                self._apply(
                    batch.first_id,
                    batch.count,
                    batch.done,
                    data,
                    batch.pos,
                    len(data),
                    batch.serial,
                    batch.skipped,
                    now,
                ),
            )
        return ack

    def _apply(
        self,
        first_id: int,
        count: int,
        done: int,
        data: bytes,
        pos: int,
        end: int,
        serial: int,
        skipped: int,
        now: float,
    ) -> int:
        """`done` events of the batch are passed, the frames of the others are data[pos:end]."""
        counters = self.counters
        position = self.position
        known = 0  # events at the front that were done in another session
        if serial:
            known = position.skips(serial, skipped, count)
        first = 0 if not serial or done or known or skipped else self._positions.next_record()
        if done == 0:
            if known and first_id >= self.next_event_id:
                counters.drop(SkipReason.DUPLICATE, known)
            counters.bytes_received += end - pos
            if first_id < self.next_event_id:
                counters.drop(SkipReason.DUPLICATE, min(self.next_event_id - first_id, count))
        context = self._router.context
        slices = context.slices
        while pos < end:
            if slices.is_over() and not self.publisher.held:
                context.rest(self.publisher)
            slices.steps += 1
            if self.publisher.held or self._block is not None:
                self._held.put_back(HeldBatch(first_id, count, done, data[:end], pos, serial, skipped))
                return -1
            start = pos + HEADER_SIZE
            if start > end:
                raise StreamError(f"batch ends inside a frame header, behind {done} events", True)
            size: int = read_i32_be(data, pos + 2)
            if size < 0:
                size += 1 << 32
            stop = start + size
            if stop > end:
                raise StreamError(
                    f"frame behind {done} events has a body of {stop - start} bytes, the batch has {end - start} left",
                    True,
                )
            kind = data[pos]
            flags = data[pos + 1]
            try:
                events = count_events(data, kind, flags, start, stop)
            except FrameError as error:
                raise StreamError(str(error), True) from None
            done += events
            if done > count:
                raise StreamError(f"batch of {count} events has more", True)
            new = first_id + done - self.next_event_id
            if new > 0:
                # Counted as done before it is done: whatever is wrong with it, it does not come again.
                self.next_event_id += new
                counters.events_received += new
                if serial:
                    new = min(new, done - known)
                    position.did(serial, skipped + done)
                if new > 0 or (is_awaited_copy(kind, data, start) and position.lost(serial, skipped + done)):
                    self._apply_frame(data, kind, flags, start, stop, events - new, now)
            pos = stop
        if done < count:
            raise StreamError(f"batch of {count} events has {done}", True)
        self._gaps = 0
        position.done_whole(serial)
        if self._block is None:
            self._positions.came_whole(position, serial, first)
        return first_id + count - 1

    def _publish_block(self, data: bytes, version: int, pos: int, end: int, position: Position, now: float) -> None:
        """data[pos:end] to receivers here, until one of them is full: then the rest waits. `position`: of its store."""
        pos = self._router.publish_block(data, version, self.publisher, now, pos, end)
        position.rest = 0
        if pos < end:
            self._block = data
            self._block_version = version
            self._block_at = pos
            self._block_end = end
            self._block_position = position
            position.rest = count_packets(data, pos, end)

    def _apply_frame(self, data: bytes, kind: int, flags: int, start: int, end: int, done: int, now: float) -> None:
        """`done` events of a PUBLISH_BLOCK came before, on another stream."""
        if flags & MUST_UNDERSTAND:
            self.counters.drop(SkipReason.UNKNOWN, 1)
            return
        try:
            extended_at = start
            if flags & HAS_EXTENSIONS:
                start = body_start(data, flags, start, end)
            if kind == PUBLISH_BLOCK:
                version = decode_block_version(data, start)
                start += BLOCK_HEAD_SIZE
                if done:
                    start = skip_packets(data, start, end, done)
                self._publish_block(data, version, start, end, self.position, now)
            elif kind in (PUBLISH, RETAINED):
                groups = NO_GROUPS
                if kind == PUBLISH:
                    groups, start = decode_groups(data, start, end)
                message, start = decode_packet(data, start, end, 5, now)
                if flags & HAS_EXTENSIONS:
                    message = stamped(message, extension(data, extended_at, STAMP))
                if kind == PUBLISH:
                    self.publish(message, groups, now)
                else:
                    self.store(message, flags, now)
            elif kind in (SUBSCRIBE, UNSUBSCRIBE):
                share_name, topic_filter = decode_interest(data, start, end)
                note = interest_note(data, flags, extended_at, share_name)
                self.change_interest(kind == SUBSCRIBE, share_name, topic_filter, note)
            elif kind == SESSION:
                self.sessions.receive(self.name, data[start:end], now)
            elif kind == INTEREST_DIGEST:
                if self.interest_differs(data[start:end]):
                    self.counters.interest_mended += 1
                    self.begin_anew(self.session_id, self.next_event_id)
                    raise StreamError("its interest is another one than is known here: a full state must follow", False)
            else:
                self.handle_frame(data, kind, flags, start, end, now)
        except (FrameError, MqttError):
            self.counters.drop(SkipReason.MALFORMED, 1)

    # --- single events: the Go broker's stream ---

    def receive_frame(self, data: bytes, now: float) -> None:
        """A frame that was accepted as an event."""
        if len(data) < HEADER_SIZE:
            raise FrameError(f"frame of {len(data)} bytes")
        self._apply_frame(data, data[0], data[1], HEADER_SIZE, len(data), 0, now)

    def accept_event(
        self, stream: OpenStream, event_id: int, serial: int = 0, place: int = 0, is_copy: bool = False
    ) -> bool:
        """One event comes, the place-th of the block with this serial number (0: not told); False when it was done before. It
        is acknowledged in any case. `is_copy`: for a group, with a number. Raises StreamError."""
        self._check(stream, event_id)
        if event_id < self.next_event_id:
            self.counters.drop(SkipReason.DUPLICATE, 1)
            return False
        self.next_event_id = event_id + 1
        self._gaps = 0
        self.counters.events_received += 1
        if serial:
            position = self.position
            if position.skips(serial, place - 1, 1):
                self.counters.drop(SkipReason.DUPLICATE, 1)
                return is_copy and position.lost(serial, place)
            position.did(serial, place)
        return True

    def receive_interest(
        self, wanted: bool, share_name: bytes, topic_filter: bytes, now: float, note: bytes = b""
    ) -> None:
        """A Subscribe or Unsubscribe event that was accepted."""
        state = self._go_state
        if state is None:
            self.change_interest(wanted, share_name, topic_filter, note)
            return
        if wanted and state.is_filter(now):
            if self._tree.add_interest(self.name, share_name, topic_filter) and state.told is not None:
                state.told[(share_name, topic_filter)] = b""
            return
        self._end_go_state()
        self.change_interest(wanted, share_name, topic_filter)

    def receive_message(
        self, message: Message, groups: tuple[tuple[bytes, bytes], ...] | None, state_flags: int, now: float
    ) -> None:
        """A message event that was accepted. groups None: the node names none. state_flags: as of a RETAINED frame, -1 for
        none. Raises MqttError for a bad topic."""
        state = self._go_state
        if state_flags >= 0:
            self.store(message, state_flags, now)
        elif state is None:
            self.publish(message, groups, now)
        elif message.retain and state.is_retained(message.topic, now):
            self._confirm_go_interest()
            self.take_go_state(message, now)
        else:
            self._end_go_state()
            self.publish(message, groups, now)

    def receive_mark(self, kind: int) -> None:
        """STATE_BEGIN, STATE_END, or an event of an unknown kind, that was accepted."""
        self._end_go_state()
        self.mark_state(kind)

    # --- the full state of a Go broker ---

    def _confirm_go_interest(self) -> None:
        """All its filters have come: old interest that was not told again goes."""
        state = self._go_state
        if state is not None and state.told is not None:
            told = state.told
            state.told = None
            self._tree.replace_interest(self.name, told)

    def _end_go_state(self) -> None:
        self._confirm_go_interest()
        self._go_state = None

    # --- time ---

    def next_timeout(self) -> float:
        """Return when to call handle_timeout; NEVER for not at all."""
        if self._block is not None and self.stream is None and not self.publisher.held:
            return 0.0
        return NEVER if self._go_state is None else self._go_state.end_at

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early."""
        if self._go_state is not None and now >= self._go_state.end_at:
            self._end_go_state()
        if self._block is not None and self.stream is None:
            self.resume(now)  # nobody reads for it any more
