"""The gRPC side of the API: its addresses, and the bounds of requests that arrive.

The C core bounds connections: it closes one that comes beyond CONNECTIONS_MAX at once, and does not say so. It bounds neither
the time nor the number of calls whose request is not there yet. To bound them here, each method is served as one with a
stream of requests, of which the first is taken: on the wire both are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from broker.api.errors import TOLD, ApiError
from broker.api.gateway import REQUEST_BYTES_MAX
from broker.api.guard import ApiGuard
from broker.api.http_server import STOP_SECONDS_MAX, bound_address
from broker.api.method import ApiMethod
from broker.api.pauses import with_pauses
from broker.config.addresses import Address
from broker.config.settings_listeners import ApiListener, TlsSettings
from broker.server.socket_files import check_socket_path, remove_socket_files, try_socket_path
from broker.server.start_error import StartError, bind_error
from broker.server.tls_context import server_context

CONNECTIONS_MAX: Final = 256  # of one address; 16 KiB each while it is idle
CALLS_OF_CONNECTION: Final = 256  # at once; the client keeps further ones back
OPTIONS: Final = (
    ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
    ("grpc.max_concurrent_streams", CALLS_OF_CONNECTION),
    ("grpc.so_reuseport", 0),  # or a second process would share the port instead of being refused
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
    # The calls of a client that stands still, or is gone without a word, end: others wait for the memory of their answers.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # the one that a server's own pings go by
    ("grpc.http2.max_pings_without_data", 0),
)
REQUESTS_MAX: Final = 256  # calls whose request is arriving; the oldest of them gives way to a new one
REQUEST_SECONDS_MAX: Final = 30.0  # for a request to arrive
CHECK_SECONDS: Final = 15.0  # between two looks at the token of an answer in several parts, at most


class GrpcServer:
    """All `api.grpc` listeners of a node. `addresses` are known after `open`, with real ports."""

    def __init__(self, services: Mapping[str, list[ApiMethod]], guard: ApiGuard) -> None:
        self.addresses: list[str] = []
        self.contexts: list[ServedFiles] = []
        self._guard = guard
        self._socket_paths: list[str] = []
        self.requests_dropped = 0
        self._arriving: dict[asyncio.Timeout, None] = {}  # in the order of their beginning
        self._server = grpc.aio.server(options=OPTIONS)
        for name, methods in services.items():
            handlers = {method.descriptor.name: self._handler(method) for method in methods}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))

    async def open(self, key: str, listener: ApiListener) -> None:
        """Bind one address; raises StartError that names the key below `key`, the address and the fault. Calls come after
        `start`."""
        address = listener.address
        credentials = None
        if listener.tls is not None:
            files = ServedFiles(listener.tls, f"{key}.tls")
            credentials = files.credentials()
            self.contexts.append(files)
        key = f"{key}.address"
        await check_free(key, address)
        try:
            if credentials is None:
                port = self._server.add_insecure_port(target(address))
            else:
                port = self._server.add_secure_port(target(address), credentials)
        except RuntimeError as error:
            raise StartError(f"{key}: cannot open {address}: {error}") from error
        if address.is_unix:
            self._socket_paths.append(address.path)
        self.addresses.append(str(bound_address(address, port)))

    async def start(self) -> None:
        await self._server.start()

    async def close(self) -> None:
        """Take no new calls; those that run have STOP_SECONDS_MAX."""
        await self._server.stop(STOP_SECONDS_MAX)
        remove_socket_files(self._socket_paths)

    def _handler(self, method: ApiMethod) -> grpc.RpcMethodHandler[Any, Any]:
        if method.is_stream:
            return self._stream_handler(method)

        async def serve(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            try:
                caller = self._guard.check(authorizations_of(context), method.role)
                # Decoded here: the answer of grpc.aio to a wrong request is UNKNOWN.
                answer = await method.call(method.read_request(await self._receive(requests)), context, caller)
                return answer.SerializeToString()
            except ApiError as error:
                await context.abort(error.code, error.text, TOLD)

        return grpc.stream_unary_rpc_method_handler(serve)

    def _stream_handler(self, method: ApiMethod) -> grpc.RpcMethodHandler[Any, Any]:
        async def serve(
            requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
        ) -> AsyncIterator[bytes]:
            try:
                authorizations = authorizations_of(context)
                caller = self._guard.check(authorizations, method.role)
                request = method.read_request(await self._receive(requests))
                async with aclosing(
                    with_pauses(method.stream(request, context, caller), lambda: CHECK_SECONDS)
                ) as answers:
                    async for answer in answers:
                        self._guard.check(authorizations, method.role)  # it may have expired, or been deleted
                        if answer is not None:
                            yield answer.SerializeToString()
            except ApiError as error:
                await context.abort(error.code, error.text, TOLD)

        return grpc.stream_stream_rpc_method_handler(serve)

    async def _receive(self, requests: AsyncIterator[bytes]) -> bytes:
        """The request of a call. Raises ApiError when the call ends without one, when it does not come in time, or while
        REQUESTS_MAX newer ones come."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX) as arriving:
                self._arriving[arriving] = None
                try:
                    if len(self._arriving) > REQUESTS_MAX:
                        self._drop_oldest()
                    return await anext(aiter(requests))
                except StopAsyncIteration:  # not an empty request: a client that goes must not cause a leave
                    raise ApiError(grpc.StatusCode.INVALID_ARGUMENT, "the call ended without a request") from None
                finally:
                    self._arriving.pop(arriving, None)
        except TimeoutError:
            raise ApiError(grpc.StatusCode.DEADLINE_EXCEEDED, "the request did not arrive in time") from None

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._arriving))
        del self._arriving[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())
        self.requests_dropped += 1


def authorizations_of(context: grpc.aio.ServicerContext[Any, Any]) -> list[str]:
    return [
        value if isinstance(value, str) else value.decode("latin-1")
        for key, value in context.invocation_metadata() or ()
        if key == "authorization"
    ]


class ServedFiles:
    """The files of TLS of one gRPC address. Connections from now on use those of the last `renew`."""

    def __init__(self, settings: TlsSettings, key: str) -> None:
        """Raises StartError."""
        self._settings = settings
        self._key = key
        self._configuration = self._read()

    def renew(self) -> None:
        """Read the files again. Raises StartError, and keeps what it has."""
        self._configuration = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        # gRPC asks for the configuration at each handshake, in a thread of its own.
        return grpc.dynamic_ssl_server_credentials(
            self._configuration, lambda: self._configuration, self._settings.verify
        )

    def _read(self) -> grpc.ServerCertificateConfiguration:
        settings = self._settings
        server_context(settings, self._key, ())  # names the fault, which gRPC would not
        pair = (Path(settings.key).read_bytes(), Path(settings.cert).read_bytes())
        roots = Path(settings.cacert).read_bytes() if settings.cacert else None
        return grpc.ssl_server_certificate_configuration([pair], roots)


async def check_free(key: str, address: Address) -> None:
    """gRPC does not say why an address cannot be opened: open it once without gRPC, which does."""
    if address.is_unix:
        check_socket_path(key, address)
        try_socket_path(key, address)
        return
    try:
        probe = await asyncio.get_running_loop().create_server(asyncio.Protocol, address.host or None, address.port)
    except OSError as error:
        raise bind_error(error, str(address), key) from error
    probe.close()
    await probe.wait_closed()


def target(address: Address) -> str:
    if address.is_unix:
        return f"unix:{address.path}"
    return address.host_port if address.host else f"[::]:{address.port}"
