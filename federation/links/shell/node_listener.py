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


class NodeListener(Extension):
    """`address` is that of the event streams. A connection is one of `mqtt.max_connections`; limits for addresses of clients,
    and plugins that look at them, have no say."""

    def __init__(self, host: Host, address: Address) -> None:
        self._host = host
        self._listener = Listener(ListenerSettings(address), "plugins.federation.fed_addr", host.now())
        self._listener.facts = ListenerFacts(str(address), "tcp", is_node=True)

    def mqtt_protocol(self, ended: Callable[[], None]) -> asyncio.Protocol:
        protocol = ClientProtocol(self._host, self._listener)
        protocol.ended = ended
        return protocol
