"""Connections to other members, with TLS where they have it.

gRPC cannot use the TLS of this node: it tells neither a refused name nor a refused certificate. So a call to a member with TLS
goes to a private unix socket, from which the bytes are passed on over a connection of the dialer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc

from broker.config.addresses import parse_address
from broker.hooks import Members
from broker.places import Places
from broker.server.tls_layer import TlsLayer
from broker.server.tls_transport import TlsConnection, TlsError, TlsTransport, TlsUser
from federation.refusals import Refusals
from federation.shell.node_tls import NodeTls, names_of
from federation.shell.passing import Passing, end_connections
from federation.shell.private_folder import PrivateFolder
from federation.trust import HANDSHAKE, NAME, Reach, name_fault, reach_of, told

MakeProtocol = Callable[[], asyncio.Protocol]


class _Attempt(TlsUser):
    """One connection to a member. `is_open` is done when the protocol has its transport."""

    def __init__(self, dialer: Dialer, name: str, make_protocol: MakeProtocol) -> None:
        self._dialer = dialer
        self._name = name
        self._make_protocol = make_protocol
        self.is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def opened(self, transport: TlsTransport) -> asyncio.Protocol | None:
        if self.is_open.done():  # nobody waits for it any more
            return None
        fault = name_fault(names_of(transport.get_extra_info("ssl_object")), self._name)
        if fault:
            self._fail(NAME, fault)
            return None
        protocol = self._make_protocol()
        protocol.connection_made(transport)
        self.is_open.set_result(None)
        return protocol

    def failed(self, transport: TlsTransport, reason: str) -> None:
        self._fail(*told(reason))

    def broke(self, reason: str) -> str:
        word, text = told(reason)
        self._dialer.failed(self._name, word, text)
        return text

    def _fail(self, word: str, reason: str) -> None:
        self._dialer.failed(self._name, word, reason)
        if not self.is_open.done():
            self.is_open.set_exception(TlsError(reason))


class Dialer:
    """`stop` ends what gRPC has open."""

    def __init__(
        self, tls: NodeTls, members: Members, requires_tls: bool, folder: PrivateFolder, refusals: Refusals
    ) -> None:
        self._tls = tls
        self._members = members
        self._requires_tls = requires_tls
        self._folder = folder
        self._refusals = refusals
        self._faults: dict[str, str] = {}  # of members whose last connection failed
        self._tunnels: dict[str, tuple[str, asyncio.Server]] = {}
        self._connections: Places[asyncio.BaseTransport] = Places()

    def reach(self, tags: Mapping[str, str]) -> Reach:
        """Return how this node reaches a member with these tags."""
        return reach_of(tags, True, self._requires_tls)

    async def connect(self, name: str, addr: str, make_protocol: MakeProtocol) -> None:
        """Connect to a member at HOST:PORT with TLS. Returns when the protocol has its transport. Raises OSError."""
        loop = asyncio.get_running_loop()
        address = parse_address(addr)
        attempt = _Attempt(self, name, make_protocol)
        connection = TlsConnection(TlsLayer(self._tls.client, False, "node"), attempt)
        self._faults.pop(name, None)
        try:
            await loop.create_connection(lambda: connection, address.host, address.port)
            await attempt.is_open
        except asyncio.CancelledError:
            connection.abort()
            raise

    def failed(self, name: str, word: str, reason: str) -> None:
        """Count and keep why a connection to a member failed, which the caller logs."""
        self._faults[name] = reason
        if word != HANDSHAKE:
            self._refusals.totals[word] += 1

    # --- gRPC

    async def target(self, name: str, addr: str, is_tls: bool) -> str:
        """Return what a channel of gRPC to a member connects to."""
        if not is_tls:
            return addr
        found = self._tunnels.get(name)
        if found is None:
            path = self._folder.new_path()
            loop = asyncio.get_running_loop()
            server = await loop.create_unix_server(lambda: self.made_tunnel_end(name), path)
            found = self._tunnels.setdefault(name, (path, server))
            if found[1] is not server:  # another call has made one meanwhile
                server.close()
        return f"unix:{found[0]}"

    def fault(self, name: str, error: Any) -> str:
        """Return why a call of gRPC to a member failed; "" where `error`, that of gRPC, says it."""
        return self._faults.get(name, "") if error.code() is grpc.StatusCode.UNAVAILABLE else ""

    def members_changed(self) -> None:
        """Forget what is kept of those that are members no more."""
        names = {other.name for other in self._members.others()}
        for name in [name for name in self._tunnels if name not in names]:
            self._tunnels.pop(name)[1].close()
        self._faults = {name: fault for name, fault in self._faults.items() if name in names}

    async def connect_tunnel(self, name: str, half: Passing) -> None:
        """Connect one half of a call's connection to a member. Raises OSError."""
        for other in self._members.others():
            if other.name == name and (reach := self.reach(other.tags)).is_tls:
                await self.connect(name, reach.addr, lambda: half)
                return
        raise TlsError("it is no member with TLS any more")

    async def stop(self) -> None:
        for _, server in self._tunnels.values():
            server.close()
        self._tunnels.clear()
        await end_connections(self._connections)

    def made_tunnel_end(self, name: str) -> Passing:
        """Return the half towards gRPC of this node."""
        return _TunnelEnd(self._connections, lambda half: self.connect_tunnel(name, half))


class _TunnelEnd(Passing):
    """Begins when gRPC connects. A connection that fails is told by the dialer."""

    def __init__(
        self, connections: Places[asyncio.BaseTransport], connect: Callable[[Passing], Awaitable[None]]
    ) -> None:
        super().__init__(connections, lambda reason: None)
        self._connect_other = connect

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.begin(b"", self._connect_other)
