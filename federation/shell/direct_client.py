"""The client's end of a direct stream: one connection to another node. The sender's rules are not here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from broker.server.socket_writer import SocketWriter
from federation.stream.direct import (
    PING,
    STATUS_OK,
    Answers,
    ClientReader,
    DirectError,
    Reply,
    encode_hello,
)

PING_SECONDS: Final = 10.0
SILENCE_SECONDS_MAX: Final = 20.0


class DirectConnection(asyncio.Protocol):
    """`replied` is the answer to Hello, None when there was none, or none of a direct stream: something between speaks
    gRPC only. `ended` is why the connection ended and whether it would end so again. `write` only after the reply."""

    def __init__(self, node_name: str, session_id: str, answered: Callable[[int], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._hello = encode_hello(node_name, session_id)
        self._answered = answered
        self._reader = ClientReader()
        self._transport: asyncio.Transport | None = None
        self._writer: SocketWriter | None = None
        self._received_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.replied: asyncio.Future[Reply | None] = self._loop.create_future()
        self.ended: asyncio.Future[tuple[str, bool]] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writer = SocketWriter(self._transport)
        self._writer.write(self._hello)
        self._timer = self._loop.call_later(PING_SECONDS, self._ping)

    def data_received(self, data: bytes) -> None:
        if self.ended.done() or self.replied.cancelled():
            return
        self._received_at = self._loop.time()
        try:
            if not self.replied.done():
                reply = self._reader.receive_reply(data)
                if reply is None:
                    return
                self.replied.set_result(reply)
                if reply.status != STATUS_OK:
                    self._end(reply.text, False)
                    return
                data = b""
            answers: Answers = self._reader.receive_answers(data)
            if answers.ack >= 0:
                self._answered(answers.ack)
            if answers.end_text is not None:
                self._end(answers.end_text, answers.end_malformed)
        except DirectError as error:
            self._end(str(error), False)
            self.close()
        except Exception as error:  # a fault of ours
            if not self.ended.done():
                self.ended.set_exception(error)
            self.close()

    def write(self, batches: bytes) -> None:
        """The sender's window bounds what can wait in the transport."""
        if self._writer is not None:
            self._writer.write(batches)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._writer = None
        if self._timer is not None:
            self._timer.cancel()
        closed = "closed by the other node" if self.replied.done() else "closed before it answered Hello"
        self._end(str(exc) if exc else closed, False)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            self._writer = None

    def _end(self, reason: str, malformed: bool) -> None:
        if not self.ended.done():
            self.ended.set_result((reason, malformed))
        if not self.replied.done():
            self.replied.set_result(None)

    def _ping(self) -> None:
        quiet = self._loop.time() - self._received_at
        if quiet >= SILENCE_SECONDS_MAX:
            self._end(f"no sign of life for {SILENCE_SECONDS_MAX:g} s", False)
            self.close()
            return
        if self._writer is not None and quiet >= PING_SECONDS - 0.001:
            self._writer.write(PING)
        self._timer = self._loop.call_later(PING_SECONDS, self._ping)
