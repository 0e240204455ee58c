"""The gRPC server that other nodes' event streams come in on. No rule of the streams is here."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, Final

import grpc.aio

from federation.api.pb import federation_pb2 as pb
from federation.node import Node, NotAMember
from federation.shell.grpc_options import METADATA_NODE_NAME, SERVICE, server_options
from federation.stream.receiver import PeerReceiver, StreamError

STOP_SECONDS_MAX: Final = 0.2

_untyped: Final[Any] = grpc  # its makers of handlers have no annotations


class _Stream:
    """One event stream that is being served. Acknowledgements are cumulative: only the newest is written."""

    def __init__(self, context: Any, receiver: PeerReceiver, number: int) -> None:
        self.context = context
        self.receiver = receiver
        self.number = number
        self.ended: asyncio.Future[StreamError] = asyncio.get_running_loop().create_future()
        self._ack = -1
        self._wake = asyncio.Event()

    def end(self, text: str, malformed: bool = False) -> None:
        if not self.ended.done():
            self.ended.set_result(StreamError(text, malformed))

    def acknowledge(self, event_id: int) -> None:
        self._ack = event_id
        self._wake.set()

    async def write_acks(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.context.write(pb.Ack(event_id=self._ack))


class StreamServer:
    """`changed` is called after each event that may have changed the broker. `bind`, then `start`, then `stop`."""

    def __init__(self, node: Node, bytes_max: int, changed: Callable[[], None], log: Any) -> None:
        self._node = node
        self._changed = changed
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._streams: dict[str, _Stream] = {}
        self._server = grpc.aio.server(options=server_options(bytes_max))
        handlers = {
            "Hello": _untyped.unary_unary_rpc_method_handler(
                self._hello,
                request_deserializer=pb.ClientHello.FromString,
                response_serializer=pb.ServerHello.SerializeToString,
            ),
            "EventStream": _untyped.stream_stream_rpc_method_handler(
                self._event_stream,
                request_deserializer=pb.Event.FromString,
                response_serializer=pb.Ack.SerializeToString,
            ),
            "BatchStream": _untyped.stream_stream_rpc_method_handler(
                self._batch_stream,
                request_deserializer=pb.EventBatch.FromString,
                response_serializer=pb.Ack.SerializeToString,
            ),
        }
        self._server.add_generic_rpc_handlers((_untyped.method_handlers_generic_handler(SERVICE, handlers),))

    def bind(self, host: str, port: int) -> int:
        """Take the port (0: a free one) and return it; OSError with the reason when it cannot be had."""
        target = f"[{host}]:{port}" if ":" in host else f"{host or '[::]'}:{port}"
        if not host and not socket.has_dualstack_ipv6():
            target = f"0.0.0.0:{port}"
        try:
            bound: int = self._server.add_insecure_port(target)
        except RuntimeError as error:
            raise _bind_error(host, port, str(error)) from None
        if bound == 0:
            raise _bind_error(host, port, "it is refused")
        return bound

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        for stream in self._streams.values():
            stream.end("this node is stopping")
        await self._server.stop(STOP_SECONDS_MAX)

    def members_changed(self) -> None:
        """End the streams of nodes that are no members any more."""
        for name, stream in self._streams.items():
            if self._node.receivers.get(name) is not stream.receiver:
                stream.end(f"{name} is not a member any more")

    # --- calls

    async def _hello(self, request: pb.ClientHello, context: Any) -> pb.ServerHello:
        name = await self._node_name(context)
        try:
            clean_start, next_event_id = self._node.hello(name, request.session_id)
        except NotAMember as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        except StreamError as error:
            await context.abort(_status(error), error.text)
        self._log.debug("hello of a node", node=name, clean_start=clean_start, next_event_id=next_event_id)
        return pb.ServerHello(clean_start=clean_start, next_event_id=next_event_id)

    async def _event_stream(self, _requests: Any, context: Any) -> None:
        await self._serve(context, False)

    async def _batch_stream(self, _requests: Any, context: Any) -> None:
        await self._serve(context, True)

    async def _serve(self, context: Any, batched: bool) -> None:
        name = await self._node_name(context)
        try:
            receiver = self._node.receiver(name)
            stream = _Stream(context, receiver, receiver.open_stream(batched, self._loop.time()))
        except NotAMember as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        except StreamError as error:
            await context.abort(_status(error), error.text)
        older = self._streams.get(name)
        if older is not None:
            older.end("replaced by a newer stream of this node")
        self._streams[name] = stream
        self._changed()
        reader = self._loop.create_task(self._read_batches(stream) if batched else self._read_events(stream))
        writer = self._loop.create_task(stream.write_acks())
        try:
            await asyncio.wait((reader, writer, stream.ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            receiver.close_stream(stream.number)
            if self._streams.get(name) is stream:
                del self._streams[name]
            reader.cancel()
            writer.cancel()
            results = await asyncio.gather(reader, writer, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, (grpc.RpcError, grpc.aio.BaseError)):
                # A fault of ours: the event is counted as done, so it does not come again.
                self._log.error("fault in handling an event stream", node=name, exc_info=result)
                await context.abort(grpc.StatusCode.INTERNAL, "internal error")
        if stream.ended.done():
            ended = stream.ended.result()
            self._log.info("ended an event stream", node=name, reason=ended.text)
            await context.abort(_status(ended), ended.text)

    async def _read_batches(self, stream: _Stream) -> None:
        receiver = stream.receiver
        read = stream.context.read
        while True:
            batch = await read()
            if batch is grpc.aio.EOF:
                return
            try:
                ack = receiver.receive_batch(
                    stream.number, batch.first_event_id, batch.event_count, batch.events, self._loop.time()
                )
            except StreamError as error:
                stream.end(error.text, error.malformed)
                return
            finally:
                self._changed()
            stream.acknowledge(ack)

    async def _read_events(self, stream: _Stream) -> None:
        receiver = stream.receiver
        read = stream.context.read
        while True:
            event = await read()
            if event is grpc.aio.EOF:
                return
            try:
                ack = receiver.receive_event(stream.number, event, self._loop.time())
            except StreamError as error:
                stream.end(error.text, error.malformed)
                return
            finally:
                self._changed()
            stream.acknowledge(ack)

    async def _node_name(self, context: Any) -> str:
        for key, value in context.invocation_metadata() or ():
            if key == METADATA_NODE_NAME and value:
                return str(value)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"metadata {METADATA_NODE_NAME} is missing or empty")
        raise AssertionError("abort returned")


def _status(error: StreamError) -> grpc.StatusCode:
    return grpc.StatusCode.INVALID_ARGUMENT if error.malformed else grpc.StatusCode.FAILED_PRECONDITION


def _bind_error(host: str, port: int, text: str) -> OSError:
    """gRPC does not say why a port cannot be had; the system does."""
    try:
        with socket.create_server((host or "0.0.0.0", port)):
            pass
    except OSError as error:
        return OSError(error.errno, os.strerror(error.errno) if error.errno else str(error))
    return OSError(0, text)
