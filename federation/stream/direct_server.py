"""The server's end of a direct stream: Hello, batches, acknowledgements, signs of life, and the end.

One object for each connection that begins with the preface. It knows no transport; docs/protocol-extensions.md has the bytes.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.context import STOOD_STILL
from broker.message import NEVER
from federation.stream.direct_wire import (
    ACK_PONG,
    STATUS_INVALID,
    STATUS_NOT_A_MEMBER,
    STATUS_OK,
    DirectError,
    Hello,
    Reply,
    ServerReader,
    encode_ack,
    encode_end,
    encode_reply,
)
from federation.stream.held_batches import StreamError
from federation.stream.receivers import NotAMember, Receivers
from federation.stream.served_stream import HELD_SECONDS, ServedStream
from federation.trust import Caller

ACK_SECONDS: Final = 0.02  # so long an acknowledgement may wait for others
ACK_BATCHES: Final = 16  # or for so many batches: half of what the client sends before it gathers
ACK_BYTES: Final = 8192  # or not at all for so much at once
HELLO_SECONDS_MAX: Final = 5.0
# The client pings after 10 s of quiet, and gives the stream up after 20 s. What comes on it later, when a cut is over, it may
# have given to a node that has adopted the sessions here.
SILENCE_SECONDS_MAX: Final = 15.0


class DirectServer(ServedStream):
    """Doors: receive_data, reading_changed, end, close; data_to_send; next_timeout, handle_timeout.

    refused   why Hello was refused, "" for not at all
    is_distrusted  it was refused because the other end has not proved its name
    """

    def __init__(self, receivers: Receivers, bytes_max: int, now: float, caller: Caller | None = None) -> None:
        super().__init__()
        # What each batch touches comes first (see Connection).
        self._reader = ServerReader(bytes_max)
        self._received_at = now
        self._whole_at = now  # when the newest batch was whole, or the client was told that we live
        self._ack = -1  # the newest one that is due
        self._ack_at = NEVER  # when it is written
        self._ack_batches = 0
        self._is_promised = False  # somebody waits for it
        self._output = b""
        self._hello_until = now + HELLO_SECONDS_MAX
        self._receivers = receivers
        self.refused = ""
        self.is_distrusted = False
        self.name = ""
        self._caller = caller

    def receive_data(self, data: bytes, now: float) -> None:
        """Bytes came. After it, write what the batches brought for receivers here, then data_to_send."""
        if self.is_over:
            return
        if now > self._receivers.still_at:
            self.end(STOOD_STILL, False)
            return
        self._received_at = now
        try:
            if self.receiver is None:
                hello = self._reader.receive_hello(data)
                if hello is None:
                    return
                self._hello(hello, now)
                data = b""
            if self.receiver is not None:
                self._batches(data, now)
        except StreamError as error:
            self.end(error.text, error.malformed)
        except DirectError as fault:  # another name: compiled, a variable has one type
            # Batches that wait for full receivers must come again first: the client gives up the first one that is not done.
            self.end(str(fault), self.wants_reading())

    def _hello(self, hello: Hello, now: float) -> None:
        self.name = hello.node_name
        fault = "" if self._caller is None else self._caller.fault(self.name)
        if fault:
            self.is_distrusted = True
            self._refuse(STATUS_INVALID, fault)
            return
        try:
            clean_start, next_event_id = self._receivers.hello(hello.node_name, hello.session_id, hello.store_id)
        except NotAMember as error:
            self._refuse(STATUS_NOT_A_MEMBER, str(error))
            return
        self._output = encode_reply(Reply(STATUS_OK, clean_start, next_event_id, ""))
        self.begin(self._receivers.get(hello.node_name), now)

    def _refuse(self, status: int, text: str) -> None:
        self.refused = text
        self._output = encode_reply(Reply(status, False, 0, text))
        self.close()

    def _batches(self, data: bytes, now: float) -> None:
        receiver = self.receiver
        assert receiver is not None
        reader = self._reader
        reader.receive(data)
        if not reader.next_batch():
            if reader.fault is not None:
                raise reader.fault
            if now - self._whole_at >= HELD_SECONDS:
                # A large batch takes its time, and a ping behind it is not read before its end.
                self.say_alive(now)
            return
        self._whole_at = now
        size = len(data)
        is_pinged = False
        while True:
            if reader.count == 0:
                is_pinged = True
            else:
                ack = receiver.receive_batch(
                    self,
                    reader.first_id,
                    reader.count,
                    reader.data,
                    now,
                    reader.start,
                    reader.stop,
                    reader.serial,
                    reader.done,
                )
                if ack >= 0:
                    self._ack = ack
                    if reader.is_promised:
                        self._is_promised = True
            if self.is_over or not reader.next_batch():
                break
        if self._ack >= 0:
            # One acknowledgement for several small batches: at 1,000 messages a second one for each woke the other node
            # between every two of them.
            self._ack_batches += 1
            if self._is_promised or size >= ACK_BYTES or self._ack_batches >= ACK_BATCHES:
                self._ack_at = now
            elif self._ack_at == NEVER:
                self._ack_at = now + ACK_SECONDS
        if is_pinged:
            self._output += encode_ack(ACK_PONG)
        if reader.fault is not None:
            raise reader.fault

    def acknowledge(self, event_id: int, now: float) -> None:
        self._ack = event_id
        self._ack_at = now

    def say_alive(self, now: float) -> None:
        assert self.receiver is not None
        self._received_at = self._whole_at = now  # while nothing is read the silence is ours
        self.receiver.note_done()
        done = self.receiver.next_event_id - 1
        if done >= 0:
            self.acknowledge(done, now)
        else:
            self._output += encode_ack(ACK_PONG)

    def reading_changed(self, now: float) -> None:
        self._received_at = now
        super().reading_changed(now)

    def end(self, text: str, malformed: bool = False) -> None:
        """Tell the other node why; before its Hello it is a refusal."""
        if self.is_over:
            return
        if self.receiver is None:
            self._refuse(STATUS_INVALID, text)
            return
        super().end(text, malformed)
        ack = min(self._ack, self.receiver.stored.newest())
        if ack >= 0:
            self._output += encode_ack(ack)
        self._output += encode_end(malformed, text)

    def awaits_store(self) -> bool:
        """Return whether an acknowledgement that somebody waits for is due when the store has its events: ask data_to_send
        after each commit."""
        return self._is_promised and self._ack >= 0

    def data_to_send(self, now: float) -> bytes:
        """Answers that are due, b"" for none."""
        output = self._output
        self._output = b""
        if (now >= self._ack_at or self.awaits_store()) and not self.is_over:
            assert self.receiver is not None
            stored = self.receiver.stored.newest()
            if stored >= self._ack:
                output += encode_ack(self._ack)
                self._ack = -1
                self._ack_at = NEVER
                self._ack_batches = 0
                self._is_promised = False
            elif now < self._ack_at:
                return output
            else:
                output += encode_ack(stored if stored >= 0 else ACK_PONG)
                self._ack_at = now + ACK_SECONDS
        return output

    # --- time ---

    def next_timeout(self) -> float:
        """Return when to call handle_timeout, ask again after every other call; NEVER for not at all."""
        if self.is_over:
            return NEVER
        return min(self._ack_at, self._held_at, self._silent_at())

    def _silent_at(self) -> float:
        if self.receiver is None:
            return self._hello_until
        return self._received_at + SILENCE_SECONDS_MAX

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. After it, data_to_send."""
        if self.is_over:
            return
        self.handle_held(now)
        if now < self._silent_at():
            return
        if self.receiver is None:
            self.end(f"no Hello within {HELLO_SECONDS_MAX:g} s")
        else:
            self.end(f"nothing for {SILENCE_SECONDS_MAX:g} s")
