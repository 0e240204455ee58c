"""The addresses on which clients connect."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.admission import counted_address
from broker.config.addresses import host_of, socket_name_text
from broker.config.settings_listeners import ListenerSettings
from broker.metrics.metric import Kind, Metric
from broker.server.listener import Listener
from broker.server.logging import get_logger
from broker.server.protocol import ClientProtocol
from broker.server.shared_counts import ABSENT
from broker.server.socket_files import check_socket_path, remove_socket_files
from broker.server.start_error import StartError, bind_error

if TYPE_CHECKING:
    from broker.server.accepting import Accepting
    from broker.server.host import Host

BACKLOG: Final = 1024  # connections that the kernel queues until they are accepted
PROBE_IDLE_SECONDS: Final = 600  # of silence before the first TCP keep-alive probe
PROBE_INTERVAL_SECONDS: Final = 60
PROBE_COUNT: Final = 5
VERSIONS: Final = {3: "3.1", 4: "3.1.1", 5: "5.0"}  # of MQTT, by what CONNECT has


def _probe_silent_clients(listener: int) -> None:
    """Set TCP keep-alive on a listener, whose connections inherit it. Otherwise a client without MQTT Keep Alive whose
    machine disappears would stay connected for ever."""
    options = socket.socket(fileno=listener)
    try:
        options.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_IDLE_SECONDS)
        options.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_INTERVAL_SECONDS)
        options.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBE_COUNT)
    finally:
        options.detach()


def bind_unix(settings: ListenerSettings, key: str) -> socket.socket:
    """Make a socket with its file and the file's permissions. Raises StartError, OSError."""
    path = settings.address.path
    check_socket_path(key, settings.address)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(path)
        try:
            if settings.socket_mode:
                os.chmod(path, int(settings.socket_mode, 8))  # nobody can connect before `listen`
        except BaseException:
            os.unlink(path)
            raise
    except BaseException:
        sock.close()
        raise
    return sock


class Listeners:
    def __init__(self, server: Host) -> None:
        self._server = server
        self._log = get_logger("server")
        self._sockets: list[asyncio.Server] = []
        self._listeners: list[Listener] = []
        self._socket_paths: list[str] = []
        self._accepting: Accepting | None = None  # where other workers share the addresses
        self.addresses: list[str] = []  # with the port that the kernel chose for port 0

    async def start(self) -> None:
        """Open every listener that is served. Raises StartError for the first that cannot be opened."""
        server = self._server
        worker = server.worker
        if worker is not None and server.settings.listeners:
            from broker.server.accepting import Accepting

            self._accepting = Accepting(worker, lambda: len(server.protocols), server.broker.has_room, self._log)
            self._accepting.start()
            worker.counts.set(worker.place.index, 0)
        for index, listener in enumerate(self._server.settings.listeners):
            await self._open(listener, f"listeners[{index}]")

    def protocol_factory(self, listener: Listener) -> Callable[[], ClientProtocol]:
        """Return what makes the shell of a new connection."""
        protocol: type[ClientProtocol] = ClientProtocol
        if listener.is_layered:
            from broker.server.layered_protocol import LayeredProtocol

            protocol = LayeredProtocol
        return partial(protocol, self._server, listener)

    async def _open(self, settings: ListenerSettings, key: str) -> None:
        loop = asyncio.get_running_loop()
        address = settings.address
        listener = Listener(settings, key, loop.time())
        make_protocol = self.protocol_factory(listener)
        worker, accepting = self._server.worker, self._accepting
        opened: asyncio.Server | None = None
        sockets: Sequence[Any] = ()
        try:
            if worker is not None and accepting is not None and address.is_unix:
                sockets = [worker.listening[address.path]]
                accepting.listen_on(len(self._listeners), sockets[0], BACKLOG, make_protocol)
            elif address.is_unix:
                sock = self._bind_unix(settings, f"{key}.address")
                opened = await loop.create_unix_server(make_protocol, sock=sock, backlog=BACKLOG)
                sockets = opened.sockets
            elif accepting is None:
                opened = await loop.create_server(
                    make_protocol, host=address.host or None, port=address.port, backlog=BACKLOG
                )
                sockets = opened.sockets
            else:
                number, is_own = len(self._listeners), settings.each_worker
                sockets = accepting.listen(number, address.host, address.port, BACKLOG, make_protocol, is_own)
        except OSError as error:
            raise bind_error(error, str(address), f"{key}.address") from error
        if opened is not None:
            self._sockets.append(opened)
        self._listeners.append(listener)
        for sock in sockets:
            if not address.is_unix:
                _probe_silent_clients(sock.fileno())
            self.addresses.append(socket_name_text(sock.getsockname()))

    def _bind_unix(self, settings: ListenerSettings, key: str) -> socket.socket:
        sock = bind_unix(settings, key)
        self._socket_paths.append(settings.address.path)
        return sock

    def take_limits(self, settings: Sequence[ListenerSettings]) -> list[str]:
        """Take over what may change while listeners are open: each from the settings of its address. Returns the keys of what
        changes after a restart."""
        now = self._server.now()
        need_restart: list[str] = []
        rest = list(settings)
        for listener in self._listeners:
            found = next((one for one in rest if one.address == listener.settings.address), None)
            if found is None:
                need_restart.append("listeners")
                continue
            rest.remove(found)
            need_restart += listener.take_limits(found, self._addresses_of(listener), now)
        if rest:
            need_restart.append("listeners")
        return list(dict.fromkeys(need_restart))

    def _addresses_of(self, listener: Listener) -> list[str]:
        """By which the open connections of a listener are counted from now on, those too that were not counted so far."""
        found: list[str] = []
        for protocol in self._server.protocols:
            if protocol.listener is listener:
                connection = protocol.connection
                if connection is not None and not listener.settings.address.is_unix:
                    protocol.counted_address = counted_address(host_of(connection.remote_addr))
                found.append(protocol.counted_address)
        return found

    def metrics(self) -> list[Metric]:
        samples: Counter[tuple[str, ...]] = Counter()
        for listener in self._listeners:
            for version, name in VERSIONS.items():
                samples[listener.facts.name, name] += listener.facts.clients[version]
        text = "Connected clients, by the address of their listener and the version of MQTT."
        return [Metric("gmqtt_clients_current", Kind.GAUGE, text, ("listener", "version"), samples)]

    def renew_tls(self) -> None:
        """Read the files of TLS again. A listener whose files cannot be used keeps what it has, and the fault is logged."""
        for listener in self._listeners:
            if listener.settings.tls is not None:
                try:
                    listener.renew_tls(listener.settings.tls)
                except StartError as error:
                    self._log.error("TLS files not read again, the former certificates stay", reason=str(error))

    def close(self) -> None:
        """Stop accepting connections. Open connections stay."""
        worker = self._server.worker
        if self._accepting is not None and worker is not None:
            worker.counts.set(worker.place.index, ABSENT)
            self._accepting.close()
        for opened in self._sockets:
            opened.close()
        self._sockets.clear()
        remove_socket_files(self._socket_paths)
