"""The gRPC server between nodes: Hello and EventStream of the Go broker's stream, the shell around
federation/stream/go_server.py, and the services of extensions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import grpc.aio

from broker.message import NEVER
from broker.publisher import Publisher
from federation.extension import Extension
from federation.pb import federation_pb2 as pb
from federation.shell.grpc_callers import GrpcCallers
from federation.shell.grpc_options import METADATA_NODE_NAME, SERVICE, server_options
from federation.shell.stream_host import StreamHost
from federation.stream.go_server import GoServer
from federation.stream.held_batches import StreamError
from federation.stream.receivers import NotAMember
from federation.trust import TAKES_GO_ONLY, Caller

STOP_SECONDS_MAX: Final = 0.2

_untyped: Final[Any] = grpc  # its makers of handlers have no annotations


class _Stream:
    """One event stream that is being served."""

    def __init__(self, host: StreamHost, name: str, context: Any) -> None:
        self.core = GoServer(host.node.receivers)
        self.ended = asyncio.Event()
        self._host = host
        self._name = name
        self._context = context
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._ack = -1
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def set_reading(self, publisher: Publisher) -> None:
        """Receivers here are full, or have room again."""
        self.core.reading_changed(self._host.loop.time())
        self.carry_out()

    def carry_out(self) -> None:
        """Return what the core wants written; its timer, and whether it reads."""
        core = self.core
        ack = core.take_ack()
        if ack >= 0:
            self._ack = ack
            self._wake.set()
        if core.is_over:
            self.ended.set()
        if core.wants_reading():
            self._may_read.set()
        else:
            self._may_read.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if core.next_timeout() != NEVER:
            self._timer = self._host.loop.call_at(core.next_timeout(), self._timer_fired)

    def _timer_fired(self) -> None:
        self.core.handle_timeout(self._host.loop.time())
        self.carry_out()

    def close(self) -> None:
        """Nothing more is served."""
        self.core.close()
        if self._timer is not None:
            self._timer.cancel()

    async def read_events(self) -> None:
        """Until the other node ends the stream."""
        read = self._context.read
        core = self.core
        while True:
            await self._may_read.wait()
            event = await read()
            if event is grpc.aio.EOF:
                return
            try:
                core.receive_event(event, self._host.loop.time())
            finally:
                self._host.changed()
            self.carry_out()

    async def write_acks(self) -> None:
        """Acknowledgements are cumulative: only the newest is written."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._context.write(pb.Ack(event_id=self._ack))


class GoStreams:
    """Serves on a unix socket of the stream server, which passes connections of gRPC on to it."""

    def __init__(self, host: StreamHost, extensions: Sequence[Extension], callers: GrpcCallers) -> None:
        self._host = host
        self._callers = callers
        self._server = grpc.aio.server(options=server_options(host.bytes_max))
        handlers = {
            "Hello": _untyped.unary_unary_rpc_method_handler(
                self._hello,
                request_deserializer=pb.ClientHello.FromString,
                response_serializer=pb.ServerHello.SerializeToString,
            ),
            "EventStream": _untyped.stream_stream_rpc_method_handler(
                self._event_stream, response_serializer=pb.Ack.SerializeToString
            ),
        }
        services: dict[str, Mapping[str, Any]] = {SERVICE: handlers}
        for extension in extensions:
            for name, methods in extension.services().items():
                services[name] = {method: self._trusted(handler) for method, handler in methods.items()}
        for name, methods in services.items():
            self._server.add_generic_rpc_handlers((_untyped.method_handlers_generic_handler(name, methods),))

    async def start(self, path: str) -> None:
        self._server.add_insecure_port(f"unix:{path}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(STOP_SECONDS_MAX)

    # --- who calls

    def _trusted(self, handler: Any) -> Any:
        """A handler of an extension that is called by nodes under their own name alone, where nodes prove their names."""
        if not self._callers.is_proved:
            return handler

        async def serve(request: Any, context: Any) -> Any:
            caller = await self._caller(context)
            name = getattr(request, "node", None)
            reason = TAKES_GO_ONLY if caller.names is None else "" if name is None else caller.fault(name)
            if reason:
                await self._distrust(context, caller, reason)
            return await handler.unary_unary(request, context)

        return handler._replace(unary_unary=serve)

    async def _caller(self, context: Any) -> Caller:
        caller = self._callers.of(context.peer())
        if caller is None:
            await context.abort(grpc.StatusCode.CANCELLED, "the connection has ended")
            raise AssertionError("abort returned")
        return caller

    async def _distrust(self, context: Any, caller: Caller, reason: str) -> None:
        self._host.distrusted_caller(caller, reason)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)

    # --- calls

    async def _hello(self, request: pb.ClientHello, context: Any) -> pb.ServerHello:
        name = await self._node_name(context)
        try:
            clean_start, next_event_id = self._host.node.receivers.hello(name, request.session_id, request.store_id)
        except NotAMember as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        except StreamError as error:
            await context.abort(_status(error.malformed), error.text)
        self._host.carry_out()
        self._host.log.debug("hello of a node", node=name, clean_start=clean_start, next_event_id=next_event_id)
        return pb.ServerHello(clean_start=clean_start, next_event_id=next_event_id)

    async def _event_stream(self, _requests: Any, context: Any) -> None:
        host = self._host
        name = await self._node_name(context)
        stream = _Stream(host, name, context)
        core = stream.core
        try:
            receiver = host.node.receivers.get(name)
            core.begin(receiver, host.loop.time())
        except NotAMember as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        except StreamError as error:
            await context.abort(_status(error.malformed), error.text)
        receiver.publisher.owner = stream
        host.stream_opened(stream)
        stream.carry_out()
        tasks = [
            host.loop.create_task(work) for work in (stream.read_events(), stream.write_acks(), stream.ended.wait())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stream.close()
            if receiver.publisher.owner is stream:
                receiver.publisher.owner = None
            host.stream_closed(stream)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, (grpc.RpcError, grpc.aio.BaseError)):
                # A fault of ours: the event is counted as done, so it does not come again.
                host.log.error("fault in handling an event stream", node=name, exc_info=result)
                await context.abort(grpc.StatusCode.INTERNAL, "internal error")
        if core.end_text:
            host.log.info("ended an event stream", node=name, reason=core.end_text)
            await context.abort(_status(core.end_malformed), core.end_text)

    async def _node_name(self, context: Any) -> str:
        """Return the name of the node that calls."""
        for key, value in context.invocation_metadata() or ():
            if key == METADATA_NODE_NAME and value:
                caller = await self._caller(context)
                reason = caller.fault(str(value))
                if reason:
                    await self._distrust(context, caller, reason)
                return str(value)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"metadata {METADATA_NODE_NAME} is missing or empty")
        raise AssertionError("abort returned")


def _status(malformed: bool) -> grpc.StatusCode:
    return grpc.StatusCode.INVALID_ARGUMENT if malformed else grpc.StatusCode.FAILED_PRECONDITION
