"""The API of one node: the same services over gRPC (`api.grpc`) and over REST (`api.http`).

api = ApiServer(settings.api, pages, log)
api.register(admin_pb2.DESCRIPTOR.services_by_name["ClientService"], ClientService(server))   # before start
await api.start()
...
await api.stop()
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from broker.api.gateway import Gateway
from broker.api.grpc_server import GrpcServer, ServedFiles
from broker.api.guard import ApiGuard
from broker.api.http_server import HttpServer
from broker.api.long_calls import LongCalls
from broker.api.merging import How, merge
from broker.api.method import ApiMethod, CallsByKind, service_methods
from broker.api.pages import PageMaker
from broker.api.siblings import Siblings
from broker.api.site import Site
from broker.config.addresses import Address
from broker.config.settings import ApiSettings
from broker.config.settings_listeners import ApiListener
from broker.server.start_error import StartError
from broker.server.tls_context import LiveContext


class ApiServer:
    """Made inside a running loop. `grpc_addresses` and `http_addresses` are known after start, with real ports.

    siblings  the other workers of this node, for which this one answers, too; set before services are registered
    """

    def __init__(
        self, settings: ApiSettings, pages: Mapping[str, PageMaker], log: Any, guard: ApiGuard | None = None
    ) -> None:
        self.settings = settings
        self.guard = guard or ApiGuard()
        self.long_calls = LongCalls()
        self.calls = CallsByKind()
        self.gateway = Gateway(self.long_calls, log, self.guard.is_on)
        self._log = log
        self._services: dict[str, list[ApiMethod]] = {}
        self.siblings: Siblings | None = None
        self._private: GrpcServer | None = None
        self._http = HttpServer(self.gateway, pages, self.guard, log)
        if settings.dashboard:
            self._http.site = Site(self.guard)
        self._grpc: GrpcServer | None = None

    @property
    def grpc_addresses(self) -> list[str]:
        return [] if self._grpc is None else self._grpc.addresses

    @property
    def http_addresses(self) -> list[str]:
        return self._http.addresses

    @property
    def services(self) -> Collection[str]:
        return self._services.keys()

    def register(self, service: ServiceDescriptor, servicer: object) -> None:
        """Serve a service over both protocols: gRPC from its descriptor, REST from its google.api.http options.

        The servicer has one coroutine function a method, `async def Name(self, request, context)`, which raises ApiError
        or calls `context.abort`; for a stream of answers, which REST serves as Server-Sent Events, it is a generator function.
        Its `roles` say for each method what a token needs, its `for_workers` how worker 0 answers for all (`merging`).
        Raises ValueError for a service or a path that is registered
        already, and for a method without a role.
        """
        assert self._grpc is None
        if service.full_name in self._services:
            raise ValueError(f"{service.full_name} is registered already")
        for_workers: Mapping[str, How] = getattr(servicer, "for_workers", {})
        if unknown := for_workers.keys() - service.methods_by_name.keys():
            raise ValueError(f"{service.full_name} has no {', '.join(unknown)}, as {type(servicer).__name__} says")
        methods = service_methods(service, servicer, self.calls, self._log)
        for method in methods:
            how = for_workers.get(method.descriptor.name)
            if self.siblings is not None and how is not None:
                merge(method, self.siblings, how)
            self.gateway.add(method)
        self._services[service.full_name] = methods

    def refused_input(self) -> dict[str, int]:
        """Totals of what was refused, by reason: for the log."""
        return {
            "api_calls_refused": self.calls.refused,
            "api_calls_unauthorized": self.guard.refused,
            "api_connections_dropped": self._http.connections_dropped,
            "api_requests_dropped": self._grpc.requests_dropped if self._grpc else 0,
            "api_web_pages_refused": self._http.web_pages_refused,
        }

    async def start_private(self, path: str) -> None:
        """Serve worker 0 of this node on a Unix socket that only this user reaches: it has judged the tokens. Raises
        StartError."""
        self._private = GrpcServer(self._services, ApiGuard())
        await self._private.open("workers", ApiListener(Address("unix", "", 0, path)))
        await self._private.start()

    async def start(self) -> None:
        """Open every address; raises StartError that names the first that cannot be opened, and opens none then."""
        try:
            if self.settings.grpc:
                self._grpc = GrpcServer(self._services, self.guard)
                for index, listener in enumerate(self.settings.grpc):
                    await self._grpc.open(f"api.grpc[{index}]", listener)
                await self._grpc.start()
            for index, listener in enumerate(self.settings.http):
                await self._http.open(f"api.http[{index}].address", f"api.http[{index}].tls", listener)
        except BaseException:
            await self.stop()
            raise
        self._log.info("API started", grpc=self.grpc_addresses, http=self.http_addresses)

    def renew_tls(self) -> None:
        """Read the files of TLS again. An address whose files cannot be used keeps what it has, and the fault is logged."""
        contexts: list[LiveContext | ServedFiles] = [*self._http.contexts]
        if self._grpc is not None:
            contexts += self._grpc.contexts
        for context in contexts:
            try:
                context.renew()
            except StartError as error:
                self._log.error("TLS files not read again, the former certificates stay", reason=str(error))

    async def stop(self) -> None:
        """No new calls at once; running ones get STOP_SECONDS_MAX, then they are cancelled. May be called twice."""
        closing = [self._http.close()]
        closing += [server.close() for server in (self._grpc, self._private) if server is not None]
        self._grpc = self._private = None
        await asyncio.gather(*closing)
