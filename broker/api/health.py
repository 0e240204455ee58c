"""grpc.health.v1: whether clients can be sent to this node, for probes that speak gRPC. REST has /readyz."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from broker.api.errors import not_found
from broker.api.pb.health_pb2 import HealthCheckRequest, HealthCheckResponse
from broker.api.pb.health_pb2_grpc import HealthServicer
from broker.api.tokens import Role


class HealthService(HealthServicer):
    """not_ready  as Host.not_ready
    services   full names of those that the API serves; all have the state of the node
    """

    roles: Final = {"Check": Role.OPEN}

    def __init__(self, not_ready: Callable[[], list[str]], services: Collection[str]) -> None:
        self._not_ready = not_ready
        self._services = services

    async def Check(self, request: HealthCheckRequest, context: object) -> HealthCheckResponse:
        if request.service and request.service not in self._services:
            raise not_found(f'there is no service "{request.service[:100]}"')
        if self._not_ready():
            return HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING)
        return HealthCheckResponse(status=HealthCheckResponse.SERVING)
