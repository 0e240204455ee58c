"""The client's side of the event stream to one other node: sessions, ids, acknowledgements, reconnects, batches.

The shell acts for one `attempt` at a time and gives its number back with what happened; news of an older attempt is
ignored. Event ids and resume: docs/protocol-extensions.md. It knows nothing of gRPC.
"""

from __future__ import annotations

import random
from typing import Final

from broker.hooks import Peer
from broker.message import NEVER, Message
from federation.stream.batches import Batch, Outlet, Outlets
from federation.stream.counters import DROP_PEER_GONE, DROP_REFUSED, StreamCounters
from federation.stream.direct import BATCH_HEADER_SIZE, encode_batch_of
from federation.stream.full_state import FullState, LocalState
from federation.stream.outbox import Block, Outbox
from federation.stream.plain import PlainEvents, convert_block
from federation.stream.retained_changes import RetainedChanges
from federation.stream.state import MOVES, State

WINDOW_BLOCKS_MAX: Final = 64  # unacknowledged batches
WINDOW_BYTES_MAX: Final = 4 * 2**20  # and their bytes; one larger batch may travel alone
LINGER_SECONDS: Final = 0.001  # a batch gathers so long while others are on the way
# So many small batches may be on the way before the next one gathers. With 1, 523 of 868 profile samples in writes were of
# batches that an acknowledgement had released, at 1,000 a second over two nodes. The median delay moved within the noise.
EAGER_BLOCKS: Final = 32
BULK_MESSAGES: Final = 32  # after a batch of so many the next one gathers in any case: round trips would cost more
BULK_SECONDS: Final = 0.005  # unless that was so long ago
HELLO_SECONDS_MAX: Final = 5.0
ACK_SECONDS_MAX: Final = 30.0  # without an acknowledgement while some is due, and for what is on the way:
ACK_RATE_MIN: Final = 65_536  # a second for so many bytes: a large message may take its time on a slow line
BACKOFF_SECONDS_MIN: Final = 0.1
BACKOFF_SECONDS_MAX: Final = 5.0
STABLE_SECONDS: Final = 5.0  # a stream that lived so long was no failed try


