"""The client's side of the event stream to one other node, whichever stream that is: sessions, event ids, acknowledgements,
windows, reconnects.

The shell acts for one `attempt` at a time and gives its number back with what happened; news of an older attempt is ignored.
The event ids of a block are the same on both streams, so that a session goes on when the stream changes
(docs/protocol-extensions.md).
"""

# compiled with mypyc
from __future__ import annotations

import random
from typing import Final

from mypy_extensions import mypyc_attr

from broker.message import NEVER, Message
from federation.sessions.news import SessionNews, Told
from federation.stream.block import Block, BlockConverter
from federation.stream.counters import DropReason, StreamCounters
from federation.stream.full_state import FullState, LocalState
from federation.stream.group_peer import GroupPeer
from federation.stream.outbox import Outbox
from federation.stream.promises import Promises
from federation.stream.state import MOVES, Attention, OnWay, State
from federation.stream.stream_choice import StreamChoice, StreamKind

WINDOW_BLOCKS_MAX: Final = 64  # unacknowledged blocks
WINDOW_BYTES_MAX: Final = 4 * 2**20  # and their bytes; one larger block may be on the way by itself
STATE_BLOCKS_MAX: Final = 8  # of a full state in one call; the next ones follow an acknowledgement
MENDED_TOPICS_MAX: Final = 4_096  # retained messages that are looked up in one call in place of dropped ones
LINGER_SECONDS: Final = 0.001  # a block gathers so long while EAGER_BLOCKS or more are on the way
# Before the next one gathers. With 1, 60 % of the CPU in writes went to blocks that acknowledgements released (1,000/s).
EAGER_BLOCKS: Final = 32
BULK_MESSAGES: Final = 32  # after a block of so many messages the next one gathers: small blocks would cost more
BULK_SECONDS: Final = 0.005  # unless that block was sent so long ago
HELLO_SECONDS_MAX: Final = 5.0
ACK_SECONDS_MAX: Final = 30.0  # without an acknowledgement while one is due, plus the time for the bytes on the way:
ACK_RATE_MIN: Final = 65_536  # bytes a second; a large message takes its time on a slow line
BACKOFF_SECONDS_MIN: Final = 0.1
BACKOFF_SECONDS_MAX: Final = 5.0
STABLE_SECONDS: Final = 5.0  # after a stream that lived so long the backoff begins at its minimum

# Compiled code reads a constant of the module directly. It looks a member of the enum up by name.
QUIET: Final = Attention.QUIET
WATCHING: Final = Attention.WATCHING
QUEUED: Final = Attention.QUEUED


@mypyc_attr(allow_interpreted_subclasses=True)
class Outlet:
    """The shell of one sender."""

    def flush_at(self, now: float) -> None:
        """Write what the sender wants sent."""
        raise AssertionError("an outlet that writes nothing")


