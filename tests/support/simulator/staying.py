"""Clients that stay at their nodes beside others that move."""

from __future__ import annotations

from simulator.copy_schedules import Copied
from simulator.durable_client import DurableClient
from simulator.promises import Promises
from simulator.world import Host


class Staying(Copied):
    """stays  how the identifiers of those that stay begin"""

    stays: tuple[str, ...] = ()

    def _stays(self, client: DurableClient) -> bool:
        return client.client_id.startswith(self.stays)

    def _client_acts(self, host: Host, client: DurableClient) -> None:
        if self._stays(client):
            Promises._client_acts(self, host, client)
        else:
            super()._client_acts(host, client)

    def _connect(self, host: Host, client: DurableClient) -> None:
        if self._stays(client):
            host = next(each for each, station in self.stations.items() if client in station.clients)
        super()._connect(host, client)
