"""The running node, as plugins, the API and clients' connections use it. `lifecycle.Server` starts and stops it."""

# not compiled: called at the start and the end
from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from broker.admission import counted_address
from broker.alarm import ERROR, Alarm
from broker.api.pages import Page, PageMaker, alive_page, ready_page
from broker.broker import Broker
from broker.codec.reason_codes import IMPLEMENTATION_SPECIFIC_ERROR, SERVER_BUSY
from broker.config.addresses import socket_name_text
from broker.config.installed import install_bridging
from broker.config.settings import Settings
from broker.hooks import Members
from broker.metrics.broker_metrics import broker_metrics, broker_numbers
from broker.metrics.figures import Figures, Numbers
from broker.metrics.metric import Metric
from broker.server.bounded_log import ClientLog, LoggedFaults
from broker.server.listener import Listener
from broker.server.logging import get_logger
from broker.server.named_files import path_in
from broker.server.turns import Turns
from broker.session.connection import Connection
from broker.unaccepted import Unaccepted
from broker.wrappers import AcceptRequest

if TYPE_CHECKING:
    from broker.api.guard import ApiGuard
    from broker.api.server import ApiServer
    from broker.server.traces import Traces
    from broker.server.worker import Worker
    from broker.server.worker_face import WorkerFace


DROPPED: Final = "dropped/"  # before the reason: totals of `figures`
REFUSED: Final = "refused/"
REFUSED_INPUT: Final = (  # counters of the broker
    *("connections_refused", "handshakes_failed", "protocol_errors", "plugin_faults", "publishes_refused"),
    *("publishes_not_stored", "publishes_without_memory", "sessions_without_memory", "subscriptions_refused"),
)


class ClientShell(Protocol):
    """The shell of one client's connection, as the node uses it."""

    listener: Listener
    counted_address: str
    connection: Connection | None

    @property
    def transport(self) -> asyncio.Transport | None:
        """None before and after the connection."""

    def abort(self) -> None:
        """Close the socket at once and discard its output."""


class PluginFigures(Protocol):
    """A plugin (broker/plugins.py), as the node asks for its figures."""

    def metrics(self) -> list[Metric]: ...

    def not_ready(self) -> list[str]: ...

    async def alarms(self) -> list[Alarm]: ...

    def lost_messages(self) -> dict[str, int]: ...

    def refused_input(self) -> dict[str, int]: ...


