"""The entrance of a listener whose protocol is not MQTT: each connection has a place from its first moment on, before its TLS
handshake, which the TLS of the event loop does not tell of (docs/decisions/0008-tls-is-a-layer.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from broker.places import Places
from broker.server.tls_context import LiveContext
from broker.server.tls_layer import TlsLayer
from broker.server.tls_transport import TlsConnection, TlsTransport, TlsUser


class Entrance:
    """places    of all connections, by their transports
    crowded  called for each connection that is closed because there are too many
    """

    def __init__(self, places_max: Callable[[], int], crowded: Callable[[], object]) -> None:
        self.places: Places[asyncio.BaseTransport] = Places()
        self._places_max = places_max
        self._crowded = crowded

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Return whether a connection has a place, from its handshake or now. For it an older one may be closed."""
        if transport in self.places:
            return True
        leaving = self.places.take(transport, self._places_max())
        if leaving is None:
            return True
        self._crowded()
        cast(asyncio.Transport, leaving).abort()
        return leaving is not transport

    def behind(self, live: LiveContext | None, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """The factory of the connections of a server; `make` is that of the protocol inside."""
        if live is None:
            return make
        return lambda: TlsConnection(TlsLayer(live.context), _Guest(self, make))

    def close(self) -> None:
        """Close the connections that are left."""
        for transport in self.places:
            cast(asyncio.Transport, transport).abort()


class _Guest(TlsUser):
    """One connection with TLS."""

    def __init__(self, entrance: Entrance, make: Callable[[], asyncio.Protocol]) -> None:
        self._entrance = entrance
        self._make = make

    def made(self, transport: TlsTransport) -> bool:
        return self._entrance.admits(transport)

    def opened(self, transport: TlsTransport) -> asyncio.Protocol | None:
        protocol = self._make()
        protocol.connection_made(transport)
        return protocol

    def failed(self, transport: TlsTransport, reason: str) -> None:
        """The client has been told."""

    def lost(self, transport: TlsTransport) -> None:
        self._entrance.places.discard(transport)
