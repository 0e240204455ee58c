"""The gRPC server for event streams: Hello, EventStream of plain members, BatchStream. No rule of the streams is here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc.aio

from broker.publisher import Publisher
from federation.api.pb import federation_pb2 as pb
from federation.node import NotAMember
from federation.shell.grpc_options import METADATA_NODE_NAME, SERVICE, server_options
from federation.stream.receiver import PeerReceiver
from federation.stream.waiting import StreamError

if TYPE_CHECKING:
    from federation.shell.stream_server import StreamServer

STOP_SECONDS_MAX: Final = 0.2
HELD_SECONDS: Final = 5.0  # while receivers here are full nothing is read: so often the client is told that we live

_untyped: Final[Any] = grpc  # its makers of handlers have no annotations


class _Stream:
    """One event stream that is being served. Acknowledgements are cumulative: only the newest is written."""

    def __init__(self, context: Any, receiver: PeerReceiver, number: int, batched: bool) -> None:
        self.context = context
        self.receiver: PeerReceiver | None = receiver
        self.number = number
        self.ended: asyncio.Future[StreamError] = asyncio.get_running_loop().create_future()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._ack = -1
        self._wake = asyncio.Event()
        self._repeats = batched  # a gmqttd waits for ever
        self._held_timer: asyncio.TimerHandle | None = None
        if receiver.publisher.held:  # since the stream that this one replaces
            self.set_reading(receiver.publisher)

    def end(self, text: str, malformed: bool = False) -> None:
        if not self.ended.done():
            self.ended.set_result(StreamError(text, malformed))

    def set_reading(self, publisher: Publisher) -> None:
        """Receivers here are full, or have room again: stop reading, or go on with what waits."""
        if publisher.held:
            self.may_read.clear()
            if self._held_timer is None and self._repeats:
                self._held_timer = asyncio.get_running_loop().call_later(HELD_SECONDS, self._still_held)
            return
        self.may_read.set()
        assert self.receiver is not None
        try:
            ack = self.receiver.resume(asyncio.get_running_loop().time())
        except StreamError as error:
            self.end(error.text, error.malformed)
            return
        if ack >= 0:
            self.acknowledge(ack)

    def _still_held(self) -> None:
        """What waits is not acknowledged: say again what is."""
        self._held_timer = None
        if self.receiver is None or not self.receiver.publisher.held:
            return
        done = self.receiver.next_event_id - 1
        if done >= 0:
            self.acknowledge(done)
        self._held_timer = asyncio.get_running_loop().call_later(HELD_SECONDS, self._still_held)

    def close(self) -> None:
        """Nothing more is served."""
        if self._held_timer is not None:
            self._held_timer.cancel()

    def acknowledge(self, event_id: int) -> None:
        self._ack = event_id
        self._wake.set()

    async def write_acks(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.context.write(pb.Ack(event_id=self._ack))


class GrpcStreams:
    """Serves on a unix socket of the stream server, which passes connections of gRPC on to it."""

    def __init__(self, server: StreamServer) -> None:
        self._owner = server
        self._node = server.node
        self._changed = server.changed
        self._log = server.log
        self._loop = server.loop
        self._server = grpc.aio.server(options=server_options(server.bytes_max))
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

    async def start(self, path: str) -> None:
        self._server.add_insecure_port(f"unix:{path}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(STOP_SECONDS_MAX)

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
            stream = _Stream(context, receiver, receiver.open_stream(batched, self._loop.time()), batched)
        except NotAMember as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        except StreamError as error:
            await context.abort(_status(error), error.text)
        receiver.publisher.owner = stream
        self._owner.stream_opened(name, stream)
        reader = self._loop.create_task(
            self._read_batches(stream, receiver) if batched else self._read_events(stream, receiver)
        )
        writer = self._loop.create_task(stream.write_acks())
        try:
            await asyncio.wait((reader, writer, stream.ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stream.close()
            receiver.close_stream(stream.number)
            if receiver.publisher.owner is stream:
                receiver.publisher.owner = None
            self._owner.stream_closed(name, stream)
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

    async def _read_batches(self, stream: _Stream, receiver: PeerReceiver) -> None:
        read = stream.context.read
        while True:
            await stream.may_read.wait()
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
            if ack >= 0:
                stream.acknowledge(ack)

    async def _read_events(self, stream: _Stream, receiver: PeerReceiver) -> None:
        read = stream.context.read
        while True:
            await stream.may_read.wait()
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
