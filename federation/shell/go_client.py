"""A call of the Go broker's stream to another node: the shell around federation/stream/go_client.py.

No error of gRPC leaves this module: each becomes `connection_lost` with its reason.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import grpc.aio

from federation.pb import federation_pb2 as pb
from federation.shell.dialer import Dialer
from federation.shell.grpc_options import METADATA_NODE_NAME, SERVICE, client_options
from federation.stream.go_client import GoClient
from federation.stream.sender import HELLO_SECONDS_MAX, PeerSender

# What will be the same another time: the event in front is too large or cannot be read.
REFUSALS: Final = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)


class GoCall:
    """`run` is one attempt. `flush` must be called after each call to the sender from outside; `changed` is called after those
    made here."""

    def __init__(
        self, node_name: str, sender: PeerSender, changed: Callable[[], None], log: Any, dialer: Dialer | None = None
    ) -> None:
        self.core = GoClient(sender)
        self._sender = sender
        self._changed = changed
        self._log = log
        self._dialer = dialer
        self._loop = asyncio.get_running_loop()
        self._metadata = ((METADATA_NODE_NAME, node_name),)
        self._to_write: deque[bytes] = deque()  # bounded by the sender's window
        self._wake = asyncio.Event()

    def flush(self, now: float) -> None:
        events = self.core.take_events(now)
        if events:
            self._to_write.extend(events)
            self._wake.set()

    async def run(self) -> None:
        """Connect, say Hello, and carry events and acknowledgements until the end."""
        sender = self._sender
        malformed = False
        try:
            target = sender.addr
            if self._dialer is not None:
                target = await self._dialer.target(sender.name, sender.addr, sender.choice.is_tls)
            async with grpc.aio.insecure_channel(target, options=client_options(sender.extended)) as channel:
                code, details = await self._talk(channel)
            reason = _reason(code, details)
            malformed = code in REFUSALS
        except grpc.aio.AioRpcError as error:
            reason = "" if self._dialer is None else self._dialer.fault(sender.name, error)
            reason = reason or _reason(error.code(), error.details())
            malformed = error.code() in REFUSALS
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            reason = "the call was cancelled"  # not by us: gRPC ended it
        except Exception as error:
            reason = f"internal error: {error}"
            self._log.error("fault in an event stream", node=sender.name, exc_info=error)
        if not self.core.is_over:
            self.core.connection_lost(reason, malformed, self._loop.time())
        self._changed()

    async def _talk(self, channel: grpc.aio.Channel) -> tuple[Any, str | None]:
        """Return how the call ended."""
        core = self.core
        hello = channel.unary_unary(
            f"/{SERVICE}/Hello",
            request_serializer=pb.ClientHello.SerializeToString,
            response_deserializer=pb.ServerHello.FromString,
        )
        request = pb.ClientHello(session_id=self._sender.hello_id(self._sender.session_id))
        if self._sender.extended:
            request.store_id = self._sender.store_id
        reply: pb.ServerHello = await hello(request, metadata=self._metadata, timeout=HELLO_SECONDS_MAX)
        if not core.hello_reply(reply.clean_start, reply.next_event_id, self._loop.time()):
            return None, None
        stream: Any = channel.stream_stream(f"/{SERVICE}/EventStream", response_deserializer=pb.Ack.FromString)
        call = stream(metadata=self._metadata)
        writing = self._loop.create_task(self._write(call))
        self.flush(self._loop.time())
        self._changed()
        try:
            while not core.is_over:
                ack = await call.read()
                if ack is grpc.aio.EOF:
                    return await call.code(), await call.details()
                now = self._loop.time()
                core.receive_ack(ack.event_id, now)
                self.flush(now)
                self._changed()
            return None, None
        finally:
            writing.cancel()
            call.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _write(self, call: Any) -> None:
        """An error here ends the call, which the reader sees."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._to_write:
                    await call.write(self._to_write.popleft())
        except (grpc.RpcError, asyncio.InvalidStateError):
            call.cancel()
        except Exception as error:
            self._log.error("fault in an event stream", node=self._sender.name, exc_info=error)
            call.cancel()


def _reason(code: Any, details: str | None) -> str:
    name = code.name.lower() if isinstance(code, grpc.StatusCode) else str(code)
    return f"{name}: {details}" if details else name
