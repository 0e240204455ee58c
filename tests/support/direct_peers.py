"""Peers of a direct stream: a client and a server that a test scripts, and a proxy that cuts connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from federation.stream.direct_wire import (
    PREFACE,
    Answers,
    ClientReader,
    DirectError,
    Reply,
    ServerReader,
    encode_hello,
)
from stations import BYTES_MAX
from waiting import DEADLINE

HTTP2_SETTINGS: Final = bytes.fromhex("000012040000000000000300000080000400010000000500ffffff")


def read_batches(reader: ServerReader, data: bytes) -> list[tuple[int, int, bytes]]:
    """The batches that a server's reader finds in these bytes: first id, count and events of each."""
    reader.receive(data)
    found: list[tuple[int, int, bytes]] = []
    while reader.next_batch():
        found.append((reader.first_id, reader.count, reader.data[reader.start : reader.stop]))
    return found


class Proxy:
    """A TCP proxy between two nodes.

    mode  for new connections: pass; gRPC, settings or silent pass gRPC only, and other connections are closed, get an
          HTTP/2 SETTINGS frame, or get nothing
    cuts  bytes after which the next connections are cut
    """

    def __init__(self, target: int, mode: str = "pass") -> None:
        self.target = target
        self.mode = mode
        self.cuts: list[int] = []
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.addr = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cut(self) -> None:
        """All connections that are open, with what is on the way in them."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        self._writers.discard(writer)
        writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        start = b""
        if self.mode != "pass":
            start = await reader.readexactly(len(PREFACE))
            if start == PREFACE:
                if self.mode == "settings":
                    writer.write(HTTP2_SETTINGS)
                if self.mode != "gRPC":
                    await reader.read(-1)
                return
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers.add(target_writer)
        target_writer.write(start)
        budget = [self.cuts.pop()] if self.cuts else [1 << 60]
        ways = (
            asyncio.ensure_future(self._pump(reader, target_writer, budget)),
            asyncio.ensure_future(self._pump(target_reader, writer, budget)),
        )
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        self._writers.discard(target_writer)
        target_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: list[int]) -> None:
        """Pass bytes until the end, or until the bytes of `cuts` have passed in both directions together."""
        while budget[0] > 0 and (data := await reader.read(65_536)):
            writer.write(data[: budget[0]])
            budget[0] -= len(data)


class Raw:
    """A connection whose bytes the test writes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.answers = ClientReader()

    @staticmethod
    async def connect(port: int) -> Raw:
        return Raw(*await asyncio.open_connection("127.0.0.1", port))

    async def rest(self) -> bytes:
        """All further bytes until the connection ends."""
        found = b""
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(DEADLINE):
                while data := await self.reader.read(65_536):
                    found += data
        self.writer.transport.abort()
        return found

    async def hello(self, name: str = "peer", session_id: str = "s") -> Reply:
        self.writer.write(encode_hello(name, session_id, "store"))
        return await self.reply()

    async def reply(self) -> Reply:
        async with asyncio.timeout(DEADLINE):
            while True:
                data = await self.reader.read(65_536)
                assert data, "closed without a reply"
                reply = self.answers.receive_reply(data)
                if reply is not None:
                    return reply

    async def until(self, condition: Callable[[Answers], bool]) -> Answers:
        """The first answers for which the condition is true."""
        data = b""
        async with asyncio.timeout(DEADLINE):
            while True:
                found = self.answers.receive_answers(data)
                if condition(found):
                    return found
                data = await self.reader.read(65_536)
                assert data, "closed"

    async def end(self) -> tuple[bool, str]:
        """(malformed, text) of the end of the stream, after which the connection is closed."""
        found = await self.until(lambda answers: answers.end_text is not None)
        assert found.end_text is not None
        assert await self.rest() == b""
        return found.end_malformed, found.end_text


class Script:
    """Accepts direct streams; `serve` is called with the reader of each after its Hello."""

    def __init__(self, serve: Callable[[Raw, ServerReader], Any]) -> None:
        self.serve = serve
        self.hellos: list[str] = []

    async def start(self) -> Script:
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.addr = f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bytes_reader = ServerReader(BYTES_MAX)
        hello = None
        with contextlib.suppress(ConnectionError, DirectError):  # connections of gRPC are refused
            while hello is None:
                hello = bytes_reader.receive_hello(await reader.read(65_536))
            self.hellos.append(hello.session_id)
            await self.serve(Raw(reader, writer), bytes_reader)
        writer.transport.abort()
