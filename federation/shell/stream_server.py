"""One port for both event streams.

The first bytes of a connection tell which stream it brings, or that it is one of MQTT, for an extension. gRPC cannot take over
a connection that another program part has accepted. So its server listens on a private unix socket, and connections of gRPC are
passed on there byte by byte: those of Go brokers, and of nodes behind something that lets only gRPC through.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from broker.server.listeners import BACKLOG
from broker.server.start_error import StartError
from broker.server.turns import Turns
from federation.extension import Extension
from federation.node import Node
from federation.shell.direct_server import DirectServerProtocol
from federation.shell.go_server import GoStreams
from federation.shell.stream_host import StreamHost
from federation.stream.direct_wire import PREFACE

GRPC_PREFACE: Final = b"PRI * HTTP/2.0"
CONNECT: Final = b"\x10"  # fixed header of the first packet of MQTT
PASS_BYTES_MAX: Final = 1 << 20  # of one connection of gRPC, waiting on either side
CONNECTIONS_MAX: Final = 1024  # at one time; further ones are closed and counted
PREFACE_SECONDS_MAX: Final = 5.0
STOP_TURNS_MAX: Final = 10
CLOSE_SECONDS_MAX: Final = 2.0  # for one half of a connection of gRPC to take what the other one left
SOCKET_PATH_BYTES_MAX: Final = 107  # of a unix socket


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
    ) -> None:
        super().__init__(node, bytes_max, changed, log, turns)
        self.grpc_path = ""
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._folder = ""
        self._grpc = GoStreams(self, extensions)
        self._extensions = extensions

    def bind(self, host: str, port: int) -> int:
        """Take the port (0: a free one) and return it; OSError with the reason when it cannot be had."""
        if not host and socket.has_dualstack_ipv6():
            bound = socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._sockets.append(bound)
        number: int = bound.getsockname()[1]
        return number

    async def start(self) -> None:
        """Raises StartError."""
        try:
            self._folder = tempfile.mkdtemp(prefix="gmqttd-")  # only this user may enter it
        except OSError as error:
            raise StartError(
                f"plugins.federation: there is no folder for the private socket of gRPC ({error}); "
                "set TMPDIR to one that can be written to"
            ) from error
        self.grpc_path = os.path.join(self._folder, "grpc")
        size = len(os.fsencode(self.grpc_path))
        if size > SOCKET_PATH_BYTES_MAX:
            raise StartError(
                f"plugins.federation: the private socket of gRPC {self.grpc_path} has a path of {size} bytes, "
                f"{SOCKET_PATH_BYTES_MAX} are possible; set TMPDIR to a shorter one"
            )
        await self._grpc.start(self.grpc_path)
        for bound in self._sockets:
            self._servers.append(await self.loop.create_server(lambda: Front(self), sock=bound, backlog=BACKLOG))

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for bound in self._sockets:
            bound.close()
        self.end_streams()
        await self._grpc.stop()
        for transport in list(self.connections):
            cast(asyncio.Transport, transport).abort()
        for _ in range(STOP_TURNS_MAX):  # connections are told in one of the next turns that they are lost
            if not self.connections:
                break
            await asyncio.sleep(0)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def mqtt_protocol(self, transport: asyncio.BaseTransport) -> asyncio.Protocol | None:
        """Return who takes a connection of MQTT; None for nobody."""
        for extension in self._extensions:
            protocol = extension.mqtt_protocol(lambda: self.connections.discard(transport))
            if protocol is not None:
                return protocol
        return None

    def admits(self) -> bool:
        """Return whether there may be one connection more."""
        if self.is_stopping:
            return False
        if len(self.connections) >= CONNECTIONS_MAX:
            self.refused(f"more than {CONNECTIONS_MAX} connections")
            return False
        return True


class Front(asyncio.Protocol):
    """A connection whose first bytes have not come yet."""

    def __init__(self, server: StreamServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._server
        self._transport = cast(asyncio.Transport, transport)
        if not server.admits():
            self._transport.abort()
            return
        server.connections.add(transport)
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
        preface = PREFACE if data[:1] == PREFACE[:1] else GRPC_PREFACE
        if not data.startswith(preface):
            if not preface.startswith(data):
                self._refuse()
            return
        self._cancel_timer()
        if preface is PREFACE:
            direct = DirectServerProtocol(server)
            direct.connection_made(transport)
            transport.set_protocol(direct)
            direct.data_received(data)
        else:
            passing = Passing(server)
            passing.connection_made(transport)
            transport.set_protocol(passing)
            passing.begin(data)

    def _begin_mqtt(self, transport: asyncio.Transport, data: bytes) -> None:
        protocol = self._server.mqtt_protocol(transport)
        if protocol is None:
            self._refuse()
            return
        self._cancel_timer()
        protocol.connection_made(transport)
        transport.set_protocol(protocol)
        protocol.data_received(data)

    def _refuse(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._server.refused(f"it began with {self._data[:16]!r}")
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


class Passing(asyncio.Protocol):
    """A connection of gRPC, or its other half towards the unix socket. Each stops reading while the other is full."""

    def __init__(self, server: StreamServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._other: Passing | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=PASS_BYTES_MAX)
        self._server.connections.add(transport)

    def begin(self, data: bytes) -> None:
        """Find the other half; until it is there nothing more is read."""
        assert self._transport is not None
        self._transport.pause_reading()
        self._task = self._server.loop.create_task(self._connect(data))

    async def _connect(self, data: bytes) -> None:
        server = self._server
        other = self._other = Passing(server)
        other._other = self  # before it is connected: the server speaks first
        try:
            await server.loop.create_unix_connection(lambda: other, server.grpc_path)
        except OSError as error:
            server.refused(f"gRPC does not take it: {error}")
            self._close()
            return
        if other._transport is not None and self._transport is not None:
            other._transport.write(data)
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._other is not None and self._other._transport is not None:
            self._other._transport.write(data)

    def pause_writing(self) -> None:
        if self._other is not None and self._other._transport is not None:
            self._other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._other is not None and self._other._transport is not None:
            self._other._transport.resume_reading()

    def _close(self) -> None:
        """Return what was written may still be taken, but not for ever."""
        if self._transport is not None and self._closing_timer is None:
            self._transport.close()
            self._closing_timer = self._server.loop.call_later(CLOSE_SECONDS_MAX, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._server.connections.discard(self._transport)
            self._transport = None
        if self._closing_timer is not None:
            self._closing_timer.cancel()
        if self._task is not None:
            self._task.cancel()
        other = self._other
        if other is not None:
            self._other = None  # they know each other: nothing else keeps them
            other._close()
