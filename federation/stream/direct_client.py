"""The client's end of a direct stream: Hello, batches, pings, and the silence that ends it.

One object for each connection. It knows no transport; docs/protocol-extensions.md has the bytes.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.message import NEVER
from federation.stream.direct_wire import (
    PING,
    PROMISED,
    STATUS_OK,
    ClientReader,
    DirectError,
    encode_batch_header,
    encode_hello,
)
from federation.stream.sender import HELLO_SECONDS_MAX, PeerSender
from federation.stream.state import State

PING_SECONDS: Final = 10.0  # without a byte from the server, until it is asked whether it lives
PONG_SECONDS_MAX: Final = 10.0  # without a byte from the server, after it was asked


class PingTimer:
    """The times to ask the other end whether it lives, and to give it up. Both count from the last byte received, so
    that a late answer delays the next question and is never taken for silence."""

    def __init__(self, now: float) -> None:
        self._received_at = now
        self._pinged_at = NEVER

    def received(self, now: float) -> None:
        self._received_at = now
        self._pinged_at = NEVER

    def next_timeout(self) -> float:
        """Return when to look again."""
        return self._received_at + PING_SECONDS if self._pinged_at == NEVER else self._silent_at()

    def take_ping(self, now: float) -> bool:
        """Return whether to ask now."""
        if self._pinged_at != NEVER or now < self._received_at + PING_SECONDS:
            return False
        self._pinged_at = now
        return True

    def is_silent(self, now: float) -> bool:
        """Return whether a question was not answered."""
        return self._pinged_at != NEVER and now >= self._silent_at()

    def _silent_at(self) -> float:
        return self._pinged_at + PONG_SECONDS_MAX


class DirectClient:
    """Doors: connected, receive_data, connection_lost; data_to_send; next_timeout, handle_timeout. What happens goes on to the
    sender.

    attempt   of the sender, for which this connection is
    is_over   the shell closes the connection
    """

    def __init__(self, node_name: str, sender: PeerSender, now: float) -> None:
        self.is_over = False
        self._is_streaming = False
        self._sender = sender
        self.attempt = sender.attempt
        self._reader = ClientReader()
        self._pings = PingTimer(now)
        self._output = b""
        self._node_name = node_name

    def connected(self, now: float) -> None:
        """The connection is there."""
        self._pings.received(now)
        self._output = encode_hello(
            self._node_name, self._sender.hello_id(self._sender.session_id), self._sender.store_id
        )
        self._sender.hello_sent(self.attempt)

    def receive_data(self, data: bytes, now: float) -> None:
        """Bytes came. After it, data_to_send; behind an acknowledgement the sender stands in `outlets` for it."""
        sender = self._sender
        if self.is_over or sender.attempt != self.attempt:
            self.is_over = True
            return
        self._pings.received(now)
        try:
            if not self._is_streaming:
                reply = self._reader.receive_reply(data)
                if reply is None:
                    return
                if reply.status != STATUS_OK:
                    self.is_over = True
                    sender.hello_refused(self.attempt, reply.text, now)
                    return
                if not sender.hello_reply(self.attempt, reply.clean_start, reply.next_event_id, now):
                    self.is_over = True
                    return
                self._is_streaming = True
                data = b""
            answers = self._reader.receive_answers(data)
        except DirectError as error:
            self.connection_lost(str(error), now)
            return
        if answers.ack >= 0:
            sender.ack(self.attempt, answers.ack, now)
            sender.want_attention()
        if answers.end_text is not None:
            self.is_over = True
            if answers.end_malformed:
                sender.refused(self.attempt, answers.end_text, now)
            else:
                sender.connection_lost(self.attempt, answers.end_text, now)
        elif sender.state is not State.STREAMING:
            self.is_over = True

    def is_streaming(self) -> bool:
        """Hello was answered: batches pass."""
        return self._is_streaming and not self.is_over

    def connection_lost(self, reason: str, now: float) -> None:
        """The connection failed or ended; "" for a reason that is not known."""
        if self.is_over:
            return
        self.is_over = True
        if not reason:
            reason = "closed by the other node" if self._is_streaming else "closed before it answered Hello"
        self._sender.connection_lost(self.attempt, reason, now)

    def data_to_send(self, now: float) -> bytes:
        """Hello, pings, and the batches that the sender wants sent; b"" for nothing."""
        output = self._output
        if output:
            self._output = b""
        sender = self._sender
        if not self._is_streaming or self.is_over or sender.attempt != self.attempt:
            return output
        pieces = [output]
        for block in sender.take_blocks(now):
            serial = block.serial | PROMISED if block.is_promised else block.serial
            frames = block.encode(now)
            size = 0
            for frame in frames:
                size += len(frame)
            pieces.append(encode_batch_header(block.first_id, block.events, size, serial, block.done))
            pieces.extend(frames)
        if len(pieces) == 1:
            return output
        data = b"".join(pieces)
        sender.counters.bytes_sent += len(data) - len(output)
        return data

    # --- time ---

    def next_timeout(self) -> float:
        """Return when to call handle_timeout, later or sooner after every other call; NEVER for not at all. The sender
        watches over the time of Hello."""
        return self._pings.next_timeout() if self.is_streaming() else NEVER

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. After it, data_to_send."""
        if not self.is_streaming():
            return
        if self._pings.is_silent(now):
            self.connection_lost(f"no answer to a ping for {PONG_SECONDS_MAX:g} s", now)
        elif self._pings.take_ping(now):
            self._output += PING


class DirectProbe:
    """A Hello without a name: it is refused, but answered, and touches no session. So it tells whether direct streams get
    through by now.

    is_over   the shell closes the connection
    """

    def __init__(self, sender: PeerSender, now: float) -> None:
        self.is_over = False
        self._sender = sender
        self._attempt = sender.attempt
        self._reader = ClientReader()
        self._until = now + HELLO_SECONDS_MAX

    def data_to_send(self) -> bytes:
        return encode_hello("", "", "")

    def receive_data(self, data: bytes, now: float) -> None:
        try:
            is_answered = self._reader.receive_reply(data) is not None
        except DirectError:
            self.is_over = True
            return
        if is_answered and not self.is_over:
            self.is_over = True
            self._sender.connect_anew(self._attempt, now)

    def next_timeout(self) -> float:
        """Return when to call handle_timeout."""
        return NEVER if self.is_over else self._until

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early."""
        if now >= self._until:
            self.is_over = True
