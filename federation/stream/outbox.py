"""The outbox for one other node: messages not sent yet, and events sent but not acknowledged.

Messages gather in blocks. A block travels as one batch of a direct stream, or as single events of the Go broker's stream.
Event ids are given when a block is sent for the first time, so a message that is dropped before leaves no gap in them. A block
that has ids is kept until it is acknowledged, whatever its age: the sender's window bounds how many there are. A durable outbox
is another class with the same methods as this one.

Bounds: bytes (waiting and unacknowledged together) and age (waiting only). Policy: the oldest blocks or the new messages
are dropped. Every dropped message is counted. The topics of dropped retained messages are kept, so that the other node can
be told their present values. Past the bound on those topics the whole retained state is due; only deletions are kept then,
because that state cannot tell them.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from broker.codec.wire import VARINT_MAX
from broker.message import NEVER, Message
from broker.origin import PROPERTY_HEAD
from federation.stream.counters import DropReason, StreamCounters
from federation.stream.frames import (
    BLOCK_HEAD_SIZE,
    BLOCK_HEADER_SIZE,
    GROUPS_MAX,
    HEADER_SIZE,
    IS_MENDED,
    IS_NEWS,
    PUBLISH,
    RETAINED,
    count_events,
    decode_block_version,
    encode_block_header,
    encode_expiring_packet,
    encode_frame,
    encode_groups,
    encode_packet,
    expiry_offset,
    fill_expiry,
    skip_packets,
)

BLOCK_BYTES_MAX: Final = 65_536  # a block that has so much is closed
BLOCK_MESSAGES_MAX: Final = 2_048
BLOCK_SECONDS_MAX: Final = 1.0  # so that dropping by age is no coarser
CHUNK_OVERHEAD: Final = 48  # bytes of memory of a bytes object and its place in a list, beside its content
PACKET_OVERHEAD_MAX: Final = 32  # bytes of a PUBLISH beside topic, properties and payload
LOST_TOPICS_MAX: Final = 65_536  # topics of dropped retained messages; past it the whole retained state is due

UNNUMBERED: Final = -1


class Block:
    """Events that are sent together.

    first_id    event id of the first one, UNNUMBERED before it is sent for the first time
    count       how many events its frames hold
    events      how many event ids it takes: `count`, or fewer towards a Go broker, which is not sent all of them
    messages    how many application messages it has
    expiring    (index in chunks, offset from the chunk's end, expires_at): where to fill in the seconds that are left
    serial      rising number of a block of messages in its outbox, 0 for state
    is_state    interest or retained state: a full state replaces it
    retained    (topic, whether it is a deletion) of its retained messages, None for none
    converted   the same as events of the Go broker's stream, made by its codec
    """

    __slots__ = (
        "chunks",
        "converted",
        "count",
        "events",
        "expiring",
        "first_id",
        "is_state",
        "messages",
        "opened_at",
        "retained",
        "serial",
        "size",
    )

    def __init__(self, is_state: bool, now: float) -> None:
        self.chunks: list[bytes] = []
        self.expiring: list[tuple[int, int, float]] | None = None
        self.first_id = UNNUMBERED
        self.count = 0
        self.events = 0
        self.messages = 0
        self.size = 0
        self.serial = 0
        self.is_state = is_state
        self.opened_at = now
        self.retained: list[tuple[bytes, bool]] | None = None
        self.converted: object | None = None

    def append_frame(self, frame: bytes) -> None:
        """One event without an expiry."""
        self.chunks.append(frame)
        self.count += 1
        self.size += len(frame) + CHUNK_OVERHEAD

    def append_message(
        self, kind: int, message: Message, groups: tuple[tuple[bytes, bytes], ...], flags: int = 0
    ) -> None:
        """One message as a frame of its own: PUBLISH with its groups, or RETAINED without."""
        prefix = encode_groups(groups) if kind == PUBLISH else b""
        if message.expires_at == NEVER:
            self.append_frame(encode_frame(kind, prefix + encode_packet(message, 5), flags))
        else:
            self.append_frame(encode_frame(kind, prefix + encode_expiring_packet(message), flags))
            self.note_expiry(message)
        if not flags & (IS_NEWS | IS_MENDED):  # they stand for messages that were counted
            self.messages += 1
        if message.retain:
            if self.retained is None:
                self.retained = []
            self.retained.append((message.topic, not message.payload))

    def note_expiry(self, message: Message) -> None:
        """The last chunk ends with encode_expiring_packet(message)."""
        if self.expiring is None:
            self.expiring = []
        self.expiring.append((len(self.chunks) - 1, expiry_offset(message), message.expires_at))

    def leave_out(self, done: int, now: float) -> None:
        """The first `done` events, which are fewer than it has, were done by the other node. A message that expires keeps the
        seconds that are left at `now`."""
        data = b"".join(self.encode(now))
        pos = 0
        self.count -= done
        while done > 0:
            start = pos + HEADER_SIZE
            end = start + int.from_bytes(data[pos + 2 : start], "big")
            events = count_events(data, data[pos], data[pos + 1], start, end)
            pos = end
            if events > done:
                version = decode_block_version(data, start)
                at = skip_packets(data, start + BLOCK_HEAD_SIZE, end, done)
                data = encode_block_header(version, events - done, end - at) + data[at:]
                pos = 0
            done -= events
        self.chunks = [data[pos:]]
        self.expiring = None
        self.messages = min(self.messages, self.count)

    def encode(self, now: float) -> list[bytes]:
        """The frames as they leave at `now`, in pieces."""
        if self.expiring is not None:
            for index, offset, expires_at in self.expiring:
                chunk = self.chunks[index]
                self.chunks[index] = fill_expiry(chunk, len(chunk) + offset, expires_at, now)
        return self.chunks


class Outbox:
    """bytes_max and age_max (seconds) bound it; `size` is what it holds, in bytes of memory. lost_topics_max bounds
    lost_topics."""

    def __init__(self, bytes_max: int, age_max: float, drop_oldest: bool, counters: StreamCounters) -> None:
        # What each message touches comes first (see Connection).
        self._open: Block | None = None
        self.waiting: deque[Block] = deque()  # closed blocks without ids
        # Whose present retained message the other node is to be told: topic -> whether it was deleted. Taken from the front,
        # which a dict does by walking over what it deleted before.
        self.lost_topics: OrderedDict[bytes, bool] = OrderedDict()
        self.is_retained_state_due = False
        self.on_way: list[Block] = []  # with ids, not acknowledged: no more than the sender's window
        self.on_way_size = 0
        self.size = 0
        self.bytes_max = bytes_max
        self.age_max = age_max
        self.drop_oldest = drop_oldest
        self.counters = counters
        self.lost_topics_max = LOST_TOPICS_MAX
        self._serial = 0  # of the newest block of messages
        self._open_until = 0.0
        # The PUBLISH_BLOCK at the end of the open block that still grows: its version (0: none), where its header
        # goes, how many packets and bytes it has.
        self._run_version = 0
        self._run_at = 0
        self._count = 0
        self._run_bytes = 0

    # --- messages come in ---

    def append_run(self, data: bytes, count: int, version: int, now: float) -> bool:
        """Append `count` PUBLISH packets without RETAIN and expiry. True when a block is full and should be sent."""
        size = len(data) + CHUNK_OVERHEAD
        if self.size + size > self.bytes_max and not self._make_room(size, count):
            return False
        if size > BLOCK_BYTES_MAX:
            self.close_block()  # a block of its own: where the other node refuses it, nothing else is lost
        block = self._open
        if block is None or self._run_version != version or now > self._open_until:
            block = self._begin_run(version, now)
        block.chunks.append(data)
        block.count += count
        block.messages += count
        block.size += size
        self._count += count
        self._run_bytes += len(data)
        self.size += size
        return self._close_full(block)

    def _close_full(self, block: Block) -> bool:
        if block.size < BLOCK_BYTES_MAX and block.messages < BLOCK_MESSAGES_MAX:
            return False
        self.close_block()
        return True

    def append_message(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> bool:
        """Append one message of any kind. True when a block is full and should be sent."""
        size = len(message.payload) + len(message.topic) + len(message.properties) + PACKET_OVERHEAD_MAX
        if message.origin is not None:
            size += len(message.origin.encode()) + len(PROPERTY_HEAD) + 2
        if size > VARINT_MAX:
            self.counters.drop(DropReason.NOT_REPRESENTABLE, 1)
            return False
        if not groups and not message.retain and message.expires_at == NEVER:
            return self._append_plain(message, now)
        if self.size + size + CHUNK_OVERHEAD > self.bytes_max and not self._make_room(size + CHUNK_OVERHEAD, 1):
            if message.retain:
                self.note_lost(message.topic, not message.payload)
            return False
        if len(groups) > GROUPS_MAX:
            self.counters.drop(DropReason.NOT_REPRESENTABLE, len(groups) - GROUPS_MAX)
            groups = groups[:GROUPS_MAX]
        if size > BLOCK_BYTES_MAX:
            self.close_block()
        self._end_run()
        block = self._open_block(now)
        before = block.size
        block.append_message(PUBLISH, message, groups)
        if message.retain:
            self.lost_topics.pop(message.topic, None)
        self.size += block.size - before
        return self._close_full(block)

    def append_lost(self, message: Message, now: float) -> None:
        """Append the present value of a topic of lost_topics (an empty payload for none), behind everything that waits."""
        if len(message.payload) > BLOCK_BYTES_MAX:
            self.close_block()
        self._end_run()
        block = self._open_block(now)
        before = block.size
        block.append_message(RETAINED, message, (), IS_NEWS)
        self.size += block.size - before
        self._close_full(block)

    def _append_plain(self, message: Message, now: float) -> bool:
        """Append a message for ordinary subscribers, neither retained nor expiring, to the run, in its version if possible."""
        if message.head_version and message.origin is None:
            data = b"".join((message.head, b"\0\1", message.tail))  # as it came: QoS 1, nothing else
            return self.append_run(data, 1, message.head_version, now)
        version = self._run_version
        if message.properties or message.origin is not None or version == 0:
            version = 5
        return self.append_run(encode_packet(message, version), 1, version, now)

    def _begin_run(self, version: int, now: float) -> Block:
        self._end_run()
        block = self._open_block(now)
        self._run_version = version
        self._run_at = len(block.chunks)
        block.chunks.append(b"")  # replaced by the header when the run ends
        block.size += BLOCK_HEADER_SIZE + CHUNK_OVERHEAD
        self.size += BLOCK_HEADER_SIZE + CHUNK_OVERHEAD
        return block

    def _open_block(self, now: float) -> Block:
        block = self._open
        if block is not None:
            if now <= self._open_until:
                return block
            self.close_block()
        block = Block(False, now)
        self._serial += 1
        block.serial = self._serial
        self._open = block
        self._open_until = now + BLOCK_SECONDS_MAX
        return block

    def _end_run(self) -> None:
        if self._run_version:
            block = self._open
            assert block is not None
            block.chunks[self._run_at] = encode_block_header(self._run_version, self._count, self._run_bytes)
            self._run_version = 0
            self._count = 0
            self._run_bytes = 0

    def close_block(self) -> None:
        """The open block, if there is one, takes no more."""
        block = self._open
        if block is not None:
            self._end_run()
            self._open = None
            self.waiting.append(block)

    # --- blocks leave ---

    def open_since(self) -> float:
        """Return when the open block got its first event; NEVER without one."""
        block = self._open
        return NEVER if block is None else block.opened_at

    def oldest_at(self) -> float:
        """Return when the oldest block that waits or is on the way got its first event; NEVER without one."""
        for blocks in (self.on_way, self.waiting):
            if blocks:
                return blocks[0].opened_at
        return self.open_since()

    def mark(self) -> int:
        """The number of the newest block of messages."""
        return self._serial

    def is_done(self, mark: int) -> bool:
        """Return whether all blocks up to this one are acknowledged, or were dropped."""
        for block in self.on_way:
            if block.serial:
                return block.serial > mark
        if self.waiting:
            return self.waiting[0].serial > mark
        return self._open is None or self._open.serial > mark

    def is_empty(self) -> bool:
        """Nothing waits to be sent."""
        return self._open is None and not self.waiting

    def take_waiting(self) -> Block | None:
        """The oldest closed block; the caller numbers it and gives it to `sent`."""
        if not self.waiting:
            return None
        block = self.waiting.popleft()
        self.size -= block.size
        return block

    def sent(self, block: Block) -> None:
        """A block was numbered and is on its way."""
        assert block.first_id >= 0
        self.on_way.append(block)
        self.on_way_size += block.size
        if not block.is_state:
            self.size += block.size

    def acknowledge(self, event_id: int) -> int:
        """Events up to event_id are done. Forget whole blocks; how many events they had."""
        events = 0
        blocks = 0
        for block in self.on_way:
            if block.first_id + block.events - 1 > event_id:
                break
            blocks += 1
            events += block.events
            self._forget(block)
        if blocks:
            del self.on_way[:blocks]
        return events

    def _forget(self, block: Block) -> None:
        self.on_way_size -= block.size
        if not block.is_state:
            self.size -= block.size

    def rewind(self, next_event_id: int, now: float) -> None:
        """Ids begin anew: unacknowledged messages wait again, in front; unacknowledged state goes, a full one follows. Events
        below next_event_id were done."""
        self.acknowledge(next_event_id - 1)
        while self.on_way:
            block = self.on_way.pop()
            if block.first_id < next_event_id and not block.is_state:
                block.leave_out(next_event_id - block.first_id, now)
            block.first_id = UNNUMBERED
            block.converted = None
            if not block.is_state:
                self.waiting.appendleft(block)
        self.on_way_size = 0

    def drop_first_on_way(self, reason: DropReason) -> Block | None:
        """Take away the block that the other node refuses to read."""
        if not self.on_way:
            return None
        block = self.on_way.pop(0)
        self._forget(block)
        self.counters.drop(reason, block.messages)
        return block

    # --- bounds ---

    def next_age_out(self) -> float:
        """Return when `drop_old` has something to do; NEVER for not at all."""
        if self.waiting:
            return self.waiting[0].opened_at + self.age_max
        return self.open_since() + self.age_max

    def drop_old(self, now: float) -> None:
        """Drop what has waited for longer than age_max."""
        if self.open_since() + self.age_max <= now:
            self.close_block()
        while self.waiting and self.waiting[0].opened_at + self.age_max <= now:
            self._drop_first_waiting(DropReason.OUTBOX_AGE)

    def clear(self, reason: DropReason) -> None:
        """Drop everything."""
        self.close_block()
        self.rewind(0, 0.0)
        while self.waiting:
            self._drop_first_waiting(reason)
        self.lost_topics.clear()
        self.is_retained_state_due = False

    def _drop_first_waiting(self, reason: DropReason) -> None:
        block = self.waiting.popleft()
        self.size -= block.size
        self.counters.drop(reason, block.messages)
        if block.retained is not None:
            for topic, is_deletion in block.retained:
                self.note_lost(topic, is_deletion)

    def note_lost(self, topic: bytes, is_deletion: bool) -> None:
        """A retained message of the topic did not reach the other node, or not as the last one."""
        lost = self.lost_topics
        if topic in lost:
            lost[topic] = is_deletion
            return
        if len(lost) >= self.lost_topics_max and not self.is_retained_state_due:
            self.is_retained_state_due = True
            self.lost_topics = lost = OrderedDict((name, True) for name, is_deleted in lost.items() if is_deleted)
        if not is_deletion and self.is_retained_state_due:
            return
        if len(lost) < self.lost_topics_max:
            lost[topic] = is_deletion
        else:
            self.counters.drop(DropReason.RETAINED_DELETIONS, 1)

    def _make_room(self, size: int, count: int) -> bool:
        """Drop by the policy. True when `size` bytes fit afterwards; otherwise `count` new messages are counted as dropped."""
        if size > self.bytes_max:
            self.counters.drop(DropReason.TOO_LARGE, count)
            return False
        if self.drop_oldest:
            while self.size + size > self.bytes_max:
                if not self.waiting:
                    if self._open is None:
                        break
                    self.close_block()
                self._drop_first_waiting(DropReason.OUTBOX_FULL)
            if self.size + size <= self.bytes_max:
                return True
        self.counters.drop(DropReason.OUTBOX_FULL, count)
        return False
