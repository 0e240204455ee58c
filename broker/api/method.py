"""One method of a registered service: how its servicer is called, with the same errors over gRPC and REST."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn, Protocol

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from broker.api.errors import ApiError, invalid_argument
from broker.api.tokens import Role
from broker.errors import NotCommitted

CALLS_MAX: Final = 128  # that run at once, over both protocols; more are refused with RESOURCE_EXHAUSTED
STREAMS_MAX: Final = 128  # answers in several messages that run at once; as CALLS_MAX
PLACES_ABOVE: Final = 16  # of both, that callers of a role leave to each role above theirs
INTERNAL_TEXT: Final = "internal error; the node's log says more"


class Answer(Protocol):
    """A servicer gives an Answer: a message, or an object that encodes itself as one where that costs less. REST
    takes messages only."""

    def SerializeToString(self) -> bytes: ...


class CallContext:
    """The `context` of a servicer that REST calls: `abort` as in gRPC."""

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        raise ApiError(code, details)


class Calls:
    """The calls of a node that run now.

    running_max   for callers of the highest role
    places_above  that callers of a role leave to each role above theirs, so that no reader shuts out who administers
    """

    def __init__(self, running_max: int = CALLS_MAX, places_above: int = PLACES_ABOVE) -> None:
        self.running = 0
        self.refused = 0
        self.running_max = running_max
        self.places_above = places_above

    @contextmanager
    def one(self, role: Role) -> Iterator[None]:
        """The place of one call of a caller with this role. Raises ApiError when there is none."""
        if self.running >= self.running_max - self.places_above * (Role.ADMIN - role):
            self.refused += 1
            text = f"{self.running} calls are running already, too many for one more of the role {role.name.lower()}"
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


class ApiMethod:
    """A method's descriptor and its servicer's coroutine function, or asynchronous generator function of a stream.

    calls      of all methods of its kind
    handler    the servicer's function
    role       what a token needs for a call
    is_stream  answers with several messages
    """

    def __init__(self, descriptor: MethodDescriptor, servicer: object, calls: Calls, log: Any) -> None:
        if descriptor.client_streaming:
            raise ValueError(f"{descriptor.full_name} takes a stream: only methods with one request can be served")
        self.descriptor = descriptor
        self.is_stream = descriptor.server_streaming
        self.request_class: type[Message] = GetMessageClass(descriptor.input_type)
        self.response_class: type[Message] = GetMessageClass(descriptor.output_type)
        self.handler: Callable[[Message, object], Any] = getattr(servicer, descriptor.name)
        roles: Mapping[str, Role] = getattr(servicer, "roles", {})
        if descriptor.name not in roles:
            raise ValueError(f"{type(servicer).__name__}.roles does not say who may call {descriptor.name}")
        self.role = roles[descriptor.name]
        self._calls = calls
        self._log = log

    def read_request(self, data: bytes) -> Message:
        """The request of an encoded message. Raises ApiError."""
        try:
            return self.request_class.FromString(data)
        except DecodeError:
            raise invalid_argument(f"the request is not a {self.descriptor.input_type.full_name}") from None

    async def call(self, request: Message, context: object, caller: Role) -> Answer:
        """The servicer's answer to a caller with a role. Raises ApiError only: every other error is logged and becomes
        INTERNAL."""
        with self._counted(caller):
            answer: Answer = await self.handler(request, context)
            return answer

    async def stream(self, request: Message, context: object, caller: Role) -> AsyncIterator[Answer]:
        """The servicer's answers. Raises as `call`."""
        with self._counted(caller):
            async for answer in self.handler(request, context):
                yield answer

    @contextmanager
    def _counted(self, caller: Role) -> Iterator[None]:
        with self._calls.one(caller):
            try:
                yield
            except (ApiError, grpc.aio.AbortError):
                raise
            except NotCommitted as fault:
                raise ApiError(grpc.StatusCode.UNAVAILABLE, str(fault)) from None
            except Exception as error:
                self._log.error("call failed", method=self.descriptor.full_name, exc_info=error)
                raise ApiError(grpc.StatusCode.INTERNAL, INTERNAL_TEXT) from error


class CallsByKind:
    """The calls of a node that run now. Those that need no token are counted apart: strangers and callers with a token take no
    places from each other, so that a node under load still says that it is healthy."""

    def __init__(self) -> None:
        self.unary = Calls()
        self.streams = Calls(STREAMS_MAX)
        self.open_unary = Calls(places_above=0)
        self.open_streams = Calls(STREAMS_MAX, places_above=0)

    def of(self, descriptor: MethodDescriptor, servicer: object) -> Calls:
        """Those of a method."""
        roles: Mapping[str, Role] = getattr(servicer, "roles", {})
        if roles.get(descriptor.name) is Role.OPEN:
            return self.open_streams if descriptor.server_streaming else self.open_unary
        return self.streams if descriptor.server_streaming else self.unary

    @property
    def refused(self) -> int:
        return sum(calls.refused for calls in (self.unary, self.streams, self.open_unary, self.open_streams))


def service_methods(service: ServiceDescriptor, servicer: object, calls: CallsByKind, log: Any) -> list[ApiMethod]:
    return [ApiMethod(each, servicer, calls.of(each, servicer), log) for each in service.methods]
