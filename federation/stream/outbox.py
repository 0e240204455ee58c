"""The outbox for one other node: messages not sent yet, and events sent but not acknowledged.

Messages gather in blocks. A block travels as one batch of a direct stream, or as single events of the Go broker's stream.
Event ids are given when a block is sent for the first time, so a message that is dropped before leaves no gap in them. A block
that has ids is held until it is acknowledged, whatever its age: the sender's window bounds how many there are.

A block with messages that were acknowledged to their publishers, or will be, is promised. The sender says when promised blocks
are kept in the store: it is behind. Each is one record, written as the block is then; what comes later goes to another block.
The serial number of a block rises through all starts of its store: by it the other node knows what it has done.

Bounds: bytes (waiting and unacknowledged together) and age (waiting only). Policy: the oldest blocks or the new messages
are dropped. Every dropped message is counted. The topics of dropped retained messages are kept, so that the other node can
be told their present values. Past the bound on those topics the whole retained state is due.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from broker.codec.wire import VARINT_MAX
from broker.message import NEVER, Message
from broker.store.journal import Journal
from federation.stream.block import CHUNK_OVERHEAD, UNNUMBERED, Block, BlockOwner, packet_bytes
from federation.stream.counters import DropReason, StreamCounters
from federation.stream.frames import (
    BLOCK_HEADER_SIZE,
    GROUPS_MAX,
    IS_NEWS,
    PUBLISH,
    RETAINED,
    encode_block_header,
    encode_packet,
)
from federation.stream.serials import Serials

BLOCK_BYTES_MAX: Final = 65_536  # a block that has so much is closed
BLOCK_MESSAGES_MAX: Final = 2_048
BLOCK_SECONDS_MAX: Final = 1.0  # so that dropping by age is no coarser
LOST_TOPICS_MAX: Final = 65_536  # topics of dropped retained messages; past it the whole retained state is due


class Outbox(BlockOwner):
    """bytes_max and age_max (seconds) bound it; `size` is what it holds, in bytes of memory. lost_topics_max bounds
    lost_topics. bytes_max 0: the node was given up; what comes for it is dropped and counted.

    journal   of the store that keeps promised blocks, None without one
    newest    the block that got the last message, if that was not dropped
    is_dropped  the last message was
    """

    def __init__(
        self,
        bytes_max: int,
        age_max: float,
        drop_oldest: bool,
        counters: StreamCounters,
        node: str = "",
        journal: Journal | None = None,
        serials: Serials | None = None,
    ) -> None:
        super().__init__(node)
        # What each message touches comes first (see Connection).
        self._open: Block | None = None
        self.newest = Block(False, 0.0)
        self.is_dropped = False
        self.waiting: deque[Block] = deque()  # closed blocks without ids
        # Whose present retained message the other node is to be told. Taken from the front, which a dict does by walking over
        # what it deleted before.
        self.lost_topics: OrderedDict[bytes, None] = OrderedDict()
        self.is_retained_state_due = False
        self.on_way: list[Block] = []  # with ids, not acknowledged: no more than the sender's window
        self.on_way_size = 0
        self.size = 0
        self.bytes_max = bytes_max
        self.age_max = age_max
        self.drop_oldest = drop_oldest
        self.counters = counters
        self.lost_topics_max = LOST_TOPICS_MAX
        self.journal = journal
        self._serials = Serials(0) if serials is None else serials
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
        self.is_dropped = False
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
        self.is_dropped = False
        if message.head_version and not groups and message.origin is None:
            data = b"".join((message.head, b"\0\1", message.tail))  # as it came: QoS 1, nothing else
            return self.append_run(data, 1, message.head_version, now)
        size = packet_bytes(message)
        if size > VARINT_MAX:
            self.counters.drop(DropReason.NOT_REPRESENTABLE, 1)
            self.is_dropped = True
            return False
        if not groups and not message.retain and message.expires_at == NEVER:
            return self._append_plain(message, now)
        if self.size + size + CHUNK_OVERHEAD > self.bytes_max and not self._make_room(size + CHUNK_OVERHEAD, 1):
            if message.retain:
                self.note_lost(message.topic)
            return False
        if len(groups) > GROUPS_MAX:
            self.counters.drop(DropReason.NOT_REPRESENTABLE, len(groups) - GROUPS_MAX)
            groups = groups[:GROUPS_MAX]
        block = self._block_of(size, now)
        before = block.size
        block.append_message(PUBLISH, message, groups)
        if message.retain:
            self.lost_topics.pop(message.topic, None)
        self.size += block.size - before
        return self._close_full(block)

    def append_session(self, frame: bytes, messages: int, is_once: bool, now: float) -> None:
        """Append a frame about a session, with so many messages in it. is_once: it is not sent before it is stored."""
        block = self.append_frame(frame, now)
        block.messages += messages
        block.is_kept = block.is_promised = True
        if is_once and self.journal is not None:
            block.is_once = True
            self.keep_newest()

    def append_frame(self, frame: bytes, now: float) -> Block:
        """Append an event that is no message, behind everything that waits."""
        block = self._block_of(len(frame), now)
        before = block.size
        block.append_frame(frame)
        self.size += block.size - before
        self._close_full(block)
        return block

    def append_copy(self, message: Message, head: bytes, now: float) -> bool:
        """Append one message for a shared group, behind the head of its frame. True when a block is full and should be sent."""
        self.is_dropped = False
        size = packet_bytes(message) + len(head)
        if size > VARINT_MAX:
            self.counters.drop(DropReason.NOT_REPRESENTABLE, 1)
            self.is_dropped = True
            return False
        if self.size + size + CHUNK_OVERHEAD > self.bytes_max and not self._make_room(size + CHUNK_OVERHEAD, 1):
            return False
        block = self._block_of(size, now)
        before = block.size
        block.append_copy(message, head)
        self.size += block.size - before
        return self._close_full(block)

    def _block_of(self, size: int, now: float) -> Block:
        """The open block, or a new one for a frame of so many bytes that it would keep others."""
        if size > BLOCK_BYTES_MAX:
            self.close_block()
        self._end_run()
        return self._open_block(now)

    def append_lost(self, message: Message, now: float) -> None:
        """Append the present value of a topic of lost_topics (an empty payload for none), behind everything that waits."""
        block = self._block_of(len(message.payload), now)
        before = block.size
        block.append_message(RETAINED, message, (), IS_NEWS)
        self.size += block.size - before
        self._close_full(block)

    def _append_plain(self, message: Message, now: float) -> bool:
        """Append a message for ordinary subscribers, neither retained nor expiring, to the run, in its version if possible."""
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
        self._serial = block.serial = self._serials.next()
        self._open = self.newest = block
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

    # --- the store ---

    def keep_newest(self) -> None:
        """The message that came last is to be in the store before it is acknowledged, and all that is promised before it: what
        a publisher sends again after a crash comes behind what the store has."""
        journal = self.journal
        assert journal is not None
        if self.newest.record:
            journal.is_touched = True
        else:
            self.keep_promised()

    def keep_promised(self) -> None:
        """Keep all blocks that are promised and not acknowledged."""
        journal = self.journal
        if journal is not None:
            for block in reversed(self._unkept()):
                block.owner = self
                block.record = journal.keep(block)

    def _unkept(self) -> list[Block]:
        """Blocks that are promised and not kept, the newest first. What is promised before a kept block is kept."""
        found: list[Block] = []
        blocks: list[Block] = [] if self._open is None else [self._open]
        for held in (blocks, self.waiting, self.on_way):
            for block in reversed(held):
                if block.record:
                    return found
                if block.is_promised:
                    found.append(block)
        return found

    def _unkeep(self, block: Block) -> None:
        if block.record and self.journal is not None:
            self.journal.drop(block.record)
            block.record = 0

    def is_safe(self, serial: int) -> bool:
        """Return whether promised messages up to this block are stored, acknowledged, or dropped and counted."""
        for blocks in (self.on_way, self.waiting):
            for block in blocks:
                if block.serial > serial:
                    return True
                if block.is_promised and self._is_unstored(block):
                    return False
        newest = self._open
        return newest is None or newest.serial > serial or not newest.is_promised or not self._is_unstored(newest)

    def is_next_unstored(self) -> bool:
        """Return whether the next block to send has to be in the store first."""
        block = self.waiting[0] if self.waiting else self._open
        return block is not None and block.is_once and self._is_unstored(block)

    def _is_unstored(self, block: Block) -> bool:
        return block.record == 0 or (self.journal is not None and block.record >= self.journal.stored_below)

    def stored(self) -> tuple[int, int]:
        """(blocks, bytes) that the store has."""
        blocks = 0
        size = 0
        for held in (self.on_way, self.waiting):
            for block in held:
                if block.serial and not self._is_unstored(block):
                    blocks += 1
                    size += block.size
        return blocks, size

    def close_if_open(self, block: Block) -> None:
        if self._open is block:
            self.close_block()

    def restore(self, block: Block, record: int) -> None:
        """A block of the store waits again. They come in the order of their serial numbers."""
        block.owner = self
        block.record = record
        self._serial = block.serial
        self.size += block.size
        self.waiting.append(block)

    # --- blocks leave ---

    def open_since(self) -> float:
        """Return when the open block got its first event; NEVER without one."""
        return NEVER if self._open is None else self._open.opened_at

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

    def has_state(self) -> bool:
        """Return whether interest is on its way."""
        for block in self.on_way:  # noqa: SIM110 (compiled without a generator)
            if block.is_state:
                return True
        return False

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
        self.acknowledged(block)
        self._unkeep(block)
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
        at = self._first_droppable()
        if at >= 0:
            return self.waiting[at].opened_at + self.age_max
        return self.open_since() + self.age_max

    def drop_old(self, now: float) -> None:
        """Drop what has waited for longer than age_max."""
        if self.open_since() + self.age_max <= now:
            self.close_block()
        while True:
            at = self._first_droppable()
            if at < 0 or self.waiting[at].opened_at + self.age_max > now:
                return
            self._drop_waiting(at, DropReason.OUTBOX_AGE)

    def _first_droppable(self) -> int:
        """Return the place of the oldest block that waits and may be dropped; -1 for none."""
        for at, block in enumerate(self.waiting):
            if not block.is_kept:
                return at
        return -1

    def give_back(self, serial: int) -> None:
        """A message of this block goes another way: it is not counted when the block is dropped."""
        for block in [*self.on_way, *self.waiting, *([] if self._open is None else [self._open])]:
            if block.serial == serial:
                block.messages -= 1

    def clear(self, reason: DropReason) -> None:
        """Drop everything."""
        self.close_block()
        self.rewind(0, 0.0)
        while self.waiting:
            self._drop_waiting(0, reason)
        self.lost_topics.clear()
        self.is_retained_state_due = False

    def _drop_waiting(self, at: int, reason: DropReason) -> None:
        block = self.waiting[at]
        del self.waiting[at]
        self.size -= block.size
        self._unkeep(block)
        self.counters.drop(reason, block.messages)
        if block.retained is not None:
            for topic in block.retained:
                self.note_lost(topic)

    def note_lost(self, topic: bytes) -> None:
        """A retained message of the topic did not reach the other node, or not as the last one."""
        if self.bytes_max == 0:
            return  # the node was given up: a full state follows
        if len(self.lost_topics) < self.lost_topics_max:
            self.lost_topics[topic] = None
        elif topic not in self.lost_topics:
            self.lost_topics.clear()
            self.is_retained_state_due = True

    def _make_room(self, size: int, count: int) -> bool:
        """Drop by the policy. True when `size` bytes fit afterwards; otherwise `count` new messages are counted as dropped."""
        if size > self.bytes_max:
            self.counters.drop(DropReason.TOO_LARGE if self.bytes_max else DropReason.PEER_GONE, count)
            self.is_dropped = True
            return False
        if self.drop_oldest:
            while self.size + size > self.bytes_max:
                at = self._first_droppable()
                if at < 0:
                    if self._open is None:
                        break
                    self.close_block()
                    continue
                self._drop_waiting(at, DropReason.OUTBOX_FULL)
            if self.size + size <= self.bytes_max:
                return True
        self.counters.drop(DropReason.OUTBOX_FULL, count)
        self.is_dropped = True
        return False