class Host:
    """Made and used inside a running loop.

    broker     the core; call `flush_soon` after every change of it
    settings   the effective configuration; `settings.plugins.NAME` are the keys of a plugin
    worker     the place of this process among several of one node; None where it is the only one
    face       this worker's part in what the node shows; None without workers
    config_folder  of the configuration file, where relative paths of plugins start; "" for the current folder
    api        where a plugin registers its services; None without `api` addresses
    members    the members of the federation; the plugin that has one replaces it when it is made
    tags       what the plugins tell other nodes about this one; complete when plugins start
    turns      the turns of the loop; a plugin that acts at the end of each adds itself to `turns.ends`
    protocols  the connections of clients
    unaccepted what those have whose CONNECT is not accepted yet
    traces     None until the first one, or `log.dump_packet`, is asked for
    pages      of the REST API, by path
    plugins    those that are loaded, in their order
    started_at of the node, in monotonic seconds
    """

    def __init__(self, settings: Settings, config_folder: str = "", worker: Worker | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        self.config_folder = config_folder
        self.worker = worker
        self.face: WorkerFace | None = None
        self.log = get_logger("server")
        self.broker = Broker(settings.mqtt, random.Random(), self.loop.time())
        self.broker.faults = LoggedFaults(self.loop.time)
        install_bridging(self.broker)
        self.turns = Turns(self.broker, self.loop, self)
        self.api: ApiServer | None = None  # loaded only when the configuration asks for it
        self._api_guard: ApiGuard | None = None
        self.members = Members("")
        self.tags: dict[str, str] = {}
        self.protocols: set[ClientShell] = set()
        self.connections_possible = 2**31 - 1  # of this process, by the files that it may open
        self.unaccepted = Unaccepted()
        self.traces: Traces | None = None
        self.pages: dict[str, PageMaker] = {"/healthz": alive_page, "/readyz": self._ready_page}
        self.plugins: Sequence[PluginFigures] = []
        self.started_at = self.loop.time() if worker is None else worker.node_started_at
        self._client_log: ClientLog | None = None
        self.stop_reason = ""
        self._started = False
        self.broker.wall_offset = time.time() - self.loop.time()
        self._stopping = False
        self._stopped = asyncio.Event()
        self._all_closed = asyncio.Event()

    @property
    def api_guard(self) -> ApiGuard:
        """Judges the tokens of requests to the API and to the metrics."""
        if self._api_guard is None:
            from broker.api.guard import ApiGuard

            file = self.settings.api.token_file
            self._api_guard = ApiGuard(self.path_of(file) if file else "")
        return self._api_guard

    # --- clock and flush ---

    def now(self) -> float:
        """Monotonic seconds, the `now` of every core."""
        return self.turns.now()

    def wall_time(self, monotonic: float) -> float:
        return monotonic + self.broker.wall_offset

    def path_of(self, file: str) -> str:
        return path_in(self.config_folder, file)

    def flush_soon(self) -> None:
        """Write the broker's output at the end of this turn. Call it after every change of the broker."""
        self.turns.flush_soon()

    # --- what an operator sees ---

    def metrics(self) -> list[Metric]:
        of_plugins = [metric for plugin in self.plugins for metric in plugin.metrics()]
        return broker_metrics(self.broker, self.unaccepted) + of_plugins

    def own_figures(self, with_metrics: bool = True) -> Figures:
        """Return the figures of this process. Metrics are left out where nobody asks for them."""
        totals, present = broker_numbers(self.broker)
        totals.update({DROPPED + reason: count for reason, count in self.lost_messages().items()})
        totals.update({REFUSED + reason: count for reason, count in self.refused_input().items()})
        is_asked = with_metrics and (self.worker is None or self.worker.has_face)
        metrics = self.metrics() if is_asked else []
        return Figures(time.monotonic(), self.not_ready(), metrics, totals, present)

    def figures(self) -> Figures:
        """Return the figures of this process, and of those before it where it is a worker."""
        return self.own_figures() if self.face is None else self.face.tell()

    def node_metrics(self) -> list[Metric]:
        """Return the metrics of the node: those of all its workers."""
        return self.metrics() if self.face is None else self.face.metrics()

    def node_numbers(self) -> tuple[Numbers, Numbers]:
        """Return the totals and the present numbers of the node: those of all its workers."""
        if self.face is None:
            figures = self.own_figures()
            return figures.totals, figures.present
        return self.face.numbers()

    def not_ready(self) -> list[str]:
        """Return why clients should be sent to other nodes; empty when the node is ready."""
        if self._stopping:
            return ["the node is stopping"]
        if not self._started:
            return ["the node is starting"]
        of_others = [] if self.face is None else self.face.not_ready()
        return [reason for plugin in self.plugins for reason in plugin.not_ready()] + of_others

    async def alarms(self) -> list[Alarm]:
        """Return what an operator has to look at first; empty when all is well."""
        found = [Alarm(ERROR, reason) for reason in self.not_ready()]
        for of_plugin in await asyncio.gather(*(plugin.alarms() for plugin in self.plugins)):
            found += of_plugin
        return found

    def lost_messages(self) -> dict[str, int]:
        """Totals of messages that were dropped, by reason; those of plugins too."""
        found = dict(self.broker.counters.messages_dropped)
        for plugin in self.plugins:
            found.update(plugin.lost_messages())
        return found

    def refused_input(self) -> dict[str, int]:
        """Totals of input that was refused, by reason; those of plugins too."""
        found: dict[str, int] = {name: getattr(self.broker.counters, name) for name in REFUSED_INPUT}
        found["unaccepted_closed"] = self.unaccepted.closed
        if self.api is not None:
            found.update(self.api.refused_input())
        for plugin in self.plugins:
            found.update(plugin.refused_input())
        return found

    def listener_addresses(self) -> list[str]:
        """Addresses on which clients connect, with real ports."""
        return []

    async def copy_store(self, folder: Path) -> bool:
        """Write a copy of the store into an empty folder. False on a node without one. Raises StoreFault."""
        return False

    def observe_clients(self) -> None:
        """Log clients that connect, disconnect or are refused, and the packets of new connections, when the settings ask for
        it."""
        log = self.settings.log
        if self._client_log is not None:
            self.broker.remove_observer(self._client_log)
            self._client_log = None
        if log.clients and log.level in ("debug", "info"):
            self._client_log = ClientLog(self.now, log.level)
            self.broker.add_observer(self._client_log)
        is_dumped = log.dump_packet and log.level == "debug"
        if is_dumped or self.traces is not None:
            self.made_traces().is_dumped = is_dumped

    def made_traces(self) -> Traces:
        """The traces of the node, which are made when they are needed first."""
        if self.traces is None:
            from broker.server.traces import Traces

            self.traces = Traces(self.now, self.wall_time, self.settings.mqtt.max_packet_size)
        return self.traces

    def _ready_page(self) -> Page:
        return ready_page(self.not_ready())

    # --- connections ---

    def admit(self, protocol: ClientShell) -> bool:
        """Return whether one more connection is within the limits of the node and of its listener."""
        wanted = self.settings.mqtt.max_connections
        admission = protocol.listener.admission
        reason = ""
        worker = self.worker
        of_others = 0 if worker is None else worker.counts.of_others(worker.place.index)
        if self._stopping or (wanted and len(self.protocols) + of_others >= wanted):
            reason = "as many connections as max_connections allows"
        elif len(self.protocols) >= self.connections_possible:
            reason = "as many connections as the limit of open files allows to this process"
        elif admission is not None:
            reason = admission.open(self.now())
        if reason:
            assert protocol.transport is not None
            self.refused(protocol.transport.get_extra_info("peername"), reason)
            return False
        self.protocols.add(protocol)
        if worker is not None:
            worker.counts.set(worker.place.index, len(self.protocols))
        return True

    def admit_address(self, protocol: ClientShell, client: object) -> bool:
        """Return whether one more connection is within the limits for the client's address, the name of a socket, and
        plugins let it in."""
        if self.broker.accepting is not None:
            request = AcceptRequest(socket_name_text(client), protocol.listener.facts)
            if not self.broker.accepting.run(request):
                self.refused(client, request.reason)
                return False
        admission = protocol.listener.admission
        if admission is None or not isinstance(client, tuple):
            return True
        address = counted_address(client[0])
        reason = admission.add_address(address, self.now())
        if reason:
            self.refused(client, reason)
            return False
        protocol.counted_address = address
        return True

    def refused(self, client: object, reason: str) -> None:
        """Count and log a connection that is closed before its CONNECT. `client` is the name of a socket."""
        self.broker.counters.connections_refused += 1
        if self.broker.observer is not None:
            self.broker.observer.client_refused("", socket_name_text(client), "", reason)

    def count_unaccepted(self, protocol: ClientShell, size: int) -> bool:
        """Note the memory of a connection whose CONNECT is not accepted yet, and close the oldest of them where all have too
        much. False when that is this one."""
        unaccepted = self.unaccepted
        unaccepted.note(protocol, size)
        limit = self.broker.settings.max_unaccepted_bytes
        reason = f"connections whose CONNECT is not accepted have more than max_unaccepted_bytes, {limit}"
        is_open = True
        while (oldest := unaccepted.take_oldest(limit)) is not None:
            is_open = is_open and oldest is not protocol
            self._close_unaccepted(cast(ClientShell, oldest), reason)
        return is_open

    def _close_unaccepted(self, protocol: ClientShell, reason: str) -> None:
        connection = protocol.connection
        if connection is None:
            assert protocol.transport is not None
            self.refused(protocol.transport.get_extra_info("peername"), reason)
        else:
            self.broker.close_connection(connection, SERVER_BUSY, reason, self.now())
            self.flush_soon()
        protocol.abort()

    def forget(self, protocol: ClientShell) -> None:
        self.unaccepted.forget(protocol)
        if protocol in self.protocols:
            self.protocols.remove(protocol)
            if self.worker is not None and not self._stopping:
                self.worker.counts.set(self.worker.place.index, len(self.protocols))
            if protocol.listener.admission is not None:
                protocol.listener.admission.close(protocol.counted_address)
        if not self.protocols:
            self._all_closed.set()

    # --- internal faults ---

    def internal_error(self, connection: Connection, error: Exception) -> None:
        """Log a fault in handling one client, with its traceback, and end its connection."""
        self.log.error("fault in handling a client", client_id=connection.client_id, exc_info=error)
        try:
            self.broker.close_connection(connection, IMPLEMENTATION_SPECIFIC_ERROR, "internal error", self.now())
        except Exception as second:
            self.log.error("fault in closing a client", client_id=connection.client_id, exc_info=second)
            cast(ClientShell, connection.owner).abort()

    def plugin_error(self, error: Exception) -> None:
        """Log a fault at the end of a turn, or for a publisher that is not a client."""
        self.log.error("fault in a plugin", exc_info=error)

    def timer_error(self, error: Exception) -> None:
        """Log a fault in a deadline or in sliced work."""
        self.log.error("fault in handling a timeout", exc_info=error)

    # --- stop ---

    def stop_soon(self, reason: str) -> None:
        """Request the end of the process. `reason` is in the last lines of the log."""
        if not self.stop_reason:
            self.stop_reason = reason
        self.log.error("stopping", reason=reason)
        self._stopped.set()

    async def wait_stopped(self) -> None:
        await self._stopped.wait()