class PeerSender(Peer):
    """Doors: connect, connect_anew, hello_reply, ack, connection_lost, refused, stop; take_batches or take_bytes;
    next_timeout, handle_timeout.

    batched     the other node reads batches (its Serf tag says so)
    addr        HOST:PORT of its stream server
    backoff_seconds_min, backoff_seconds_max
                bound the wait before the next try: it doubles from one to the other
    session_id  ours towards it; a new one begins when we cannot go on with the old one
    outlet      the shell's, that writes to it; None while there is none
    attempt     number of the connection that the shell should have while the state is HELLO or STREAMING
    """

    def __init__(
        self,
        name: str,
        batched: bool,
        local: LocalState,
        outlets: Outlets,
        outbox: Outbox,
        changes: RetainedChanges,
        rng: random.Random,
    ) -> None:
        super().__init__(name, batched)
        # What each message touches comes first (see Connection).
        self.reachable = False
        self.batched = batched
        self._quiet = True  # nothing that comes in now needs the shell
        self._queued = False  # it stands in outlets.ready
        self._resending = False
        self.state = State.STOPPED
        self.outbox = outbox
        self.outlet: Outlet | None = None
        self._last_messages = 0
        self.full_state = FullState(local, changes)
        self.counters: StreamCounters = outbox.counters
        self._next_id = 0
        self._last_sent_at = 0.0
        self._progress_at = 0.0
        self._half = outbox.bytes_max // 2
        self.direct = False  # it takes direct streams (docs/protocol-extensions.md)
        self.addr = ""
        self.attempt = 0
        self.reason = ""  # why it is not connected
        self._local = local
        self.outlets = outlets
        self._rng = rng
        self.session_id = ""
        self._new_session()
        self._quarter = outbox.bytes_max // 4
        self._resume_id = 0  # where a resumed stream goes on
        self._is_refused = False
        self._deadline = NEVER  # of HELLO and BACKOFF
        self._streaming_since = 0.0
        self._tries = 0
        self.backoff_seconds_min = BACKOFF_SECONDS_MIN
        self.backoff_seconds_max = BACKOFF_SECONDS_MAX

    # --- the router's side ---

    def forward(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
        outbox = self.outbox
        full = outbox.append_message(message, groups, now)
        self.counters.messages_queued += 1
        if self.reachable:
            if outbox.size > self._half:
                self.congested = True
            if full or not self._quiet:
                self.want_attention()

    def forward_run(self, data: bytes, count: int, version: int, now: float) -> None:
        outbox = self.outbox
        full = outbox.append_run(data, count, version, now)
        self.counters.messages_queued += count
        if self.reachable:
            if outbox.size > self._half:
                self.congested = True
            if full or not self._quiet:
                self.want_attention()

    def interest_changed(self, share_name: bytes, topic_filter: bytes, wanted: bool) -> None:
        """Tell the other node."""
        if self.full_state.change(share_name, topic_filter, wanted) and self.reachable:
            self.want_attention()

    def tell_retained(self, topic: bytes) -> None:
        """The other node should hold what this one does."""
        self.outbox.note_lost(topic)
        if self.reachable:
            self.want_attention()

    def want_attention(self) -> None:
        """Ask the shell to call take_batches at the end of this turn."""
        self._quiet = True
        if not self._queued:
            self._queued = True
            self.outlets.ready.append(self)

    # --- connecting ---

    def connect(self, addr: str, now: float) -> None:
        """The node can be reached at `addr`: connect at once, anew when the address is another one."""
        if addr == self.addr and self.state in (State.HELLO, State.STREAMING):
            return
        self.addr = addr
        self._tries = 0
        self._lose_stream()
        self._say_hello(now)

    def connect_anew(self, attempt: int, now: float) -> None:
        """There is a better way to the node than this stream: the session goes on there."""
        if attempt == self.attempt and self.state is State.STREAMING:
            self._lose_stream()
            self._say_hello(now)

    def set_batched(self, batched: bool) -> None:
        """Its tags say what it reads. When that changes it is another program, and the session a new one."""
        if batched != self.batched:
            self.batched = batched
            self.names_groups = batched
            self.addr = ""
            self._new_session()

    def stop(self, reason: str) -> None:
        """Connect no more; the outbox stays."""
        self.reason = reason
        self._lose_stream()
        self._deadline = NEVER
        self._move(State.STOPPED)

    def forget(self) -> None:
        """The node left or was away too long: nothing is kept for it, and its next session is a new one."""
        self.outbox.clear(DROP_PEER_GONE)
        self.full_state.interest.clear()
        self._new_session()

    def _say_hello(self, now: float) -> None:
        self._move(State.HELLO)
        self.attempt += 1
        self._deadline = now + HELLO_SECONDS_MAX

    def hello_reply(self, attempt: int, clean_start: bool, next_event_id: int, now: float) -> None:
        """The other node answered Hello. After it, `take_batches`."""
        if attempt != self.attempt or self.state is not State.HELLO:
            return
        outbox = self.outbox
        is_refused = self._is_refused
        self._is_refused = False
        if self._next_id == 0 and next_event_id == 0:
            clean_start = True  # nothing was sent yet: the answer to an earlier Hello was lost, and the state is due
        if not clean_start:
            first_id = outbox.on_way[0].first_id if outbox.on_way else self._next_id
            if not first_id <= next_event_id <= self._next_id:
                # It wants what we have forgotten, or never had: only a full state helps.
                self._new_session()
                self.connection_lost(attempt, f"it asks for event {next_event_id}, which is not kept", now)
                return
            outbox.acknowledge(next_event_id - 1)
            if is_refused and outbox.on_way:
                self._give_up_first()
                self._new_session()
                self.connection_lost(attempt, "a batch was refused: it is given up", now)
                return
            self._resending = bool(outbox.on_way)
            self._resume_id = next_event_id
        else:
            if is_refused:
                self._give_up_first()
            outbox.rewind()
            self._next_id = 0
            self._resending = False
            self.full_state.begin()
            self.counters.full_states_sent += 1
        self._move(State.STREAMING)
        self.reachable = True
        self.reason = ""
        self._deadline = NEVER
        self._progress_at = now
        self._streaming_since = now
        self._last_messages = 0
        self.counters.connects += 1
        self.want_attention()

    def connection_lost(self, attempt: int, reason: str, now: float) -> None:
        """The connection of this attempt failed or ended."""
        if attempt != self.attempt or self.state not in (State.HELLO, State.STREAMING):
            return
        if self.state is State.STREAMING:
            self.counters.losses += 1
            if now - self._streaming_since >= STABLE_SECONDS:
                self._tries = 0
        self.reason = reason
        self._lose_stream()
        self._move(State.BACKOFF)
        ceiling = min(self.backoff_seconds_max, self.backoff_seconds_min * float(1 << min(self._tries, 10)))
        self._tries += 1
        self._deadline = now + ceiling * (0.5 + self._rng.random() / 2)

    def refused(self, attempt: int, reason: str, now: float) -> None:
        """The other node ended the stream because it cannot take a batch. The next Hello tells which one that was; it is
        given up, counted, and a new session begins, so that one bad batch never stops what follows."""
        if attempt == self.attempt and self.state is State.STREAMING:
            self._is_refused = True
        self.connection_lost(attempt, reason, now)

    def _give_up_first(self) -> None:
        """The other node refuses the first block on the way: it is not sent again, nor is what it told of the state."""
        block = self.outbox.drop_first_on_way(DROP_REFUSED)
        if block is not None and block.is_state and block.retained is not None:
            self.full_state.give_up(block.retained)

    def _lose_stream(self) -> None:
        self.reachable = False
        self.congested = False
        self._quiet = True

    def _new_session(self) -> None:
        bits = f"{self._rng.getrandbits(128):032x}"
        self.session_id = f"{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"

    def _move(self, state: State) -> None:
        assert state in MOVES[self.state] or state is self.state, f"{self.state} to {state}"
        self.state = state

    # --- batches ---

    def ack(self, attempt: int, event_id: int, now: float) -> None:
        """Events up to event_id were handled. After it, `take_batches`."""
        if attempt != self.attempt or self.state is not State.STREAMING:
            return
        if event_id >= self._next_id:
            self._new_session()
            self.connection_lost(attempt, f"it acknowledged event {event_id}, which was not sent", now)
            return
        self._progress_at = now
        self.counters.events_acked += self.outbox.acknowledge(event_id)
        if self.congested and self.outbox.size < self._quarter:
            self.congested = False

    def take_batches(self, now: float) -> list[Batch]:
        """What must be written now, in order."""
        is_resumed = self._resending
        batches = [self._encode(block, now) for block in self._take_blocks(now)]
        if is_resumed and batches:
            batches[0].leave_out(self._resume_id)
        return batches

    def take_bytes(self, now: float) -> bytes:
        """As take_batches, as the bytes of a direct stream."""
        return b"".join([self._encode_bytes(block, now) for block in self._take_blocks(now)])

    def _take_blocks(self, now: float) -> list[Block]:
        """With their ids. On a resumed stream those that are on the way come first, again."""
        self._queued = False
        blocks: list[Block] = []
        if self.state is not State.STREAMING:
            return blocks
        outbox = self.outbox
        if self._resending:
            self._resending = False
            blocks.extend(outbox.on_way)
        if not outbox.on_way:
            self._progress_at = now
        if outbox.lost_topics and outbox.size <= self._quarter:
            self._mend_retained(now)
        has_state = self.full_state.has_more()
        while outbox.on_way_size < WINDOW_BYTES_MAX and len(outbox.on_way) < WINDOW_BLOCKS_MAX:
            next_block = None
            if has_state:
                next_block = self.full_state.next_block(self.batched, now)
                has_state = next_block is not None
            if next_block is None:
                next_block = self._next_message_block(now)
                if next_block is None:
                    break
                self._last_messages = next_block.messages
                self._last_sent_at = now
            if self._number(next_block, now):
                blocks.append(next_block)
            if not has_state and outbox.is_empty():
                break
        # A block that gathers has its timer, a full window waits for an acknowledgement: only the first message into
        # nothing needs the shell.
        self._quiet = not outbox.is_empty()
        return blocks

    def gathers(self) -> bool:
        """Whether a batch is open that leaves by time: `next_timeout` is near."""
        return self.state is State.STREAMING and self.outbox.open_since() != NEVER

    def _mend_retained(self, now: float) -> None:
        """Retained messages were dropped: when there is room again, the other node learns what their topics hold now."""
        outbox = self.outbox
        told: list[bytes] = []
        for topic in outbox.lost_topics:
            if outbox.size > self._quarter:
                break
            told.append(topic)
            message = self._local.retained_message(topic)
            if message is None or message.expires_at <= now:
                message = Message(topic, b"", 0, True)
            outbox.append_lost(message, now)
        for topic in told:
            del outbox.lost_topics[topic]
        self.counters.retained_mended += len(told)

    def _number(self, block: Block, now: float) -> bool:
        """Give ids; False for a block in which nothing is left to send."""
        block.first_id = self._next_id
        if not self.batched:
            converted = convert_block(b"".join(block.encode(now)), now, self.counters)
            block.converted = converted
            block.converted_at = now
            block.events = len(converted.events)
            if block.events == 0:
                return False
        else:
            block.events = block.frames
        self._next_id += block.events
        self.outbox.sent(block)
        return True

    def _encode(self, block: Block, now: float) -> Batch:
        if self.batched:
            events = b"".join(block.encode(now))
            self._count_sent(block.events, len(events))
            return Batch(block.first_id, block.events, events, None)
        converted = block.converted
        assert isinstance(converted, PlainEvents)
        single = converted.encode(block.first_id, now - block.converted_at)
        self._count_sent(block.events, block.size)
        return Batch(block.first_id, block.events, b"", single)

    def _encode_bytes(self, block: Block, now: float) -> bytes:
        data = encode_batch_of(block.first_id, block.events, block.encode(now))
        self._count_sent(block.events, len(data) - BATCH_HEADER_SIZE)
        return data

    def _count_sent(self, events: int, size: int) -> None:
        counters = self.counters
        counters.batches_sent += 1
        counters.events_sent += events
        counters.bytes_sent += size

    def _next_message_block(self, now: float) -> Block | None:
        outbox = self.outbox
        block = outbox.take_waiting()
        if block is not None:
            return block
        since = outbox.open_since()
        if since == NEVER:
            return None
        if now < since + LINGER_SECONDS:
            bulk = self._last_messages >= BULK_MESSAGES and since < self._last_sent_at + BULK_SECONDS
            if bulk or len(outbox.on_way) >= EAGER_BLOCKS:
                return None
        outbox.close_block()
        return outbox.take_waiting()

    # --- time ---

    def next_timeout(self) -> float:
        """When to call handle_timeout; NEVER for not at all. It may change after every other call."""
        at = min(self._deadline, self.outbox.next_age_out())
        if self.state is State.STREAMING:
            outbox = self.outbox
            if outbox.on_way:
                at = min(at, self._ack_due_at())
            if outbox.on_way_size < WINDOW_BYTES_MAX and len(outbox.on_way) < WINDOW_BLOCKS_MAX:
                at = min(at, outbox.open_since() + LINGER_SECONDS)
        return at

    def _ack_due_at(self) -> float:
        return self._progress_at + ACK_SECONDS_MAX + self.outbox.on_way_size // ACK_RATE_MIN

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. After it, `take_batches`."""
        self.outbox.drop_old(now)
        if self.state is State.STREAMING:
            if self.outbox.on_way and now >= self._ack_due_at():
                silence = now - self._progress_at
                self.connection_lost(self.attempt, f"no acknowledgement for {silence:.0f} s", now)
        elif now >= self._deadline:
            if self.state is State.HELLO:
                self.connection_lost(self.attempt, f"no answer to Hello for {HELLO_SECONDS_MAX:g} s", now)
            elif self.state is State.BACKOFF:
                self._say_hello(now)
