"""The keeper's end of the connection that brings another node's store here. One object for each connection."""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from broker.message import NEVER
from broker.store.shapes import count_of
from federation.replication.replica import Replica
from federation.replication.replicas import HomeStream, NoKeeper, Replicas
from federation.replication.wire import (
    ACK,
    BASE,
    BASE_END,
    BATCH,
    BATCHES_BYTES_MAX,
    HELLO,
    PING,
    PONG,
    PREFACE,
    REFUSED,
    STORED,
    WELCOME,
    FrameReader,
    Records,
    WireError,
    decode_batch,
    decode_hello,
    decode_number,
    decode_records,
    encode_frame,
)
from federation.trust import Caller

HELLO_SECONDS_MAX: Final = 5.0
SILENCE_SECONDS_MAX: Final = 35.0  # the other node pings after 10 s of quiet


class KeeperServer(HomeStream):
    """Doors: receive_data, end, close; data_to_send; next_timeout, handle_timeout.

    refused   why HELLO was refused, "" for not at all
    is_distrusted  it was refused because the other end has not proved its name
    """

    def __init__(self, replicas: Replicas, bytes_max: int, now: float, caller: Caller | None = None) -> None:
        self.name = ""
        self.refused = ""
        self.end_text = ""
        self.is_distrusted = False
        self.is_over = False
        self.replica: Replica | None = None
        self._replicas = replicas
        self._reader = FrameReader(bytes_max)
        self._caller = caller
        self._beginning = b""
        self._output: list[bytes] = []
        self._until = now + HELLO_SECONDS_MAX
        self._starts = 0
        self._count = 0  # frames that have come
        self._acked = 0
        self._stored_below = 0  # as STORED says, which an earlier build does not
        self._parts: list[tuple[Records, bytes]] = []  # of a batch whose end has not come
        self._parts_bytes = 0
        self._unstored: deque[tuple[int, int]] = deque()  # (count, batches of the journal that hold it)

    def receive_data(self, data: bytes, now: float) -> None:
        """Bytes came. After it, data_to_send."""
        if self.is_over:
            return
        self._until = now + SILENCE_SECONDS_MAX
        try:
            if self._beginning != PREFACE:
                size = len(PREFACE) - len(self._beginning)
                self._beginning += data[:size]
                data = data[size:]
                if not PREFACE.startswith(self._beginning):
                    raise WireError("the connection does not begin with the preface of a keeper's stream")
            self._reader.receive(data)
            while not self.is_over and self._reader.next_frame():
                self._frame(now)
        except (WireError, TypeError, ValueError, IndexError) as error:
            self.end(str(error))
        self._note_done()

    def _frame(self, now: float) -> None:
        reader = self._reader
        kind = reader.kind
        replica = self.replica
        if kind == PING:
            self._output.append(encode_frame(PONG, None))
        elif replica is None:
            if kind != HELLO:
                raise WireError(f"a frame of kind {kind} before HELLO")
            self._take_hello(now)
        else:
            self._count += 1
            if kind == BATCH:
                number, records, is_last = decode_batch(reader.body)
                self._parts.append((records, reader.packed))
                self._parts_bytes += len(reader.packed)
                if self._parts_bytes > BATCHES_BYTES_MAX:
                    raise WireError(f"a batch of more than {BATCHES_BYTES_MAX} bytes, which no node keeps")
                if is_last:
                    self._apply_parts(replica)
                    replica.reached(number, self._stored_below)
            elif kind == STORED:
                self._stored_below = count_of(reader.body)
            elif kind == BASE:
                replica.apply_base(decode_records(reader.body), reader.packed)
            elif kind == BASE_END:
                replica.end_base(self._starts, decode_number(reader.body), self._stored_below)

    def _apply_parts(self, replica: Replica) -> None:
        """In one commit: a message that one record has lost another one has."""
        for records, packed in self._parts:
            replica.apply(records, packed)
        self._parts.clear()
        self._parts_bytes = 0

    def _take_hello(self, now: float) -> None:
        self.name, store_id, starts, version, names = decode_hello(self._reader.body)
        fault = "" if self._caller is None else self._caller.fault(self.name)
        if fault:
            self.is_distrusted = True
            self._refuse(fault)
            return
        try:
            replica, is_known = self._replicas.hello(self.name, store_id, starts, version, names)
        except NoKeeper as error:
            self._refuse(str(error))
            return
        self._starts = starts
        self.replica = replica
        older = self._replicas.connections.get(store_id)
        self._replicas.connections[store_id] = self
        if older is not None:
            older.end("replaced by a newer stream of this node")
        self._output.append(encode_frame(WELCOME, (is_known, replica.position)))

    def _refuse(self, text: str) -> None:
        self.refused = text
        self._output.append(encode_frame(REFUSED, text))
        self.close()

    def _note_done(self) -> None:
        """All that came is in the store with this batch of the journal."""
        journal = self._replicas.journal
        if journal is None or self.replica is None:
            return
        batch = journal.taken + 1 if journal.changes else journal.taken
        if not self._unstored or self._unstored[-1][0] < self._count:
            self._unstored.append((self._count, batch))

    def awaits_store(self) -> bool:
        """Return whether an acknowledgement waits for the store: ask data_to_send after each batch of it."""
        return bool(self._unstored) and not self.is_over

    def data_to_send(self, now: float) -> bytes:
        """Answers that are due, b"" for none."""
        journal = self._replicas.journal
        acked = self._acked
        while journal is not None and self._unstored and self._unstored[0][1] <= journal.stored:
            acked = self._unstored.popleft()[0]
        if acked > self._acked and not self.is_over:
            self._acked = acked
            self._output.append(encode_frame(ACK, acked))
        if not self._output:
            return b""
        output = b"".join(self._output)
        self._output.clear()
        return output

    def end(self, text: str) -> None:
        """Close the connection, because of this."""
        if self.is_over:
            return
        self.end_text = text
        if self.replica is None:
            self._refuse(text)
        else:
            self.close()

    def close(self) -> None:
        """The connection is gone, or has ended."""
        self.is_over = True
        replica = self.replica
        if replica is not None and self._replicas.connections.get(replica.store_id) is self:
            del self._replicas.connections[replica.store_id]

    def next_timeout(self) -> float:
        """Return when to call handle_timeout, ask again after every other call; NEVER for not at all."""
        return NEVER if self.is_over else self._until

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. After it, data_to_send."""
        if now >= self._until and not self.is_over:
            self.end("it has said nothing for too long")
