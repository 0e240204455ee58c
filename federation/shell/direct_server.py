"""The server's end of a direct stream. No rule of the streams is here: they are the receiver's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from broker.publisher import Publisher
from federation.node import NotAMember
from federation.stream.direct import (
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
from federation.stream.receiver import PeerReceiver
from federation.stream.waiting import StreamError

if TYPE_CHECKING:
    from federation.shell.stream_server import StreamServer

ACK_SECONDS: Final = 0.02  # so long an acknowledgement may wait for others
ACK_BATCHES: Final = 16  # or for so many batches: half of what the client sends before it gathers
ACK_BYTES: Final = 8192  # or not at all for so much at once
HELLO_SECONDS_MAX: Final = 5.0
SILENCE_SECONDS_MAX: Final = 35.0  # the client asks every 10 s whether we live
HELD_SECONDS: Final = 5.0  # while no batch can be taken, or none is whole yet: so often the client is told that we live
CLOSE_SECONDS_MAX: Final = 2.0  # for the client to take why its stream ended
ANSWERS_BYTES_MAX: Final = 65_536  # acknowledgements that the client does not take; more of them abort the stream


class DirectServerProtocol(asyncio.Protocol):
    """One connection that began with the preface of a direct stream."""

    def __init__(self, server: StreamServer) -> None:
        self._server = server
        self._loop = server.loop
        self._time: Callable[[], float] = server.loop.time  # bound once, for every batch
        self._turns = server.turns
        self._is_closing = False
        self._reader = ServerReader(server.bytes_max)
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._name = ""
        self._timer = server.loop.call_later(HELLO_SECONDS_MAX, self._silent)
        self._held_timer: asyncio.TimerHandle | None = None
        self._received_at = server.loop.time()
        self._whole_at = self._received_at  # when the last batch was whole, or the client was told that we live
        self.receiver: PeerReceiver | None = None
        self._ack = -1  # the newest one that is due
        self._ack_batches = 0
        self._ack_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=ANSWERS_BYTES_MAX)

    def pause_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._server.log.info("ended an event stream", node=self._name, reason="it does not read what we answer")
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self._is_closing:
            return
        try:
            self._received_at = self._time()
            if self.receiver is None:
                hello = self._reader.receive_hello(data)
                if hello is None:
                    return
                self._hello(hello)
                data = b""
            if self.receiver is not None:
                self._batches(data, self.receiver, transport)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, StreamError):
            self.end(error.text, error.malformed)
        elif isinstance(error, DirectError):
            # What waits for full receivers must come again first: the client gives up the first one that is not done.
            self.end(str(error), self.receiver is None or not self.receiver.publisher.held)
        else:  # a fault of ours: the event is counted as done, so it does not come again
            self._server.log.error("fault in handling an event stream", node=self._name, exc_info=error)
            self.end("internal error")

    def _hello(self, hello: Hello) -> None:
        server = self._server
        transport = self._transport
        assert transport is not None
        try:
            clean_start, next_event_id = server.node.hello(hello.node_name, hello.session_id)
            receiver = server.node.receiver(hello.node_name)
            self._number = receiver.open_stream(True, server.loop.time())
        except NotAMember as error:
            self._refuse(STATUS_NOT_A_MEMBER, str(error))
            return
        self._name = hello.node_name
        self.receiver = receiver
        receiver.publisher.owner = self
        transport.write(encode_reply(Reply(STATUS_OK, clean_start, next_event_id, "")))
        server.stream_opened(self._name, self)
        self._rearm(SILENCE_SECONDS_MAX)
        if receiver.publisher.held:  # since the stream that this one replaces
            self._hold()

    def _batches(self, data: bytes, receiver: PeerReceiver, transport: asyncio.Transport) -> None:
        reader = self._reader
        now = self._received_at
        reader.receive(data)
        if not reader.next_batch():
            if reader.fault is not None:
                raise reader.fault
            self._say_alive()
            return
        self._whole_at = now
        ack = -1
        pong = False
        try:
            while True:
                if reader.count == 0:
                    pong = True
                else:
                    done = receiver.receive_batch(
                        self._number, reader.first_id, reader.count, reader.data, now, reader.start, reader.stop
                    )
                    ack = max(ack, done)
                if not reader.next_batch():
                    break
        finally:
            self._flush(now)
            if ack >= 0:
                self._acknowledge(ack, len(data))
        if pong:
            transport.write(encode_ack(ACK_PONG))
        if reader.fault is not None:
            raise reader.fault

    def _flush(self, now: float) -> None:
        """What the batches brought for receivers here is written."""
        if self._turns is not None:
            self._turns.flush_now(now)
        else:
            self._server.changed()

    def _say_alive(self) -> None:
        """A large batch takes its time, and a ping behind it is not read before its end: say again what is acknowledged."""
        if self._received_at - self._whole_at >= HELD_SECONDS and self._transport is not None:
            self._whole_at = self._received_at
            self._repeat_ack(self._transport)

    def _repeat_ack(self, transport: asyncio.Transport) -> None:
        assert self.receiver is not None
        done = self.receiver.next_event_id - 1
        transport.write(encode_ack(done if done >= 0 else ACK_PONG))

    def _acknowledge(self, event_id: int, size: int) -> None:
        """Behind what this turn delivers to receivers here, and one for several small batches: at 1,000 messages a second
        an acknowledgement of each woke the other node between every two of them."""
        self._ack = event_id
        self._ack_batches += 1
        if size >= ACK_BYTES or self._ack_batches >= ACK_BATCHES:
            self._loop.call_soon(self._write_ack)
        elif self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACK_SECONDS, self._write_ack)

    def _write_ack(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        if self._ack >= 0 and self._transport is not None:
            self._transport.write(encode_ack(self._ack))
        self._ack = -1
        self._ack_batches = 0

    def set_reading(self, publisher: Publisher) -> None:
        """Receivers here are full, or have room again: stop reading, or go on with what waits."""
        transport = self._transport
        receiver = self.receiver
        if transport is None or receiver is None or transport.is_closing():
            return
        if publisher.held:
            self._hold()
            return
        self._received_at = self._server.loop.time()  # the silence was ours
        transport.resume_reading()
        try:
            ack = receiver.resume(self._received_at)
        except Exception as error:
            self._failed(error)
            return
        if ack >= 0:
            transport.write(encode_ack(ack))
        self._server.changed()

    def _hold(self) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        if self._held_timer is None:
            self._held_timer = self._server.loop.call_later(HELD_SECONDS, self._still_held)

    def _still_held(self) -> None:
        """We cannot answer pings that we do not read, and what waits is not acknowledged: say again what is."""
        self._held_timer = None
        transport = self._transport
        receiver = self.receiver
        if transport is None or receiver is None or transport.is_closing() or not receiver.publisher.held:
            return
        self._received_at = self._server.loop.time()
        self._repeat_ack(transport)
        self._held_timer = self._server.loop.call_later(HELD_SECONDS, self._still_held)

    def _refuse(self, status: int, text: str) -> None:
        assert self._transport is not None
        self._server.refused(text)
        self._transport.write(encode_reply(Reply(status, False, 0, text)))
        self._close()

    def end(self, text: str, malformed: bool = False) -> None:
        """Tell the other node why, and close."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.receiver is None:
            self._refuse(STATUS_INVALID, text)
            return
        self._server.log.info("ended an event stream", node=self._name, reason=text)
        self._write_ack()
        transport.write(encode_end(malformed, text))
        self._close()

    def _close(self) -> None:
        """What is written may still be taken, but not for ever."""
        assert self._transport is not None
        self._is_closing = True
        self._transport.close()
        self._timer.cancel()
        self._timer = self._server.loop.call_later(CLOSE_SECONDS_MAX, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._server.connections.discard(self._transport)
            self._transport = None
        for timer in (self._timer, self._held_timer, self._ack_timer):
            if timer is not None:
                timer.cancel()
        if self.receiver is not None:
            self.receiver.close_stream(self._number)
            if self.receiver.publisher.owner is self:
                self.receiver.publisher.owner = None
            self._server.stream_closed(self._name, self)

    def _rearm(self, seconds: float) -> None:
        self._timer.cancel()
        self._timer = self._server.loop.call_later(seconds, self._silent)

    def _silent(self) -> None:
        """The timer is not moved for each batch: when it fires it looks how long the silence was."""
        quiet = self._server.loop.time() - self._received_at
        if self.receiver is not None and quiet < SILENCE_SECONDS_MAX - 0.001:
            self._rearm(SILENCE_SECONDS_MAX - quiet)
        elif self.receiver is None:
            self.end(f"no Hello within {HELLO_SECONDS_MAX:g} s")
        else:
            self.end(f"nothing for {SILENCE_SECONDS_MAX:g} s")
