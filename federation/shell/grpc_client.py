"""The client of the event stream to one other node: carries out what its sender's state asks for.

One task for each attempt: it connects, says Hello, and waits for the end. Batches leave on a direct stream where the other
node takes one, else over gRPC (where a second task writes). No rule of the streams is here, and no error of gRPC or of
sockets leaves this module: each becomes `connection_lost` or `refused`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import grpc.aio

from federation.api.pb import federation_pb2 as pb
from federation.node import Node
from federation.shell.direct_client import DirectConnection
from federation.shell.grpc_options import METADATA_NODE_NAME, SERVICE, client_options
from federation.shell.outflow import PeerWriter
from federation.stream.batches import Batch
from federation.stream.direct import STATUS_OK
from federation.stream.sender import HELLO_SECONDS_MAX, PeerSender
from federation.stream.state import State

# What will be the same another time: the batch in front is too large or cannot be read.
REFUSALS: Final = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)


DIRECT_RETRY_SECONDS: Final = (
    30.0  # so often a node that is reached by gRPC only is asked whether a direct stream gets through
)


NOT_YET_JOINED: Final = "has not yet joined"
"""End of the refusal by a node that does not know this one as a member yet (wire-federation 2)."""
JOINING_SECONDS: Final = 5.0
"""Time after a member appears in which this refusal is no warning: the gossip of a join takes about a second."""


def _as_it_is(data: bytes) -> bytes:
    return data


class PeerClient:
    """`writer.flush` must be called after each call to the sender from outside; `changed` is called after those made here."""

    def __init__(self, node: Node, sender: PeerSender, changed: Callable[[], None], log: Any) -> None:
        self.sender = sender
        self._node = node
        self._changed = changed
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._metadata = ((METADATA_NODE_NAME, node.name),)
        self._task: asyncio.Task[None] | None = None
        self._attempt = 0
        self._to_write: deque[Batch] = deque()  # bounded by the sender's window
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()  # the one of the attempt, and cancelled ones that still end
        self.writer = PeerWriter(sender, self._queue)
        self._greeted = ""  # address that took our Hello of a direct stream and has not answered it
        self._grpc_addr = ""  # address that is no direct stream: the next attempt, if it is to there, is by gRPC
        self._told = ""  # the last reason that was logged
        self._joining_until = self._loop.time() + JOINING_SECONDS
        self.expects_end = False  # this node leaves: the end of the stream is no fault

    def follow(self) -> None:
        """Do what the sender's state asks: one attempt, or none."""
        sender = self.sender
        if sender.state is State.HELLO and sender.attempt != self._attempt:
            self._cancel()
            self._attempt = sender.attempt
            self._task = self._loop.create_task(self._connect(sender.attempt))
            self._tasks.add(self._task)
            self._task.add_done_callback(self._tasks.discard)
        elif sender.state in (State.STOPPED, State.BACKOFF):
            if self._task is not None and sender.state is State.BACKOFF:
                # The sender gave it up, not the connection.
                self._grpc_addr = self._greeted or self._grpc_addr
                self._tell_lost(sender.reason)
            self._cancel()

    def _queue(self, batches: list[Batch]) -> None:
        self._to_write.extend(batches)
        self._wake.set()

    async def stop(self) -> None:
        self._cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _cancel(self) -> None:
        self._greeted = ""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # --- one attempt

    async def _connect(self, attempt: int) -> None:
        sender = self.sender
        refused = False
        try:
            if sender.direct and sender.addr != self._grpc_addr:
                reason, refused = await self._talk_direct(attempt)
            else:
                self._grpc_addr = ""
                options = client_options(sender.batched)
                async with grpc.aio.insecure_channel(sender.addr, options=options) as channel:
                    reason, refused = await self._talk(channel, attempt)
        except grpc.aio.AioRpcError as error:
            reason = _reason(error.code(), error.details())
            refused = error.code() in REFUSALS
        except OSError as error:
            reason = f"cannot connect: {error.strerror or error}"
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            reason = "the call was cancelled"  # not by us: gRPC ended it
        except Exception as error:
            reason = f"internal error: {error}"
            self._log.error("fault in an event stream", node=sender.name, exc_info=error)
        if attempt != sender.attempt:
            return
        self._task = None  # it ends here: nobody needs to cancel it
        self._tell_lost(reason)
        if refused:
            sender.refused(attempt, reason, self._loop.time())
        else:
            sender.connection_lost(attempt, reason, self._loop.time())
        self._changed()

    async def _talk_direct(self, attempt: int) -> tuple[str, bool]:
        """As _talk, on a direct stream. Raises OSError."""
        sender = self.sender
        loop = self._loop

        def answered(event_id: int) -> None:
            self._node.ack(sender, attempt, event_id, loop.time())
            if sender.attempt == attempt and sender.state is State.STREAMING:
                self.writer.flush()
            elif not connection.ended.done():
                connection.ended.set_result((sender.reason, False))
            broker = self._node.broker
            if broker.reading_changes or broker.dirty or sender.state is not State.STREAMING:
                self._changed()  # not for every acknowledgement: it ends in a look at everything

        connection = DirectConnection(self._node.name, sender.session_id, answered)
        host, _, port = sender.addr.rpartition(":")
        await loop.create_connection(lambda: connection, host.strip("[]"), int(port))
        try:
            self._greeted = sender.addr
            reply = await connection.replied
            self._greeted = ""
            if reply is None:
                self._grpc_addr = sender.addr
                return await connection.ended
            if reply.status != STATUS_OK:
                return reply.text, False
            self._to_write.clear()
            sender.hello_reply(attempt, reply.clean_start, reply.next_event_id, loop.time())
            if attempt != sender.attempt or sender.state is not State.STREAMING:
                self._changed()
                return sender.reason, False
            self._told = ""
            self._log.info(
                "event stream to a node",
                node=sender.name,
                addr=sender.addr,
                kind="direct",
                clean_start=reply.clean_start,
            )
            self.writer.direct = connection
            self.writer.flush()
            self._changed()
            return await connection.ended
        finally:
            if self.writer.direct is connection:
                self.writer.direct = None
            connection.close()

    async def _talk(self, channel: grpc.aio.Channel, attempt: int) -> tuple[str, bool]:
        """Why the stream ended, and whether it would end so again."""
        sender = self.sender
        hello = channel.unary_unary(
            f"/{SERVICE}/Hello",
            request_serializer=pb.ClientHello.SerializeToString,
            response_deserializer=pb.ServerHello.FromString,
        )
        request = pb.ClientHello(session_id=sender.session_id)
        reply: pb.ServerHello = await hello(request, metadata=self._metadata, timeout=HELLO_SECONDS_MAX)
        self._to_write.clear()
        self._wake.clear()
        sender.hello_reply(attempt, reply.clean_start, reply.next_event_id, self._loop.time())
        if attempt != sender.attempt or sender.state is not State.STREAMING:
            self._changed()
            return sender.reason, False
        self._told = ""
        self._log.info(
            "event stream to a node", node=sender.name, addr=sender.addr, kind="gRPC", clean_start=reply.clean_start
        )
        batched = sender.batched
        stream = channel.stream_stream(
            f"/{SERVICE}/BatchStream" if batched else f"/{SERVICE}/EventStream",
            request_serializer=_encode_batch if batched else _as_it_is,
            response_deserializer=pb.Ack.FromString,
        )
        call: Any = stream(metadata=self._metadata)
        helpers = [self._loop.create_task(self._write(call))]
        if sender.direct:
            helpers.append(self._loop.create_task(self._look_for_direct(attempt)))
        self.writer.flush()
        self._changed()
        try:
            while True:
                ack = await call.read()
                if ack is grpc.aio.EOF:
                    break
                self._node.ack(sender, attempt, ack.event_id, self._loop.time())
                if sender.attempt != attempt or sender.state is not State.STREAMING:
                    self._changed()
                    return sender.reason, False
                self.writer.flush()
                self._changed()
            code = await call.code()
            return _reason(code, await call.details()), code in REFUSALS
        finally:
            for helper in helpers:
                helper.cancel()
            call.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)

    async def _write(self, call: Any) -> None:
        """An error here ends the call, which the reader sees."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._to_write:
                    batch = self._to_write.popleft()
                    if batch.single is None:
                        await call.write(batch)
                    else:
                        for event in batch.single:
                            await call.write(event)
        except (grpc.RpcError, asyncio.InvalidStateError):
            call.cancel()
        except Exception as error:
            self._log.error("fault in an event stream", node=self.sender.name, exc_info=error)
            call.cancel()

    async def _look_for_direct(self, attempt: int) -> None:
        """gRPC is the way round: where a direct stream gets through again, the session goes on there."""
        while True:
            await asyncio.sleep(DIRECT_RETRY_SECONDS)
            if await self._direct_is_answered():
                self.sender.connect_anew(attempt, self._loop.time())
                self._changed()
                return

    async def _direct_is_answered(self) -> bool:
        """A Hello without a name: it is refused, but answered, and touches no session."""
        connection = DirectConnection("", "", _ignore)
        host, _, port = self.sender.addr.rpartition(":")
        try:
            async with asyncio.timeout(HELLO_SECONDS_MAX):
                await self._loop.create_connection(lambda: connection, host.strip("[]"), int(port))
                return await connection.replied is not None
        except (OSError, TimeoutError):
            return False
        finally:
            connection.close()

    def _tell_lost(self, reason: str) -> None:
        """Log a reason once, not for each attempt. The refusals of a healthy join are no warning."""
        if reason == self._told or self.expects_end:
            return
        log = self._log.warning
        if reason.endswith(NOT_YET_JOINED) and self._loop.time() < self._joining_until:
            log = self._log.debug
        else:
            self._told = reason
        log("no event stream to a node", node=self.sender.name, addr=self.sender.addr, reason=reason)


def _ignore(_event_id: int) -> None:
    """An acknowledgement of nothing."""


def _encode_batch(batch: Batch) -> bytes:
    message = pb.EventBatch(first_event_id=batch.first_id, event_count=batch.count, events=batch.events)
    return message.SerializeToString()


def _reason(code: Any, details: str | None) -> str:
    name = code.name.lower() if isinstance(code, grpc.StatusCode) else str(code)
    return f"{name}: {details}" if details else name
