"""One port for both event streams, and one for both with TLS.

The first bytes of a connection tell which stream it brings, or that it is one of MQTT, for an extension. gRPC cannot take over
a connection that another program part has accepted. So its server listens on a private unix socket, and connections of gRPC are
passed on there byte by byte: those of Go brokers, and of nodes behind something that lets only gRPC through. Each of them comes
from a socket with a name of its own, by which the services know what the other end has proved (`caller_of`).

A node with TLS takes the Go broker's stream, and nothing else, on the port without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from broker.config.addresses import socket_name_text
from broker.server.listeners import BACKLOG
from broker.server.tls_layer import TlsLayer
from broker.server.tls_transport import NO_TLS, TlsConnection, TlsTransport, TlsUser
from broker.server.turns import Turns
from federation.extension import Extension
from federation.node import Node
from federation.refusals import Refusals
from federation.replication.wire import PREFACE as KEEPER_PREFACE
from federation.shell.direct_server import DirectServerProtocol
from federation.shell.go_server import GoStreams
from federation.shell.grpc_callers import GrpcCallers
from federation.shell.keeper_server import KeeperServerProtocol
from federation.shell.node_tls import NodeTls, names_of
from federation.shell.passing import Passing, end_connections
from federation.shell.private_folder import PrivateFolder
from federation.shell.stream_host import StreamHost
from federation.stream.direct_wire import PREFACE
from federation.trust import NAME, NO_NAME, PLAIN, TAKES_GO_ONLY, Caller, told

GRPC_PREFACE: Final = b"PRI * HTTP/2.0"
CONNECT: Final = b"\x10"  # fixed header of the first packet of MQTT
CONNECTIONS_MAX: Final = 1024
"""At one time. Policy: the oldest that has not said who it is makes room (broker/places.py), and is counted as refused."""
PREFACE_SECONDS_MAX: Final = 5.0


class StreamServer(StreamHost):
    """`bind`, then `start`, then `stop`."""

    def __init__(
        self,
        node: Node,
        bytes_max: int,
        changed: Callable[[], None],
        log: Any,
        turns: Turns | None = None,
        extensions: Sequence[Extension] = (),
        tls: NodeTls | None = None,
        folder: PrivateFolder | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        super().__init__(node, bytes_max, changed, log, turns, refusals)
        self.tls = tls
        self._sockets: list[tuple[socket.socket, bool]] = []
        self._servers: list[asyncio.Server] = []
        self._path = ""
        self._folder = folder or PrivateFolder()
        self.grpc_callers = GrpcCallers(self._folder, tls is not None)
        self._grpc = GoStreams(self, extensions, self.grpc_callers)
        self._extensions = extensions

    def bind(self, host: str, port: int, is_tls: bool = False) -> int:
        """Take the port (0: a free one) and return it; OSError with the reason when it cannot be had."""
        if not host and socket.has_dualstack_ipv6():
            bound = socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._sockets.append((bound, is_tls))
        number: int = bound.getsockname()[1]
        return number

    def bind_path(self, path: str) -> None:
        """Take a Unix socket on which only other workers of this node connect. Replaces the one of an earlier process."""
        self._path = path

    async def start(self) -> None:
        """Raises StartError."""
        self._folder.make()
        self.grpc_callers.path = self._folder.new_path()
        await self._grpc.start(self.grpc_callers.path)
        for bound, is_tls in self._sockets:
            make = self._make_tls if is_tls else self._make_plain
            self._servers.append(await self.loop.create_server(make, sock=bound, backlog=BACKLOG))
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            self._servers.append(await self.loop.create_unix_server(self._make_sibling, self._path, backlog=BACKLOG))

    def _make_plain(self) -> Front:
        return Front(self, self.tls is None)

    def _make_sibling(self) -> Front:
        """The peer can open the socket, so it runs as this user, and may say which of the workers it is."""
        return Front(self, True, list(self.node.siblings))

    def _make_tls(self) -> TlsConnection:
        assert self.tls is not None
        return TlsConnection(TlsLayer(self.tls.server, True, "node"), _TlsFront(self))

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for bound, _ in self._sockets:
            bound.close()
        self.end_streams()
        await self._grpc.stop()
        await end_connections(self.connections)
        self._folder.remove()

    def mqtt_protocol(self, transport: asyncio.BaseTransport, caller: Caller) -> asyncio.Protocol | None:
        """Return who takes a connection of MQTT; None for nobody."""
        for extension in self._extensions:
            protocol = extension.mqtt_protocol(lambda: self.connections.discard(transport), caller)
            if protocol is not None:
                return protocol
        return None

    def admits(self, transport: asyncio.Transport) -> bool:
        """Return whether this connection has a place now. An older one may be closed for it."""
        if self.is_stopping:
            return False
        leaving = self.connections.take(transport, CONNECTIONS_MAX)
        if leaving is None:
            return True
        self.refused(f"more than {CONNECTIONS_MAX} connections, and this one has not said who it is")
        if leaving is transport:
            return False
        cast(asyncio.Transport, leaving).abort()
        return True


class _TlsFront(TlsUser):
    """A connection on the port of TLS, until its handshake is done."""

    def __init__(self, server: StreamServer) -> None:
        self._server = server

    def made(self, transport: TlsTransport) -> bool:
        return self._server.admits(transport)

    def opened(self, transport: TlsTransport) -> asyncio.Protocol | None:
        names = names_of(transport.get_extra_info("ssl_object"))
        if not names:
            self._server.distrusted(NAME, socket_name_text(transport.get_extra_info("peername")), NO_NAME)
            return None
        self._server.connections.hold(transport)
        front = Front(self._server, True, names)
        front.connection_made(transport)
        return front

    def failed(self, transport: TlsTransport, reason: str) -> None:
        if transport not in self._server.connections:  # it has made room, which is counted
            return
        word, text = told(reason)
        if reason == NO_TLS:
            text += "; its plugins.federation.tls is not set"
        self._server.distrusted(word, socket_name_text(transport.get_extra_info("peername")), text)

    def broke(self, reason: str) -> str:
        return told(reason)[1]

    def lost(self, transport: TlsTransport) -> None:
        self._server.connections.discard(transport)


class Front(asyncio.Protocol):
    """A connection whose first bytes have not come yet.

    takes_all  also what the Go broker does not know
    names      of the certificate of the other end; None without TLS
    """

    def __init__(self, server: StreamServer, takes_all: bool, names: Sequence[str] | None = None) -> None:
        self._server = server
        self._takes_all = takes_all
        self._caller = Caller("", names, server.node.tls_members)
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._server
        self._transport = cast(asyncio.Transport, transport)
        self._caller.addr = socket_name_text(transport.get_extra_info("peername"))
        if transport not in server.connections:  # one with TLS was admitted before its handshake
            if not server.admits(self._transport):
                self._transport.abort()
                return
        self._timer = server.loop.call_later(PREFACE_SECONDS_MAX, self._refuse)

    def data_received(self, data: bytes) -> None:
        server = self._server
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        data = self._data = self._data + data
        if data.startswith(CONNECT):
            self._begin_mqtt(transport, data)
            return
        preface = b""
        for known in (PREFACE, KEEPER_PREFACE, GRPC_PREFACE):
            if data.startswith(known):
                preface = known
            elif known.startswith(data):
                return
        copies = server.node.copies
        if not preface or (preface is KEEPER_PREFACE and copies is None):
            self._refuse()
            return
        if preface is not GRPC_PREFACE and not self._takes_all:
            self._refuse_plain()
            return
        self._cancel_timer()
        server.connections.hold(transport)
        if preface is PREFACE:
            self._begin(transport, DirectServerProtocol(server, self._caller), data)
        elif preface is KEEPER_PREFACE and copies is not None:
            self._begin(transport, KeeperServerProtocol(server, copies.replicas, self._caller), data)
        else:
            caller = self._caller
            passing = Passing(server.connections, self._not_passed)
            passing.connection_made(transport)
            transport.set_protocol(passing)
            passing.begin(data, lambda other: server.grpc_callers.connect(other, caller))

    def _begin(self, transport: asyncio.Transport, protocol: asyncio.Protocol, data: bytes) -> None:
        protocol.connection_made(transport)
        transport.set_protocol(protocol)
        protocol.data_received(data)

    def _not_passed(self, reason: str) -> None:
        self._server.refused(f"gRPC does not take it: {reason}")

    def _begin_mqtt(self, transport: asyncio.Transport, data: bytes) -> None:
        if not self._takes_all:
            self._refuse_plain()
            return
        protocol = self._server.mqtt_protocol(transport, self._caller)
        if protocol is None:
            self._refuse()
            return
        self._cancel_timer()
        self._server.connections.hold(transport)
        self._begin(transport, protocol, data)

    def _refuse(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._server.refused(f"it began with {self._data[:16]!r}")
            self._transport.abort()

    def _refuse_plain(self) -> None:
        if self._transport is not None:
            self._server.distrusted(PLAIN, self._caller.addr, TAKES_GO_ONLY)
            self._transport.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        if self._transport is not None:
            self._server.connections.discard(self._transport)
            self._transport = None
