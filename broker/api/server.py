"""The API of one node: the same services over gRPC (`api.grpc`) and over REST (`api.http`).

api = ApiServer(settings.api, log)
api.register(admin_pb2.DESCRIPTOR.services_by_name["ClientService"], ClientService(server))   # before start
await api.start()
...
await api.stop()
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import stat
from typing import Any, Final

import grpc
import grpc.aio
from aiohttp import web
from google.protobuf.descriptor import ServiceDescriptor

from broker import __version__
from broker.api.docs_page import OPENAPI_PATH, add_docs_routes
from broker.api.gateway import CALLS_MAX, REQUEST_BYTES_MAX, Gateway, json_response
from broker.api.method import ApiMethod, service_methods
from broker.api.openapi import OpenApi
from broker.config.addresses import Address
from broker.config.settings import ApiListener, ApiSettings
from broker.server.start_error import StartError, bind_error

STOP_SECONDS_MAX: Final = 0.5  # for calls that are running; a node's whole stop has 5 s
GRPC_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # or a second process would share the port instead of being refused
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
)


class BadRequests(logging.Handler):
    """What aiohttp says of bytes that are no HTTP. Any stranger can cause it: one line at debug, no traceback.

    Faults of our own never come here, the gateway logs them.
    """

    def __init__(self, log: Any) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._log.debug("bad HTTP request", text=record.getMessage(), error=repr(error))


class ApiServer:
    """Made inside a running loop. `grpc_addresses` and `http_addresses` are known after start, with real ports."""

    def __init__(self, settings: ApiSettings, log: Any) -> None:
        self.settings = settings
        self.gateway = Gateway(log)
        self.grpc_addresses: list[str] = []
        self.http_addresses: list[str] = []
        self._log = log
        self._services: dict[str, list[ApiMethod]] = {}
        self._grpc_server: grpc.aio.Server | None = None
        self._http_runner: web.AppRunner | None = None
        self._socket_paths: list[str] = []
        self._openapi_text = ""

    def register(self, service: ServiceDescriptor, servicer: object) -> None:
        """Serve a service over both protocols: gRPC from its descriptor, REST from its google.api.http options.

        The servicer has one coroutine function a method, `async def Name(self, request, context)`, which raises ApiError
        or calls `context.abort`. Raises ValueError for a service or a path that is registered already.
        """
        assert self._grpc_server is None
        assert self._http_runner is None
        if service.full_name in self._services:
            raise ValueError(f"{service.full_name} is registered already")
        methods = service_methods(service, servicer, self._log)
        for method in methods:
            self.gateway.add(method)
        self._services[service.full_name] = methods

    async def start(self) -> None:
        """Open every address; raises StartError that names the first that cannot be opened, and opens none then."""
        self.grpc_addresses.clear()
        self.http_addresses.clear()
        try:
            await self._start_grpc(self._served("grpc", self.settings.grpc))
            await self._start_http(self._served("http", self.settings.http))
        except BaseException:
            await self.stop()
            raise
        self._log.info("API started", grpc=self.grpc_addresses, http=self.http_addresses)

    async def stop(self) -> None:
        """No new calls at once; running ones get STOP_SECONDS_MAX, then they are cancelled. May be called twice."""
        grpc_server, self._grpc_server = self._grpc_server, None
        http_runner, self._http_runner = self._http_runner, None
        if grpc_server is not None and http_runner is not None:
            await asyncio.gather(grpc_server.stop(STOP_SECONDS_MAX), http_runner.cleanup())
        elif grpc_server is not None:
            await grpc_server.stop(STOP_SECONDS_MAX)
        elif http_runner is not None:
            await http_runner.cleanup()
        for path in self._socket_paths:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._socket_paths.clear()

    def _served(self, kind: str, listeners: tuple[ApiListener, ...]) -> list[tuple[str, Address]]:
        """(configuration key, address) of each listener that is opened."""
        served: list[tuple[str, Address]] = []
        for index, listener in enumerate(listeners):
            key = f"api.{kind}[{index}].address"
            if listener.is_served:
                served.append((key, listener.address))
            else:
                self._log.warning("listener not opened: TLS is not there yet", key=key, address=str(listener.address))
        return served

    async def _start_grpc(self, listeners: list[tuple[str, Address]]) -> None:
        if not listeners:
            return
        server = grpc.aio.server(options=GRPC_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        for name, methods in self._services.items():
            handlers = {method.descriptor.name: method.grpc_handler() for method in methods}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        self._grpc_server = server
        for key, address in listeners:
            await self._check_free(key, address)
            try:
                port = server.add_insecure_port(grpc_target(address))
            except RuntimeError as error:
                raise StartError(f"{key}: cannot open {address}: {error}") from error
            if address.is_unix:
                self._socket_paths.append(address.path)
            self.grpc_addresses.append(str(bound_address(address, port)))
        await server.start()

    async def _start_http(self, listeners: list[tuple[str, Address]]) -> None:
        if not listeners:
            return
        app = web.Application(client_max_size=REQUEST_BYTES_MAX)
        add_docs_routes(app)
        app.router.add_get(OPENAPI_PATH, self._show_openapi)
        app.router.add_route("*", "/{path:(?s:.*)}", self.gateway.handle)
        http_log = logging.Logger("http")  # of its own: it has no parent that would print
        http_log.addHandler(BadRequests(self._log))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS_MAX, logger=http_log)
        self._http_runner = runner
        await runner.setup()
        for key, address in listeners:
            site: web.BaseSite
            opened = len(runner.addresses)  # an empty host opens two: for IPv4 and for IPv6
            if address.is_unix:
                check_socket_path(key, address)
                site = web.UnixSite(runner, address.path)
            else:
                site = web.TCPSite(runner, address.host or None, address.port)
            try:
                await site.start()
            except OSError as error:
                raise bind_error(error, str(address), key) from error
            if address.is_unix:
                self._socket_paths.append(address.path)
            port = runner.addresses[opened][1] if not address.is_unix else 0
            self.http_addresses.append(str(bound_address(address, port)))

    async def _check_free(self, key: str, address: Address) -> None:
        """gRPC does not say why an address cannot be opened: open it once ourselves, which does."""
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

    async def _show_openapi(self, _request: web.Request) -> web.Response:
        if not self._openapi_text:
            self._openapi_text = json.dumps(OpenApi(__version__).document(self.gateway.routes))
        return json_response(self._openapi_text)


def grpc_target(address: Address) -> str:
    if address.is_unix:
        return f"unix:{address.path}"
    return address.host_port if address.host else f"[::]:{address.port}"


def bound_address(address: Address, port: int) -> Address:
    return address if address.is_unix else Address("tcp", address.host, port)


def check_socket_path(key: str, address: Address) -> None:
    """Raises StartError when another process listens there or something else has the name; removes a dead socket."""
    try:
        mode = os.stat(address.path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise bind_error(error, str(address), key) from error
    if not stat.S_ISSOCK(mode):
        raise StartError(f"{key}: {address} is there already and is no socket; remove it or give another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            os.unlink(address.path)
            return
        except OSError as error:
            raise bind_error(error, str(address), key) from error
    raise StartError(f"{key}: {address} is in use by another process; stop it or give another path")


def try_socket_path(key: str, address: Address) -> None:
    """Raises StartError when no socket can be made there: no such folder, no permission, a path too long."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(address.path)
        os.unlink(address.path)
    except OSError as error:
        raise bind_error(error, str(address), key) from error
