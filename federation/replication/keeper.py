"""A keeper of this node's store, as this node sees it: the connection to it, and how far its copy is.

The keeper goes on where it was when the connection broke, or gets the store anew as a base: when it is new, when this process
is, and when what it lacks is forgotten here.
"""

# compiled with mypyc
from __future__ import annotations

import random
from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from broker.message import NEVER
from federation.replication.base import Base
from federation.replication.wire import (
    ACK,
    BASE_END,
    HELLO,
    PING,
    PREFACE,
    REFUSED,
    SMALL_BYTES_MAX,
    STORED,
    WELCOME,
    FrameReader,
    WireError,
    decode_number,
    decode_welcome,
    encode_frame,
    encode_records,
)
from federation.stream.direct_client import PingTimer
from federation.stream.state import MOVES, State

HELLO_SECONDS_MAX: Final = 5.0
BACKOFF_SECONDS_MIN: Final = 0.1
BACKOFF_SECONDS_MAX: Final = 5.0
WINDOW_BYTES_MAX: Final = 4 * 2**20  # that are not acknowledged; then the base waits, and batches do
BASE_RECORDS: Final = 1_024  # in a frame
BASE_BYTES_MAX: Final = 2**18  # in one call
NO_BATCH: Final = -1
KEEPER_SECONDS: Final = (
    1.0  # acknowledgements to clients wait so long for a keeper; then they do not, until it has caught up
)


class Batch:
    """frames  STORED, and all of the batch
    size     of them, in bytes
    at       when it was begun
    """

    __slots__ = ("at", "frames", "number", "size")

    def __init__(self, number: int, frames: list[bytes], at: float) -> None:
        self.number = number
        self.frames = frames
        self.size = sum([len(frame) for frame in frames])
        self.at = at


@mypyc_attr(allow_interpreted_subclasses=True)
class Batches:
    """The batches of a store, as its keepers need them."""

    def after(self, number: int) -> list[Batch] | None:
        """The batches behind this number, None where some of them are forgotten."""
        raise AssertionError("a subclass implements this")

    def begun_at(self, number: int) -> float:
        """Return when the first batch behind this number was begun: NEVER where there is none, 0.0 where it is forgotten."""
        raise AssertionError("a subclass implements this")

    def base(self) -> Base:
        """All of the store."""
        raise AssertionError("a subclass implements this")

    def hello(self) -> tuple[str, str, int, int, tuple[str, ...]]:
        """(node, store id, starts, version of the list of keepers, their names)."""
        raise AssertionError("a subclass implements this")

    def stored_below(self) -> int:
        """Records with lower numbers are in the store."""
        raise AssertionError("a subclass implements this")

    def keeper_changed(self) -> None:
        """A keeper has acknowledged something, or is not waited for any more."""
        raise AssertionError("a subclass implements this")


@mypyc_attr(allow_interpreted_subclasses=True)
class KeeperOutlet:
    """The shell of one keeper."""

    def flush_at(self, now: float) -> None:
        """Write what the keeper's core wants sent."""
        raise AssertionError("an outlet that writes nothing")


