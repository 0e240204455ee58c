"""Where links for queues of other nodes of the cluster come in: on the address of the event streams, as connections of MQTT."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.config.addresses import Address
from broker.config.settings_listeners import ListenerSettings
from broker.listener_facts import ListenerFacts
from broker.server.listener import Listener
from broker.server.protocol import ClientProtocol
from federation.extension import Extension

if TYPE_CHECKING:
    from broker.server.host import Host


class NodeProtocol(ClientProtocol):
    """One connection. Like that of a client it is one of `mqtt.max_connections`, and ends when the node stops."""

    def __init__(self, host: Host, listener: Listener, ended: Callable[[], None]) -> None:
        super().__init__(host, listener)
        self._ended = ended

    def begin(self, peer: object) -> None:
        """Limits for addresses of clients, and plugins that look at them, have no say."""
        self.open_connection(peer, "")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._ended()


class NodeListener(Extension):
    """`address` is that of the event streams."""

    def __init__(self, host: Host, address: Address) -> None:
        self._host = host
        self._listener = Listener(ListenerSettings(address), "plugins.federation.fed_addr", host.now())
        self._listener.facts = ListenerFacts(str(address), "tcp", is_node=True)

    def mqtt_protocol(self, ended: Callable[[], None]) -> asyncio.Protocol:
        return NodeProtocol(self._host, self._listener, ended)
