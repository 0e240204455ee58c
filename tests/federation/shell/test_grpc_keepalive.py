"""What gRPC servers of a node do when its client is not reached any more, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio
import pytest

from broker.api.grpc_server import OPTIONS
from federation.shell.grpc_options import client_options, server_options
from waiting import DEADLINE


class Calls(grpc.GenericRpcHandler):
    """Takes all calls. has_begun, has_ended: one has."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.has_ended = asyncio.Event()

    def service(self, handler_call_details: object) -> grpc.RpcMethodHandler[Any, Any]:
        return grpc.stream_stream_rpc_method_handler(self._serve)

    async def _serve(self, requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        try:
            async for request in requests:
                self.has_begun.set()
                yield request
        finally:
            self.has_ended.set()


TIMES = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")


@pytest.mark.slow
@pytest.mark.parametrize("options", [server_options(1 << 20), OPTIONS], ids=["federation", "API"])
async def test_a_server_ends_the_calls_of_a_client_that_is_cut_off(options: Sequence[tuple[str, int]]) -> None:
    """The connection stands, and nothing passes: what comes on it later is not taken, and what waits for it frees memory."""
    calls = Calls()
    server = grpc.aio.server(options=[(name, 1000 if name in TIMES else value) for name, value in options])
    server.add_generic_rpc_handlers((calls,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    passes = asyncio.Event()
    passes.set()
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await passes.wait()
            writer.write(data)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection("127.0.0.1", port)
        writers.extend((writer, to_there))
        tasks.append(asyncio.create_task(pump(reader, to_there)))
        tasks.append(asyncio.create_task(pump(there, writer)))

    relays = await asyncio.start_server(relay, "127.0.0.1", 0)
    address = f"127.0.0.1:{relays.sockets[0].getsockname()[1]}"
    async with grpc.aio.insecure_channel(address, options=client_options(False)) as channel:
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream("/x/y")()
        await call.write(b"1")
        await asyncio.wait_for(calls.has_begun.wait(), DEADLINE)
        passes.clear()
        await asyncio.wait_for(calls.has_ended.wait(), DEADLINE)
        call.cancel()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for writer in writers:
        writer.transport.abort()
    relays.close()
    await relays.wait_closed()
    await server.stop(None)
    await asyncio.sleep(0)  # aborted transports close
