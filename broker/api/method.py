"""One unary method of a registered service: how to call its servicer from gRPC and from REST, with the same errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from broker.api.errors import ApiError, invalid_argument

INTERNAL_TEXT: Final = "internal error; the node's log says more"


class CallContext:
    """What a servicer gets as `context` when REST calls it: `abort` as in gRPC."""

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        raise ApiError(code, details)


class ApiMethod:
    """A method's descriptor and its servicer's coroutine function."""

    def __init__(self, descriptor: MethodDescriptor, servicer: object, log: Any) -> None:
        if descriptor.client_streaming or descriptor.server_streaming:
            raise ValueError(f"{descriptor.full_name} is a stream: only unary methods can be served over the API")
        self.descriptor = descriptor
        self.request_class: type[Message] = GetMessageClass(descriptor.input_type)
        self.response_class: type[Message] = GetMessageClass(descriptor.output_type)
        self._call: Callable[[Message, object], Awaitable[Message]] = getattr(servicer, descriptor.name)
        self._log = log

    async def call(self, request: Message, context: object) -> Message:
        """The servicer's answer. Raises ApiError only: whatever else goes wrong is logged and becomes INTERNAL."""
        try:
            return await self._call(request, context)
        except (ApiError, grpc.aio.AbortError):
            raise
        except Exception as error:
            self._log.error("call failed", method=self.descriptor.full_name, exc_info=error)
            raise ApiError(grpc.StatusCode.INTERNAL, INTERNAL_TEXT) from error

    async def serve_grpc(self, data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
        """The behaviour that grpc.aio calls. The request is decoded here: what grpc.aio says of a wrong one is UNKNOWN."""
        try:
            try:
                request = self.request_class.FromString(data)
            except DecodeError:
                raise invalid_argument(f"the request is no {self.descriptor.input_type.full_name}") from None
            return await self.call(request, context)
        except ApiError as error:
            await context.abort(error.code, error.text)

    def grpc_handler(self) -> grpc.RpcMethodHandler[Any, Any]:
        return grpc.unary_unary_rpc_method_handler(
            self.serve_grpc,
            response_serializer=self.response_class.SerializeToString,
        )


def service_methods(service: ServiceDescriptor, servicer: object, log: Any) -> list[ApiMethod]:
    """Every method of a service, in the order of its definition."""
    return [ApiMethod(descriptor, servicer, log) for descriptor in service.methods]
