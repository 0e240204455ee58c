"""The server's end of a direct stream. No rule of the streams is here: they are the receiver's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from broker.session.publisher import Publisher
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
from federation.stream.receiver import PeerReceiver, StreamError

if TYPE_CHECKING:
    from federation.shell.stream_server import StreamServer

HELLO_SECONDS_MAX: Final = 5.0
SILENCE_SECONDS_MAX: Final = 35.0  # the client asks every 10 s whether we live


class DirectServerProtocol(asyncio.Protocol):
    """One connection that began with the preface of a direct stream."""

    def __init__(self, server: StreamServer) -> None:
        self._server = server
        self._reader = ServerReader(server.bytes_max)
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._name = ""
        self._timer = server.loop.call_later(HELLO_SECONDS_MAX, self._silent)
        self._received_at = server.loop.time()
        self.receiver: PeerReceiver | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received_at = self._server.loop.time()
        try:
            if self.receiver is None:
                hello = self._reader.receive_hello(data)
                if hello is None:
                    return
                self._hello(hello)
                data = b""
            if self.receiver is not None:
                self._batches(data)
        except (DirectError, StreamError) as error:
            malformed = error.malformed if isinstance(error, StreamError) else True
            self.end(str(error), malformed)
        except Exception as error:  # a fault of ours: the event is counted as done, so it does not come again
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
            transport.write(encode_reply(Reply(STATUS_NOT_A_MEMBER, False, 0, str(error))))
            transport.close()
            return
        except StreamError as error:
            transport.write(encode_reply(Reply(STATUS_INVALID, False, 0, error.text)))
            transport.close()
            return
        self._name = hello.node_name
        self.receiver = receiver
        receiver.publisher.owner = self
        transport.write(encode_reply(Reply(STATUS_OK, clean_start, next_event_id, "")))
        server.stream_opened(self._name, self)
        self._rearm(SILENCE_SECONDS_MAX)

    def _batches(self, data: bytes) -> None:
        server = self._server
        receiver = self.receiver
        transport = self._transport
        assert receiver is not None
        if transport is None:
            return
        ack = -1
        pong = False
        try:
            for batch in self._reader.receive_batches(data):
                if batch.count == 0:
                    pong = True
                else:
                    done = receiver.receive_batch(
                        self._number, batch.first_id, batch.count, batch.events, server.loop.time()
                    )
                    ack = max(ack, done)
        finally:
            if ack >= 0:
                transport.write(encode_ack(ack))
            server.changed()
        if pong:
            transport.write(encode_ack(ACK_PONG))

    def set_reading(self, publisher: Publisher) -> None:
        """Receivers here are full, or have room again: stop reading, or go on with what waits."""
        transport = self._transport
        receiver = self.receiver
        if transport is None or receiver is None or transport.is_closing():
            return
        if publisher.held:
            transport.pause_reading()
            return
        transport.resume_reading()
        try:
            ack = receiver.resume(self._server.loop.time())
        except StreamError as error:
            self.end(error.text, error.malformed)
            return
        if ack >= 0:
            transport.write(encode_ack(ack))
        self._server.changed()

    def end(self, text: str, malformed: bool = False) -> None:
        """Tell the other node why, and close."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.receiver is not None:
            self._server.log.info("ended an event stream", node=self._name, reason=text)
            transport.write(encode_end(malformed, text))
        else:
            self._server.refused(text)
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._server.connections.discard(self._transport)
            self._transport = None
        self._timer.cancel()
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
