"""The plugin `admin`: clients, subscriptions and publishing over the API."""

from __future__ import annotations

from broker.api.backup import BackupService
from broker.api.clients import ClientService
from broker.api.node import NodeService
from broker.api.pb import admin_pb2
from broker.api.publishing import PublishService
from broker.api.retained import RetainedService
from broker.api.subscriptions import SubscriptionService
from broker.api.topics import TopicService
from broker.api.traces import TraceService
from broker.plugins import Plugin


class AdminPlugin(Plugin):
    """Registers the services with the API of the node. A node without `api` addresses has no API."""

    _node: NodeService | None = None

    async def prepare(self) -> None:
        api = self.server.api
        if api is None:
            return
        services = admin_pb2.DESCRIPTOR.services_by_name
        api.register(services["ClientService"], ClientService(self.server, api.long_calls))
        api.register(services["SubscriptionService"], SubscriptionService(self.server, api.long_calls))
        self._node = NodeService(self.server)
        api.register(services["NodeService"], self._node)
        api.register(services["TraceService"], TraceService(self.server, api.long_calls))
        api.register(services["PublishService"], PublishService(self.server))
        api.register(services["BackupService"], BackupService(self.server))
        api.register(services["RetainedService"], RetainedService(self.server, api.long_calls))
        api.register(services["TopicService"], TopicService(self.server, api.long_calls))

    async def start(self) -> None:
        if self._node is not None:
            self._node.start()

    async def stop(self) -> None:
        if self._node is not None:
            self._node.stop()
