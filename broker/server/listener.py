"""One address on which clients connect: its settings as a connection uses them."""

# not compiled: called once a connection
from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from broker.admission import Admission
from broker.config.printer import changed_keys
from broker.config.settings import Settings
from broker.config.settings_listeners import ListenerSettings, ProxySettings, TlsSettings
from broker.listener_facts import ListenerFacts
from broker.server.layers import Layer
from broker.server.tls_context import HTTP_PROTOCOLS, MQTT_PROTOCOLS, server_context
from broker.server.tls_layer import TlsLayer

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# A reload takes them over, for connections from then on.
LIMITS: Final = (
    "allow_anonymous",
    "handshake_timeout",
    "max_connections",
    "max_connections_per_address",
    "max_connect_rate",
    "max_connect_rate_per_address",
    "max_message_rate",
    "max_byte_rate",
)


def with_limits(settings: ListenerSettings, new: ListenerSettings) -> ListenerSettings:
    """Return the settings of an open listener with what a reload takes over of the new ones."""
    taken = replace(settings, **{name: getattr(new, name) for name in LIMITS})
    if taken.websocket is not None and new.websocket is not None:
        websocket = replace(taken.websocket, allowed_origins=new.websocket.allowed_origins)
        taken = replace(taken, websocket=websocket)
    return taken


def reloaded(settings: Settings, new: Settings) -> Settings:
    """Return the settings of a node with what a reload takes over of the new ones, as `Server.reload` does."""
    by_address = {each.address: each for each in reversed(new.listeners)}
    listeners = [with_limits(each, by_address.get(each.address, each)) for each in settings.listeners]
    return replace(settings, mqtt=new.mqtt, log=new.log, listeners=tuple(listeners))


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
        self.facts = _facts(settings, None)
        self.admission = _admission(settings, now)
        proxy = settings.proxy_protocol
        self.proxies = None if proxy is None else _networks(proxy)
        self._key = key
        self.tls: ssl.SSLContext | None = None
        if settings.tls is not None:
            self.renew_tls(settings.tls)
        self.make_layers(0)  # loads the modules now, and not while clients wait

    def take_limits(self, settings: ListenerSettings, addresses: Iterable[str], now: float) -> list[str]:
        """Take over what may change while the listener is open, for connections from now on. `addresses` are those by which
        its open connections are counted. Returns the keys of what changes after a restart."""
        taken = self.settings = with_limits(self.settings, settings)
        self.facts = _facts(taken, self.facts.clients)
        self.admission = _admission(taken, now)
        if self.admission is not None:
            for address in addresses:
                self.admission.count(address)
        return changed_keys(taken, settings, f"{self._key}.")

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
        """Return whether anything stands between the socket and MQTT."""
        return self.tls is not None or self.settings.websocket is not None or self.proxies is not None

    def renew_tls(self, tls: TlsSettings) -> None:
        """Read the files of TLS again, for new connections. Raises StartError, and keeps the context."""
        protocols = MQTT_PROTOCOLS if self.settings.websocket is None else HTTP_PROTOCOLS
        self.tls = server_context(tls, f"{self._key}.tls", protocols)

    def is_proxy(self, host: str) -> bool:
        """Return whether this peer has to send a PROXY header."""
        address = ipaddress.ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        if mapped is not None:
            address = mapped
        return any(address in network for network in self.proxies or ())


def _facts(settings: ListenerSettings, clients: list[int] | None) -> ListenerFacts:
    return ListenerFacts(
        str(settings.address),
        settings.transport,
        settings.allow_anonymous,
        settings.max_message_rate,
        settings.max_byte_rate,
        clients=clients,
    )


def _admission(settings: ListenerSettings, now: float) -> Admission | None:
    limits = (
        settings.max_connections,
        settings.max_connections_per_address,
        settings.max_connect_rate,
        settings.max_connect_rate_per_address,
    )
    return Admission(*limits, now) if any(limits) else None


def _networks(settings: ProxySettings) -> list[Network]:
    return [ipaddress.ip_network(text) for text in settings.from_]
