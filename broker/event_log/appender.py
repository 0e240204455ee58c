"""Records that wait for the writer, as blocks that are being built. Every logged message passes here.

A full block is closed. The writer takes all blocks that wait and writes them at once, and meanwhile the next ones are built:
the more messages come during a write, the more share the next one (group commit).
"""

# compiled with mypyc
from __future__ import annotations

from enum import Enum
from typing import Final

from broker.event_log.block import Block, BlockBuilder

BLOCK_BYTES: Final = 2**20  # a block of this size is closed


class State(Enum):
    """state      means                                                       leaves to
    IDLE       no record waits, or the end of the turn looks for them      LINGERING, WRITING, CLOSED
    LINGERING  records wait for a timer                                    WRITING (timer, or they are urgent), CLOSED
    WRITING    the thread writes; what comes follows when it is done       IDLE, REFUSING, DROPPING, CLOSED
    REFUSING   the disk takes no records: messages are refused, records
               that wait are kept                                          IDLE (a retry succeeds), CLOSED
    DROPPING   the disk takes no records: they are dropped and counted     IDLE (a retry succeeds), CLOSED
    CLOSED     nothing is written any more
    """

    IDLE = "idle"
    LINGERING = "lingering"
    WRITING = "writing"
    REFUSING = "refusing"
    DROPPING = "dropping"
    CLOSED = "closed"


# Compiled code reads a constant of the module directly. It looks a member of the enum up by name.
IDLE: Final = State.IDLE
LINGERING: Final = State.LINGERING
WRITING: Final = State.WRITING
REFUSING: Final = State.REFUSING
DROPPING: Final = State.DROPPING
CLOSED: Final = State.CLOSED

MOVES: Final[dict[State, tuple[State, ...]]] = {
    IDLE: (LINGERING, WRITING, CLOSED),
    LINGERING: (WRITING, CLOSED),
    WRITING: (IDLE, REFUSING, DROPPING, CLOSED),
    REFUSING: (IDLE, CLOSED),
    DROPPING: (IDLE, CLOSED),
    CLOSED: (),
}


class Appender:
    """bytes      of all blocks that wait
    records    number of records that wait
    time_ns    of the last record: wall time that does not step back
    commit     number of the commit (broker/session/commits.py) that ends when they are on disk; 0 for none
    is_urgent  they are to be written at once: somebody waits for them, or a block is full
    state      of the writing; what is appended while it is DROPPING is counted in `lost`
    """

    def __init__(self, time_ns: int) -> None:
        self.bytes = 0
        self.records = 0
        self.commit = 0
        self.is_urgent = False
        self.state = IDLE
        self.lost = 0
        self.time_ns = time_ns
        self._open = BlockBuilder()
        self._closed: list[Block] = []

    def move(self, state: State) -> None:
        assert state in MOVES[self.state], (self.state, state)
        self.state = state

    def set_time(self, wall_ns: int) -> None:
        """Wall time of the records that come. When it steps back, records get the last time until it has passed again."""
        if wall_ns > self.time_ns:
            self.time_ns = wall_ns
            if not self._open.takes(wall_ns):
                self._close()

    def append(self, topic: bytes, payload: bytes, flags: int, publisher: tuple[str, str, str], extra: bytes) -> None:
        """As BlockBuilder.add."""
        if self.state is DROPPING:
            self.lost += 1
            return
        block = self._open
        size = block.size
        block.add(topic, payload, flags, publisher, extra, self.time_ns)
        self.records += 1
        self.bytes += block.size - size
        if block.size >= BLOCK_BYTES:
            self._close()
            self.is_urgent = True

    def append_run(
        self, topic: bytes, packets: bytes, count: int, payload_size: int, publisher: tuple[str, str, str]
    ) -> None:
        """As BlockBuilder.add_run."""
        if self.state is DROPPING:
            self.lost += count
            return
        block = self._open
        size = block.size
        block.add_run(topic, packets, count, payload_size, publisher, self.time_ns)
        self.records += count
        self.bytes += block.size - size
        if block.size >= BLOCK_BYTES:
            self._close()
            self.is_urgent = True

    def append_block(self, block: Block) -> None:
        """Append records that come as a block of their own."""
        if self.state is DROPPING:
            self.lost += block.records
            return
        if self._open.records:
            self._close()
        block.time_ns = self.time_ns
        self._closed.append(block)
        self.records += block.records
        self.bytes += block.size
        self.is_urgent = True

    def _close(self) -> None:
        self._open.close()
        self._closed.append(self._open)
        self._open = BlockBuilder()

    def take(self) -> list[Block]:
        """All blocks that wait, in order. `commit` and `is_urgent` are reset."""
        if self._open.records:
            self._close()
        taken = self._closed
        self._closed = []
        self.bytes = 0
        self.records = 0
        self.commit = 0
        self.is_urgent = False
        return taken
