"""Calls of the API of one node of a federation, for commands: over gRPC, to the first of `servers` that answers."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from broker.api.transcoding import write_response
from gmqttctl.channel import away_reason, open_channel
from gmqttctl.connection import Connection
from gmqttctl.errors import CommandError, NoAnswer, NotAllowed, NotFound, NotServed, OptionError, Refused
from gmqttctl.service import Service

ANSWER_SECONDS: Final = 30.0


class NodeCalls:
    """A context manager."""

    def __init__(self, connection: Connection) -> None:
        self._servers = connection.servers
        self._server = 0  # index of the one that is asked
        self._connection = connection
        self._metadata = connection.metadata
        self._channel = open_channel(self._servers[0], connection)

    def __enter__(self) -> NodeCalls:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    @property
    def address(self) -> str:
        """Of the server that is asked."""
        return self._servers[self._server]

    def call(self, service: Service, method: str, request: Message | Mapping[str, Any] | None = None) -> Any:
        """The answer. Raises Refused, and NodeError when no server answers or the answer is a fault."""
        descriptor = _method(service, method)
        made = _request(descriptor, request)
        while True:
            call = self._channel.unary_unary(
                _path(descriptor), _encoded, GetMessageClass(descriptor.output_type).FromString
            )
            try:
                return call(made, timeout=ANSWER_SECONDS, metadata=self._metadata)
            except grpc.RpcError as error:
                if self._goes_on(error):
                    continue
                raise self._fault(error, service) from None

    def stream(
        self, service: Service, method: str, request: Message | Mapping[str, Any] | None = None
    ) -> Iterator[Any]:
        """The answers of a method that has several. Raises as `call`."""
        descriptor = _method(service, method)
        made = _request(descriptor, request)
        while True:
            call = self._channel.unary_stream(
                _path(descriptor), _encoded, GetMessageClass(descriptor.output_type).FromString
            )
            answers = call(made, metadata=self._metadata)
            has_begun = False
            try:
                for answer in answers:
                    has_begun = True
                    yield answer
                return
            except grpc.RpcError as error:
                if not has_begun and self._goes_on(error):
                    continue
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

    def _goes_on(self, error: Any) -> bool:
        """The server does not answer, and there is a next one."""
        if error.code() is not grpc.StatusCode.UNAVAILABLE or self._server + 1 >= len(self._servers):
            return False
        self._server += 1
        self._channel.close()
        self._channel = open_channel(self._servers[self._server], self._connection)
        return True

    def _fault(self, error: Any, service: Service) -> CommandError:
        code, text = error.code(), error.details() or ""
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return NotServed(self.address, f"it does not serve this; turn its plugin {service.plugin} on")
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return NoAnswer(self.address, f"no answer: {away_reason(text)}; --server names the gRPC API of a node")
        if code is grpc.StatusCode.UNAUTHENTICATED and not self._metadata:
            return NotAllowed("the node asks for a token: --token-file, --token or GMQTTCTL_TOKEN, or one of a context")
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return NotAllowed(f"{text}; --token-file, --token or a context gives another one")
        return (NotFound if code is grpc.StatusCode.NOT_FOUND else Refused)(text)


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
