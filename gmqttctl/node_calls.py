"""Calls of the API of one node of a federation, for commands: over gRPC, to the first of `servers` that takes a connection.
All calls go to that one: a node that did not answer may have carried a call out.
"""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from broker.api.errors import is_told
from broker.api.transcoding import write_response
from gmqttctl.channel import away_reason, open_channel
from gmqttctl.connection import Connection
from gmqttctl.errors import CommandError, NoAnswer, NotAllowed, NotFound, NotNow, NotServed, OptionError, Refused
from gmqttctl.service import Service

ANSWER_SECONDS: Final = 30.0
AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
CONNECT_SECONDS: Final = 5.0  # then the next server is tried


class NodeCalls:
    """A context manager. `address` is that of the server that is asked."""

    def __init__(self, connection: Connection) -> None:
        self._metadata = connection.metadata
        self.address, self._channel = _first_connected(connection)

    def __enter__(self) -> NodeCalls:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def call(self, service: Service, method: str, request: Message | Mapping[str, Any] | None = None) -> Any:
        """The answer. Raises Refused, and NodeError when no server answers or the answer is a fault."""
        descriptor = _method(service, method)
        made = _request(descriptor, request)
        call = self._channel.unary_unary(
            _path(descriptor), _encoded, GetMessageClass(descriptor.output_type).FromString
        )
        try:
            return call(made, timeout=ANSWER_SECONDS, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._fault(error, service) from None

    def stream(
        self, service: Service, method: str, request: Message | Mapping[str, Any] | None = None
    ) -> Iterator[Any]:
        """The answers of a method that has several. Raises as `call`."""
        descriptor = _method(service, method)
        made = _request(descriptor, request)
        call = self._channel.unary_stream(
            _path(descriptor), _encoded, GetMessageClass(descriptor.output_type).FromString
        )
        answers = call(made, metadata=self._metadata)
        try:
            yield from answers
        except grpc.RpcError as error:
            raise self._fault(error, service) from None
        finally:
            answers.cancel()

    def values(
        self, service: Service, method: str, request: Message | Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The answer as REST gives it. Raises as `call`."""
        steps = write_response(self.call(service, method, request))
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: dict[str, Any] = json.loads(end.value)
                return found

    def _fault(self, error: Any, service: Service) -> CommandError:
        code, text = error.code(), error.details() or ""
        if code is grpc.StatusCode.UNIMPLEMENTED:
            text = f"it does not serve this; turn its plugin {service.plugin} on, unless the node is older than this gmqttctl"
            return NotServed(self.address, text)
        if code in AWAY:
            if is_told(error.trailing_metadata()):
                return NotNow(self.address, f"not now: {text}")
            return NoAnswer(self.address, f"no answer: {away_reason(text)}; --server names the gRPC API of a node")
        if code is grpc.StatusCode.UNAUTHENTICATED and not self._metadata:
            return NotAllowed("the node asks for a token: --token-file, --token or GMQTTCTL_TOKEN, or one of a context")
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return NotAllowed(f"{text}; --token-file, --token or a context gives another one")
        return (NotFound if code is grpc.StatusCode.NOT_FOUND else Refused)(text)


def ask_until_known(
    connection: Connection,
    service: Service,
    method: str,
    request: Mapping[str, Any],
    is_known: Callable[[dict[str, Any]], bool],
) -> tuple[dict[str, Any], str]:
    """The answer of the first server, or of the next one that knows the thing; what is to be told of that, "" for nothing.
    Raises as `NodeCalls.call`, of the first server."""
    values: dict[str, Any] | None = None
    fault: NotFound | None = None
    with NodeCalls(connection) as calls:
        first = calls.address
        try:
            values = calls.values(service, method, request)
        except NotFound as error:
            fault = error
    if values is not None and is_known(values):
        return values, ""
    asked = [first]
    for server in connection.servers:
        if server == first:
            continue
        asked.append(server)
        with NodeCalls(replace(connection, servers=(server,))) as calls, suppress(CommandError):
            answer = calls.values(service, method, request)
            if is_known(answer):
                return answer, f"{server} knows it, {first} does not"
    told = f"asked: {', '.join(asked)}; --server or a context may name more nodes"
    if values is None:
        raise NotFound(f"{fault} ({told})")
    return values, told


def _first_connected(connection: Connection) -> tuple[str, grpc.Channel]:
    """The address and the channel. The last server is not tried: a call to it tells what is wrong."""
    *others, last = connection.servers
    for server in others:
        channel = open_channel(server, connection)
        if _connects(channel):
            return server, channel
        channel.close()
    return last, open_channel(last, connection)


def _connects(channel: grpc.Channel) -> bool:
    told = threading.Event()
    last = grpc.ChannelConnectivity.IDLE

    def tell(state: grpc.ChannelConnectivity) -> None:
        nonlocal last
        last = state
        if state in (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE):
            told.set()

    channel.subscribe(tell, try_to_connect=True)
    try:
        told.wait(CONNECT_SECONDS)
        return last is grpc.ChannelConnectivity.READY
    finally:
        channel.unsubscribe(tell)


def _method(service: Service, method: str) -> MethodDescriptor:
    module, _, name = service.place.partition(":")
    found: MethodDescriptor = importlib.import_module(module).DESCRIPTOR.services_by_name[name].methods_by_name[method]
    return found


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _request(method: MethodDescriptor, request: Message | Mapping[str, Any] | None) -> Message:
    if isinstance(request, Message):
        return request
    made = GetMessageClass(method.input_type)()
    for name, value in (request or {}).items():
        try:
            json_format.ParseDict({name: value}, made)
        except (json_format.ParseError, ValueError) as error:
            raise OptionError(name, value, f"does not fit: {error}") from None
    return made


def _encoded(request: Message) -> bytes:
    return request.SerializeToString()
