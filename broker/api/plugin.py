"""The plugin `admin`: clients, subscriptions and publishing over the API."""

from __future__ import annotations

from broker.api.backup import BackupService
from broker.api.clients import ClientService
from broker.api.node import NodeService
from broker.api.pb import admin_pb2
from broker.api.publishing import PublishService
from broker.api.retained import RetainedService
from broker.api.subscriptions import SubscriptionService
from broker.api.token_service import TokenService
from broker.api.topics import TopicService
from broker.api.traces import TraceService
from broker.plugins import Plugin


class AdminPlugin(Plugin):
    """Registers the services with the API of the node. A node without `api` addresses has no API."""

    _parts: tuple[NodeService | ClientService, ...] = ()  # those that see what happens while the node runs
    _traces: TraceService | None = None

    async def prepare(self) -> None:
        api = self.server.api
        if api is None:
            return
        services = admin_pb2.DESCRIPTOR.services_by_name
        node, clients = NodeService(self.server, api.siblings), ClientService(self.server, api.long_calls)
        self._parts = (node, clients)
        self._traces = TraceService(self.server, api.long_calls, api.siblings)
        api.register(services["ClientService"], clients)
        api.register(services["SubscriptionService"], SubscriptionService(self.server, api.long_calls))
        api.register(services["NodeService"], node)
        api.register(services["TraceService"], self._traces)
        api.register(services["PublishService"], PublishService(self.server))
        api.register(services["BackupService"], BackupService(self.server, api.siblings))
        api.register(services["TokenService"], TokenService(api.guard))
        api.register(services["RetainedService"], RetainedService(self.server, api.long_calls))
        api.register(services["TopicService"], TopicService(self.server, api.long_calls))

    async def start(self) -> None:
        for part in self._parts:
            part.start()

    async def stop(self) -> None:
        for part in self._parts:
            part.stop()
        if self._traces is not None:
            self._traces.stop()
