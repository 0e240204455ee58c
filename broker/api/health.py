"""grpc.health.v1: whether clients can be sent to this node, for probes that speak gRPC. REST has /readyz."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from typing import Final

from broker.api.errors import not_found
from broker.api.pb.health_pb2 import HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse
from broker.api.pb.health_pb2_grpc import HealthServicer
from broker.api.tokens import Role

WATCH_SECONDS: Final = 1.0  # until a change is seen
NODE: Final = ""  # its name among the services

Status = HealthCheckResponse.ServingStatus


class HealthService(HealthServicer):
    """not_ready  as Host.not_ready
    services   full names of those that the API serves; all have the state of the node
    """

    roles: Final = {"Check": Role.OPEN, "List": Role.OPEN, "Watch": Role.OPEN}

    def __init__(self, not_ready: Callable[[], list[str]], services: Collection[str]) -> None:
        self._not_ready = not_ready
        self._services = services
        self._stopped = asyncio.Event()

    async def Check(self, request: HealthCheckRequest, context: object) -> HealthCheckResponse:
        status = self._status(request.service)
        if status == Status.SERVICE_UNKNOWN:
            raise not_found(f'there is no service "{request.service[:100]}"')
        return HealthCheckResponse(status=status)

    async def List(self, request: HealthListRequest, context: object) -> HealthListResponse:
        names = (NODE, *self._services)
        return HealthListResponse(statuses={name: HealthCheckResponse(status=self._status(name)) for name in names})

    async def Watch(self, request: HealthCheckRequest, context: object) -> AsyncIterator[HealthCheckResponse]:
        told: Status.ValueType | None = None
        while True:
            is_last = self._stopped.is_set()  # before the status: the node may stop while an answer is taken
            status = self._status(request.service)
            if status != told:
                told = status
                yield HealthCheckResponse(status=status)
            if is_last:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._stopped.wait()

    def stop(self) -> None:
        """Tell those that watch the status of a node that stops, and end their calls."""
        self._stopped.set()

    def _status(self, service: str) -> Status.ValueType:
        if service != NODE and service not in self._services:
            return Status.SERVICE_UNKNOWN
        return Status.NOT_SERVING if self._not_ready() else Status.SERVING
