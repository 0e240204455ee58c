"""One address on which clients connect: its settings as a connection uses them."""

from __future__ import annotations

import ipaddress
import ssl

from broker.admission import Admission
from broker.config.settings_listeners import ListenerSettings, ProxySettings, TlsSettings
from broker.listener_facts import ListenerFacts
from broker.server.layers import Layer
from broker.server.tls_context import HTTP_PROTOCOLS, MQTT_PROTOCOLS, server_context
from broker.server.tls_layer import TlsLayer

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Listener:
    """settings    of the address
    facts       of it, for the cores
    admission   its limits of connections; None without any
    proxies     networks that have to send a PROXY header; None where nobody does
    tls         the context of new connections; None without TLS
    """

    def __init__(self, settings: ListenerSettings, key: str, now: float) -> None:
        """key  the configuration key of the listener. Raises StartError for the files of TLS."""
        self.settings = settings
        self.facts = ListenerFacts(
            str(settings.address),
            settings.transport,
            settings.allow_anonymous,
            settings.max_message_rate,
            settings.max_byte_rate,
        )
        limits = (
            settings.max_connections,
            settings.max_connections_per_address,
            settings.max_connect_rate,
            settings.max_connect_rate_per_address,
        )
        self.admission = Admission(*limits, now) if any(limits) else None
        proxy = settings.proxy_protocol
        self.proxies = None if proxy is None else _networks(proxy)
        self._key = key
        self.tls: ssl.SSLContext | None = None
        if settings.tls is not None:
            self.renew_tls(settings.tls)
        self.make_layers(0)  # loads the modules now, and not while clients wait

    def make_layers(self, packet_bytes_max: int) -> list[Layer]:
        """Those of a new connection, from the socket to MQTT."""
        layers: list[Layer] = []
        if self.tls is not None:
            layers.append(TlsLayer(self.tls))
        if self.settings.websocket is not None:
            from broker.server.websocket_layer import WebSocketLayer

            layers.append(WebSocketLayer(self.settings.websocket, packet_bytes_max))
        return layers

    @property
    def is_layered(self) -> bool:
        """Whether anything stands between the socket and MQTT."""
        return self.tls is not None or self.settings.websocket is not None or self.proxies is not None

    def renew_tls(self, tls: TlsSettings) -> None:
        """Read the files of TLS again, for new connections. Raises StartError, and keeps the context."""
        protocols = MQTT_PROTOCOLS if self.settings.websocket is None else HTTP_PROTOCOLS
        self.tls = server_context(tls, f"{self._key}.tls", protocols)

    def is_proxy(self, host: str) -> bool:
        """Whether this peer has to send a PROXY header."""
        address = ipaddress.ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        if mapped is not None:
            address = mapped
        return any(address in network for network in self.proxies or ())


def _networks(settings: ProxySettings) -> list[Network]:
    return [ipaddress.ip_network(text) for text in settings.from_]