class Keeper:
    """Doors: connect, connected, receive_data, connection_lost, stop; batch_begun; data_to_send; next_timeout, handle_timeout.

    addr       HOST:PORT
    is_tls     of it
    attempt    number of the connection that the shell should have while the state is HELLO or STREAMING
    acked      number of the last batch that its store has
    is_whole   acknowledgements to clients wait for it
    short_since  when they stopped to, or the copy began
    """

    def __init__(self, name: str, batches: Batches, rng: random.Random, now: float) -> None:
        self.name = name
        self.addr = ""
        self.is_tls = False
        self.state = State.STOPPED
        self.attempt = 0
        self.reason = ""
        self.outlet: KeeperOutlet | None = None
        self.acked = 0
        self.is_whole = False
        self.short_since = now
        self.times_short = 0
        self.bases = 0
        self.bytes_sent = 0
        self._batches = batches
        self._rng = rng
        self._reader = FrameReader(SMALL_BYTES_MAX)
        self._pings = PingTimer(now)
        self._output: list[bytes] = []
        self._until = NEVER
        self._tries = 0
        self._has_base = False  # its copy is as this store was at some batch
        self._base: Base | None = None
        self._sent = 0  # number of the last batch that was sent
        self._frames = 0  # that were sent behind HELLO
        self._on_way: deque[tuple[int, int, int]] = deque()  # (frames, bytes, number of a batch, or NO_BATCH)
        self._on_way_bytes = 0

    # --- the connection ---

    def connect(self, addr: str, is_tls: bool, now: float) -> None:
        if addr == self.addr and self.state in (State.HELLO, State.STREAMING):
            return
        self.addr = addr
        self.is_tls = is_tls
        self._tries = 0
        self._say_hello(now)

    def _say_hello(self, now: float) -> None:
        self._move(State.HELLO)
        self.attempt += 1
        self._until = now + HELLO_SECONDS_MAX
        self._reader = FrameReader(SMALL_BYTES_MAX)
        self._on_way.clear()
        self._on_way_bytes = 0
        self._frames = 0
        self._output.clear()

    def _move(self, state: State) -> None:
        assert state in MOVES[self.state], f"{self.state} to {state}"
        self.state = state

    def connected(self, attempt: int, now: float) -> None:
        """The connection is there."""
        if attempt == self.attempt and self.state is State.HELLO:
            self._pings.received(now)
            self._output.append(PREFACE + encode_frame(HELLO, self._batches.hello()))

    def renew(self, now: float) -> None:
        """The content of HELLO has changed."""
        if self.state in (State.HELLO, State.STREAMING):
            self._say_hello(now)

    def stop(self, reason: str, now: float) -> None:
        self.reason = reason
        self._until = NEVER
        self._move(State.STOPPED)
        self.fall_short(now)

    def connection_lost(self, attempt: int, reason: str, now: float) -> None:
        """The connection of this attempt failed or ended."""
        if attempt != self.attempt or self.state not in (State.HELLO, State.STREAMING):
            return
        self.reason = reason
        self._base = None
        self._move(State.BACKOFF)
        ceiling = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * float(1 << min(self._tries, 10)))
        self._tries += 1
        self._until = now + ceiling * (0.5 + self._rng.random() / 2)

    def receive_data(self, attempt: int, data: bytes, now: float) -> None:
        """Bytes came. After it, data_to_send."""
        if attempt != self.attempt or self.state not in (State.HELLO, State.STREAMING):
            return
        self._pings.received(now)
        reader = self._reader
        reader.receive(data)
        try:
            while reader.next_frame():
                kind = reader.kind
                if kind == WELCOME and self.state is State.HELLO:
                    is_known, position = decode_welcome(reader.body)
                    self._welcomed(is_known, position, now)
                elif kind == ACK and self.state is State.STREAMING:
                    self._acknowledged(decode_number(reader.body), now)
                elif kind == REFUSED:
                    self.connection_lost(attempt, str(reader.body)[:200], now)
                    return
        except WireError as error:
            self.connection_lost(attempt, str(error), now)

    def _welcomed(self, is_known: bool, position: int, now: float) -> None:
        self._move(State.STREAMING)
        self._until = NEVER
        self.reason = ""
        if is_known and self._batches.after(position) is not None:
            self._has_base = True
            self._sent = self.acked = position
            self._look_whether_whole(now)  # it may lack nothing, and then has nothing more to acknowledge
        else:
            self._begin_base(now)

    def _begin_base(self, now: float) -> None:
        self._has_base = False
        self.fall_short(now)
        self.bases += 1
        self._base = self._batches.base()
        self._sent = self._base.number

    def _acknowledged(self, frames: int, now: float) -> None:
        self._tries = 0
        on_way = self._on_way
        while on_way and on_way[0][0] <= frames:
            _, size, number = on_way.popleft()
            self._on_way_bytes -= size
            if number >= 0:
                self.acked = number
                self._has_base = True
        self._look_whether_whole(now)

    def _look_whether_whole(self, now: float) -> None:
        if self._has_base and not self.is_whole and self._is_near(now):
            self.is_whole = True
            self.short_since = NEVER
        self._batches.keeper_changed()

    def _is_near(self, now: float) -> bool:
        return self._batches.begun_at(self.acked) > now - KEEPER_SECONDS / 2

    def fall_short(self, now: float) -> None:
        """Acknowledgements to clients do not wait for it."""
        if self.is_whole:
            self.is_whole = False
            self.short_since = now
            self.times_short += 1
            self._batches.keeper_changed()

    # --- what leaves ---

    def batch_begun(self, now: float) -> None:
        """The store writes another batch."""
        if self.state is State.STREAMING and self.outlet is not None:
            self.outlet.flush_at(now)

    def data_to_send(self, now: float) -> bytes:
        """b"" for nothing."""
        if self.state is State.STREAMING:
            self._send_base()
            self._send_batches(now)
        if not self._output:
            return b""
        data = b"".join(self._output)
        self._output.clear()
        self.bytes_sent += len(data)
        return data

    def _send(self, frame: bytes, number: int) -> None:
        """number: of the batch, or the last one of the base, that ends with the frame; NO_BATCH for none."""
        self._output.append(frame)
        self._frames += 1
        self._on_way.append((self._frames, len(frame), number))
        self._on_way_bytes += len(frame)

    def _send_base(self) -> None:
        base = self._base
        sent = 0
        while base is not None and sent < BASE_BYTES_MAX and self._on_way_bytes < WINDOW_BYTES_MAX:
            if base.is_over():
                self._send(encode_frame(STORED, self._batches.stored_below()), NO_BATCH)
                self._send(encode_frame(BASE_END, base.number), base.number)
                self._base = None
                return
            records = base.next_records(BASE_RECORDS)
            for frame in encode_records(records) if records else ():
                sent += len(frame)
                self._send(frame, NO_BATCH)

    def _send_batches(self, now: float) -> None:
        if self._base is not None or self._on_way_bytes >= WINDOW_BYTES_MAX:
            return
        behind = self._batches.after(self._sent)
        if behind is None:  # they were forgotten while it did not take them
            self._begin_base(now)
            self._send_base()
            return
        for batch in behind:
            if self._on_way_bytes >= WINDOW_BYTES_MAX:
                return
            for index, frame in enumerate(batch.frames):
                self._send(frame, batch.number if index == len(batch.frames) - 1 else NO_BATCH)
            self._sent = batch.number

    # --- time ---

    def short_at(self) -> float:
        """Return when acknowledgements wait for it no more."""
        return self._batches.begun_at(self.acked) + KEEPER_SECONDS if self.is_whole else NEVER

    def next_timeout(self) -> float:
        """Return when to call handle_timeout, ask again after every other call; NEVER for not at all."""
        at = min(self._until, self.short_at())
        return min(at, self._pings.next_timeout()) if self.state is State.STREAMING else at

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. After it, data_to_send."""
        if self.is_whole and now >= self.short_at():
            self.fall_short(now)
        if self.state is State.STREAMING:
            if self._pings.is_silent(now):
                self.connection_lost(self.attempt, "no answer to a ping", now)
            elif self._pings.take_ping(now):
                self._output.append(encode_frame(PING, None))
        elif now >= self._until:
            if self.state is State.HELLO:
                self.connection_lost(self.attempt, "no answer to HELLO", now)
            elif self.state is State.BACKOFF:
                self._say_hello(now)