def _session_id(bits: int) -> str:
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class PeerSender(GroupPeer):
    """Doors: connect, connect_anew, hello_sent, hello_reply, hello_refused, ack, connection_lost, refused, stop; take_blocks;
    next_timeout, handle_timeout.

    extended    the other node reads our fields of the Go broker's events (its Serf tag says so)
    moves_sessions  it shares sessions with this node (likewise)
    is_direct   it takes direct streams (likewise)
    store_id    of this node, said in Hello
    promises    whose acknowledgements wait for the node, None without a store
    addr        HOST:PORT of its stream server
    backoff_seconds_min, backoff_seconds_max
                bound the wait before the next try: it doubles from one to the other
    session_id  ours towards it; a new one begins when we cannot go on with the old one
    resume_id   events below it are done there, and a stream that resumes need not send them
    outlet      the shell's, that writes to it; None while there is none
    attempt     number of the connection that the shell should have while the state is HELLO or STREAMING
    choice      which kind of stream that is
    acked_at    of the last acknowledgement, NEVER before the first one
    """

    def __init__(
        self,
        name: str,
        extended: bool,
        local: LocalState,
        outlets: Outlets,
        outbox: Outbox,
        rng: random.Random,
        store_id: str = "",
        promises: Promises | None = None,
        told: Told | None = None,
    ) -> None:
        bits = rng.getrandbits(128)
        super().__init__(name, extended, outbox, FullState(local), promises, bits >> 66)
        # What each message touches comes first (see Connection).
        self.reachable = False
        self.extended = extended
        self.is_direct = extended
        self.moves_sessions = False
        self.news = SessionNews(Told() if told is None else told, self.full_state, name)
        self.store_id = store_id
        self.attention = QUIET
        self.state = State.STOPPED
        self._on_way = OnWay.SENT
        self.outlet: Outlet | None = None
        self._last_messages = 0
        self.counters: StreamCounters = outbox.counters
        self._next_id = 0
        self._last_sent_at = 0.0
        self._progress_at = 0.0
        self.acked_at = NEVER
        self._timed_id = 0
        self._timed_at = NEVER  # when the event of _timed_id was sent; NEVER while none is timed
        self._half = outbox.bytes_max // 2
        self.addr = ""
        self.attempt = 0
        self.choice = StreamChoice()
        self.reason = ""  # why it is not connected
        self._local = local
        self.outlets = outlets
        self._rng = rng
        self.session_id = _session_id(bits)
        self._quarter = outbox.bytes_max // 4
        self.resume_id = 0
        self._deadline = NEVER  # of HELLO and BACKOFF
        self._streaming_since = 0.0
        self._tries = 0
        self.backoff_seconds_min = BACKOFF_SECONDS_MIN
        self.backoff_seconds_max = BACKOFF_SECONDS_MAX

    # --- the router's side ---

    def forward(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
        full = self.outbox.append_message(message, groups, now)
        self.promise_newest(message.qos)
        self.appended(full, 1)

    def appended(self, is_full: bool, count: int) -> None:
        self.counters.messages_queued += count
        if self.reachable:
            if self.outbox.size > self._half:
                self.congested = True
            if is_full or self.attention is WATCHING:
                self.want_attention()

    def forward_run(self, data: bytes, count: int, version: int, qos: int, now: float) -> None:
        full = self.outbox.append_run(data, count, version, now)
        self.promise_newest(qos)
        self.appended(full, count)

    def interest_changed(self, share_name: bytes, topic_filter: bytes, wanted: bool) -> None:
        """Tell the other node."""
        if self.full_state.change(share_name, topic_filter, wanted) and self.reachable:
            self.want_attention()
            if self.promises is not None and wanted:
                self.promise_interest(self.promises)

    def note_changed(self, share_name: bytes, topic_filter: bytes) -> None:
        """Tell the other node that other links want the filter, or that the group has more or fewer members."""
        if self.extended:
            self.full_state.change_note(share_name, topic_filter)
            if self.reachable:
                self.want_attention()

    def tell_retained(self, topics: list[bytes], parts: list[int]) -> None:
        """The other node has older retained messages of these topics, and may have newer ones in these parts."""
        self.counters.retained_mended += len(topics)
        self.full_state.tell_retained(topics, parts)
        if self.reachable:
            self.want_attention()

    def tell_present(self, topic: bytes) -> None:
        """Send the other node, which does not read stamps, the topic's present value behind all that waits."""
        self.outbox.note_lost(topic)
        if self.reachable:
            self.want_attention()

    def needs_store(self, qos: int) -> bool:
        return self.promises is not None and (qos == 2 or self.is_behind)

    def want_attention(self) -> None:
        """Ask the shell to call take_blocks at the end of this turn."""
        if self.attention is not QUEUED:
            self.attention = QUEUED
            self.outlets.ready.append(self)

    # --- connecting ---

    def connect(self, addr: str, now: float) -> None:
        """The node can be reached at `addr`. Connect at once; connect anew when the address has changed."""
        if addr == self.addr and self.state in (State.HELLO, State.STREAMING):
            return
        self.addr = addr
        self._tries = 0
        self._say_hello(now)

    def connect_anew(self, attempt: int, now: float) -> None:
        """A direct stream gets through by now: the session goes on there."""
        if attempt == self.attempt and self.state is State.STREAMING:
            self._say_hello(now)

    def set_extended(self, extended: bool, is_direct: bool, is_stamped: bool, moves_sessions: bool = False) -> None:
        """Its tags say what it reads. A change means another program, and a new session."""
        known = self.extended, self.is_direct, self.full_state.is_stamped, self.moves_sessions
        if (extended, is_direct, is_stamped, moves_sessions) != known:
            self.full_state.is_stamped = is_stamped
            self.extended = self.names_groups = extended
            self.is_direct = is_direct
            self.moves_sessions = moves_sessions
            self.addr = ""
            self._new_session()

    def stop(self, reason: str) -> None:
        """Connect no more; the outbox stays."""
        self.reason = reason
        self._deadline = NEVER
        self._move(State.STOPPED)

    def forget(self) -> None:
        """The node left or was away too long. Drop everything that waits for it; its next session is a new one."""
        self.outbox.clear(DropReason.PEER_GONE)
        self.full_state.interest.clear()
        self.news.clear()
        self._new_session()

    def _say_hello(self, now: float) -> None:
        self._move(State.HELLO)
        self.attempt += 1
        self._deadline = now + HELLO_SECONDS_MAX
        self.choice.begin(self.is_direct, self.addr)

    def hello_sent(self, attempt: int) -> None:
        """The connection of a direct stream took the Hello."""
        if attempt == self.attempt and self.state is State.HELLO:
            self.choice.hello_sent()

    def hello_refused(self, attempt: int, reason: str, now: float) -> None:
        """The other node answered Hello, but not with a stream."""
        if attempt == self.attempt and self.state is State.HELLO:
            self.choice.hello_answered()
            self.connection_lost(attempt, reason, now)

    def hello_reply(self, attempt: int, clean_start: bool, next_event_id: int, now: float) -> bool:
        """The other node answered Hello. True when the stream begins: then `take_blocks`. After a clean start the ids begin
        at 0 again; next_event_id then says which events of the session so far were done."""
        if attempt != self.attempt or self.state is not State.HELLO:
            return False
        self.choice.hello_answered()
        outbox = self.outbox
        is_refused = self._on_way is OnWay.REFUSED
        self._on_way = OnWay.SENT
        if self._next_id == 0 and next_event_id == 0:
            clean_start = True  # nothing was sent yet: the answer to an earlier Hello was lost, and the state is due
        if not clean_start:
            first_id = outbox.on_way[0].first_id if outbox.on_way else self._next_id
            if not first_id <= next_event_id <= self._next_id:
                # It asks for events that are forgotten or were never sent: a full state must follow.
                self._new_session()
                self.connection_lost(attempt, f"it asks for event {next_event_id}, which is not kept", now)
                return False
            outbox.acknowledge(next_event_id - 1)
            if is_refused and outbox.on_way:
                self._give_up_first()
                self._new_session()
                self.connection_lost(attempt, "a batch was refused: it is given up", now)
                return False
            if outbox.on_way:
                self._on_way = OnWay.DUE
            self.resume_id = next_event_id
        else:
            if is_refused:
                self._give_up_first()
            outbox.rewind(min(next_event_id, self._next_id), now)
            self._next_id = 0
            self.resume_id = 0
            self.full_state.begin()
            if self.moves_sessions:
                self.news.begin(outbox)
            self.counters.full_states_sent += 1
        self._move(State.STREAMING)
        self.reason = ""
        self._deadline = NEVER
        self._progress_at = now
        self._streaming_since = now
        self._last_messages = 0
        self.counters.connects += 1
        self.choice.stream_began(self.is_direct, now)
        self.full_state.begin_digests(self.choice.kind is StreamKind.DIRECT, clean_start, now)
        self.catch_up(now)
        self.want_attention()
        return True

    def connection_lost(self, attempt: int, reason: str, now: float) -> None:
        """The connection of this attempt failed or ended."""
        if attempt != self.attempt or self.state not in (State.HELLO, State.STREAMING):
            return
        if self.state is State.STREAMING:
            self.counters.streams_lost += 1
            if now - self._streaming_since >= STABLE_SECONDS:
                self._tries = 0
        self.reason = reason
        self.choice.attempt_ended()
        self._move(State.BACKOFF)
        ceiling = min(self.backoff_seconds_max, self.backoff_seconds_min * float(1 << min(self._tries, 10)))
        self._tries += 1
        self._deadline = now + ceiling * (0.5 + self._rng.random() / 2)

    def refused(self, attempt: int, reason: str, now: float) -> None:
        """The other node ended the stream because it cannot take a batch. The next Hello tells which one that was; it is
        given up, counted, and a new session begins, so that one bad batch never stops what follows."""
        if attempt == self.attempt and self.state is State.STREAMING:
            self._on_way = OnWay.REFUSED
        self.connection_lost(attempt, reason, now)

    def _give_up_first(self) -> None:
        """The other node refuses the first block on the way: it is not sent again, nor is what it told of the state."""
        block = self.outbox.drop_first_on_way(DropReason.REFUSED)
        if block is not None and block.is_state and block.retained is not None:
            self.full_state.give_up(block.retained)

    def _new_session(self) -> None:
        self.session_id = _session_id(self._rng.getrandbits(128))

    def _move(self, state: State) -> None:
        assert state in MOVES[self.state], f"{self.state} to {state}"
        self.state = state
        self.reachable = state is State.STREAMING
        if not self.reachable:
            self.fall_behind()
            self.full_state.end_digests()
            self.congested = False
            self._timed_at = NEVER
            if self.attention is WATCHING:
                self.attention = QUIET

    # --- blocks ---

    def ack(self, attempt: int, event_id: int, now: float) -> None:
        """Events up to event_id were handled. After it, `take_blocks`."""
        if attempt != self.attempt or self.state is not State.STREAMING:
            return
        if event_id >= self._next_id:
            self._new_session()
            self.connection_lost(attempt, f"it acknowledged event {event_id}, which was not sent", now)
            return
        self._progress_at = now
        self.acked_at = now
        if event_id >= self._timed_id and self._timed_at != NEVER:
            self.round_trip = now - self._timed_at
            self._timed_at = NEVER
        self.counters.events_acked += self.outbox.acknowledge(event_id)
        if self.is_behind:
            self.catch_up(now)
        if self.congested and self.outbox.size < self._quarter:
            self.congested = False
            self._local.outbox_has_room(now)

    def take_blocks(self, now: float, converter: BlockConverter | None = None) -> list[Block]:
        """Return what must be sent now, in order and with event ids. Blocks that are on the way come first, again,
        when the stream resumes. `converter`: where not every event is sent."""
        blocks: list[Block] = []
        if self.state is not State.STREAMING:
            return blocks
        outbox = self.outbox
        if self._on_way is OnWay.DUE:
            self._on_way = OnWay.SENT
            blocks.extend(outbox.on_way)
            for block in blocks:
                self.counters.events_resent += block.events
        if not outbox.on_way:
            self._progress_at = now
        if (outbox.lost_topics or outbox.is_retained_state_due) and outbox.size <= self._quarter:
            self._mend_retained(now)
        self.tell_ended(now)
        state_blocks = STATE_BLOCKS_MAX if self.news.has_more() else 0
        while outbox.on_way_size < WINDOW_BYTES_MAX and len(outbox.on_way) < WINDOW_BLOCKS_MAX:
            next_block = None
            if state_blocks:
                next_block = self.news.next_block(self.extended, now)
                state_blocks = 0 if next_block is None else state_blocks - 1
            if next_block is None:
                next_block = self._next_message_block(now)
                if next_block is None:
                    break
                self._last_messages = next_block.messages
                self._last_sent_at = now
            if self._number(next_block, now, converter):
                blocks.append(next_block)
            if not state_blocks and outbox.is_empty():
                break
        # Only the first message into nothing needs the shell: a block that gathers has a timer, a full window waits.
        if self.attention is not QUEUED:
            self.attention = WATCHING if outbox.is_empty() else QUIET
        if not outbox.on_way and self.news.has_more():
            self.want_attention()  # no acknowledgement will come that goes on with it
        if blocks and self._timed_at == NEVER:
            self._timed_at = now
            self._timed_id = blocks[-1].first_id + blocks[-1].events - 1
        counters = self.counters
        for block in blocks:
            counters.events_sent += block.events
        return blocks

    def gathered_at(self) -> float:
        """Return when a block that gathers is to leave; NEVER for none, and while the window is full."""
        outbox = self.outbox
        if self.state is not State.STREAMING or outbox.is_next_unstored():
            return NEVER
        has_room = outbox.on_way_size < WINDOW_BYTES_MAX and len(outbox.on_way) < WINDOW_BLOCKS_MAX
        return outbox.open_since() + LINGER_SECONDS if has_room else NEVER

    def _mend_retained(self, now: float) -> None:
        """Retained messages were dropped, and there is room again: tell the present values of their topics."""
        outbox = self.outbox
        if outbox.is_retained_state_due and not self.full_state.has_retained():
            outbox.is_retained_state_due = False
            self.full_state.begin_mending()
        for _ in range(min(MENDED_TOPICS_MAX, len(outbox.lost_topics))):
            if outbox.size > self._quarter:
                break
            topic, _ = outbox.lost_topics.popitem(last=False)
            message = self._local.retained_message(topic, now)
            outbox.append_lost(Message(topic, b"", 0, True) if message is None else message, now)
            self.counters.retained_mended += 1

    def _number(self, block: Block, now: float, converter: BlockConverter | None) -> bool:
        """Give event ids; False for a block in which nothing is left to send."""
        block.first_id = self._next_id
        block.events = block.count if converter is None else converter.convert(block, now)
        if block.events == 0:
            return False
        self._next_id += block.events
        self.outbox.sent(block)
        return True

    def _next_message_block(self, now: float) -> Block | None:
        outbox = self.outbox
        if self.promises is not None and outbox.is_next_unstored():
            self.promises.unstored[self] = None
            return None
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
        """Return when to call handle_timeout, beside gathered_at; NEVER for not at all. Ask again after every other call."""
        at = min(self._deadline, self.full_state.digest_at, self.outbox.next_age_out())
        if self.state is State.STREAMING:
            outbox = self.outbox
            at = min(at, self.choice.next_timeout(), self.ended_at)
            if outbox.on_way:
                at = min(at, self._ack_due_at())
        return at

    def _ack_due_at(self) -> float:
        return self._progress_at + ACK_SECONDS_MAX + self.outbox.on_way_size // ACK_RATE_MIN

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. After it, `take_blocks`."""
        self.outbox.drop_old(now)
        if self.state is State.STREAMING:
            self.full_state.handle_timeout(now)
            self.choice.handle_timeout(now)
            if self.outbox.on_way and now >= self._ack_due_at():
                silence = now - self._progress_at
                self.connection_lost(self.attempt, f"no acknowledgement for {silence:.0f} s", now)
        elif now >= self._deadline:
            if self.state is State.HELLO:
                self.connection_lost(self.attempt, f"no answer to Hello for {HELLO_SECONDS_MAX:g} s", now)
            elif self.state is State.BACKOFF:
                self._say_hello(now)


class Outlets:
    """The senders that want to be asked for blocks at the end of this turn, each once."""

    def __init__(self) -> None:
        self.ready: list[PeerSender] = []

    def take_ready(self) -> list[PeerSender]:
        ready = self.ready
        if ready:
            self.ready = []
            for sender in ready:
                sender.attention = QUIET
        return ready
