"""The asyncio shell of the RPC: connections, and the calls that take time."""

from __future__ import annotations

import asyncio
import platform
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, cast

from broker.config.addresses import Address, socket_name_text
from broker.server.bounded_log import CounterLog
from broker.server.log_listeners import LOG_LISTENERS
from broker.server.logging import LEVELS as LOG_LEVELS
from federation.errors import JoinFailed, NotRunning
from federation.gossip.keyring import KeyRefused
from federation.membership import FederationMembership
from federation.rpc import requests
from federation.rpc.client import RpcClient
from federation.rpc.server import Call, RpcServer
from federation.serf.events import Event
from federation.serf.key_queries import (
    QUERY_INSTALL_KEY,
    QUERY_LIST_KEYS,
    QUERY_REMOVE_KEY,
    QUERY_USE_KEY,
    KeyCounts,
)
from federation.serf.serf import Serf
from federation.shell.key_control import KeysRefused

HANDSHAKE_SECONDS_MAX: Final = 10.0
"""Time in which a client shakes hands and authenticates."""
BACKLOG: Final = 64
KEY_QUERIES: Final = {
    "install-key": QUERY_INSTALL_KEY,
    "use-key": QUERY_USE_KEY,
    "remove-key": QUERY_REMOVE_KEY,
    "list-keys": QUERY_LIST_KEYS,
}
LEVELS: Final = {"debug": "DEBUG", "info": "INFO", "warn": "WARN", "error": "ERR"}
"""Levels of this log as those of a monitor."""


def runtime_facts() -> dict[str, str]:
    """The figures of the program that `serf info` prints."""
    return {
        "arch": platform.machine(),
        "os": platform.system().lower(),
        "version": f"python{platform.python_version()}",
    }


def key_answer(counts: KeyCounts) -> tuple[str, object]:
    """The error, as an agent puts it, and the body."""
    error = ""
    if counts.errors:
        error = f"{counts.errors}/{counts.nodes} nodes reported failure"
    elif counts.responses != counts.nodes:
        error = f"{counts.responses}/{counts.nodes} nodes reported success"
    return error, {
        "Keys": counts.keys or None,
        "Messages": counts.messages,
        "NumErr": counts.errors,
        "NumNodes": counts.nodes,
        "NumResp": counts.responses,
    }


class RpcShell:
    """The listener, the clients, and the log that they see."""

    def __init__(self, membership: FederationMembership, serf: Serf, auth_key: str, log: Any) -> None:
        self._membership = membership
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._timer: asyncio.TimerHandle | None = None
        self._listener: asyncio.Server | None = None
        self._is_stopped = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.server = RpcServer(serf, auth_key, runtime_facts())
        self.connections: dict[RpcClient, RpcConnection] = {}
        self._refusals = CounterLog(log.warning, "RPC clients refused", self.refused_input, self._loop.time())

    async def start(self, address: Address) -> None:
        """Raises OSError."""
        host = address.host or None
        self._listener = await self._loop.create_server(
            lambda: RpcConnection(self), host, address.port, backlog=BACKLOG
        )
        self._membership.listeners.append(self.receive_events)
        self._follow_monitors()
        for listening in self._listener.sockets:
            self._log.info("RPC listens", address=socket_name_text(listening.getsockname()))

    async def stop(self) -> None:
        """Close everything at once."""
        self._is_stopped = True
        if self.receive_events in self._membership.listeners:
            self._membership.listeners.remove(self.receive_events)
        LOG_LISTENERS.remove(self._log_line)
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for connection in list(self.connections.values()):
            connection.abort()
        await asyncio.sleep(0)  # transports close their sockets in the next turn of the loop

    def now(self) -> float:
        return self._loop.time()

    def refused_input(self) -> dict[str, int]:
        """Totals by reason."""
        server = self.server
        return {
            "rpc_clients_refused": server.refused,
            "rpc_requests_malformed": server.malformed,
            "rpc_records_dropped": server.records_dropped,
        }

    # --- from the connections and from Serf

    def requested(self) -> None:
        """Requests were done: send what they caused, and begin what takes time."""
        self._membership.flush()
        for call in self.server.take_calls():
            task = self._loop.create_task(self._call(call))
            self._tasks.add(task)  # the server bounds the calls of each client
            task.add_done_callback(self._tasks.discard)
        self._refusals.check(self.now())
        self._follow_monitors()
        self.write()

    def disconnected(self, client: RpcClient) -> None:
        client.closed = True
        self.connections.pop(client, None)
        self.server.disconnected(client)
        self._follow_monitors()

    def _follow_monitors(self) -> None:
        """Have the log tell lines of the level debug while a monitor wants them: each line costs, with that of the node's own
        log."""
        if not self._is_stopped:
            LOG_LISTENERS.listen(self._log_line, LOG_LEVELS["debug" if self.server.wants_debug() else "info"])

    def receive_events(self, events: Iterable[Event]) -> None:
        self.server.receive_events(events, self.now())
        self.write()

    def write(self) -> None:
        """Write the output of all clients, and set the timer."""
        for connection in list(self.connections.values()):
            connection.write()
        at = self.server.next_timeout()
        if at is not None and self._timer is None:
            self._timer = self._loop.call_at(at, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.server.handle_timeout(self.now())
        self.write()

    def _log_line(self, level: str, line: str) -> None:
        if threading.get_ident() != self._thread:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._log_line, level, line)
            return
        self.server.log_line(LEVELS.get(level, "INFO"), line)
        for client, connection in list(self.connections.items()):
            if client.monitor is not None:
                connection.write()

    # --- calls

    async def _call(self, call: Call) -> None:
        try:
            error, body = await self._do(call)
        except KeyRefused as refusal:
            error, body = f"the key {refusal}", None
        except (JoinFailed, KeysRefused, NotRunning, ValueError) as refusal:
            error, body = str(refusal), None
        except Exception as fault:  # else the client would wait for ever
            self._log.error("a fault in a call of the RPC", command=call.header.command, exc_info=fault)
            error, body = f"a fault in the node, which its log has: {type(fault).__name__}", None
        self.server.finish(call, error, body)
        self.write()

    async def _do(self, call: Call) -> tuple[str, object]:
        """The error, "" for none, and the body of the response."""
        membership, request = self._membership, call.request
        command = call.header.command
        if command in KEY_QUERIES:
            key = request.key if isinstance(request, requests.KeyRequest) else ""
            return key_answer(await membership.keys.ask(KEY_QUERIES[command], key))
        if isinstance(request, requests.Join):
            return "", {"Num": await membership.join(list(request.existing or ()), request.replay)}
        if isinstance(request, requests.ForceLeave):
            membership.force_leave(request.node, request.prune)
        elif isinstance(request, requests.SetTags):
            membership.change_tags(dict(request.tags), request.delete or ())
        else:
            assert command == "leave"
            await membership.leave()
        return "", None


class RpcConnection(asyncio.Protocol):
    """A connection of one client."""

    def __init__(self, shell: RpcShell) -> None:
        self._shell = shell
        self._client: RpcClient | None = None
        self._transport: asyncio.Transport
        self._is_congested = False
        self._is_reading = True
        self._has_more = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses
        shell = self._shell
        self._client = shell.server.connect()
        if self._client is None:
            self._transport.abort()
            return
        shell.connections[self._client] = self
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS_MAX, self._handshake_over)
        shell.write()  # another one may have been closed for it

    def connection_lost(self, exc: Exception | None) -> None:
        client = self._client
        if client is not None:
            self._shell.disconnected(client)
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        self._transport.abort()

    def _handshake_over(self) -> None:
        if self._client is not None and not self._client.is_ready:
            self._shell.server.refused += 1
            self.abort()

    def data_received(self, data: bytes) -> None:
        client = self._client
        if client is not None and not client.closed:
            self._has_more = client.receive_data(data, self._shell.now())
            self._worked()

    def _work(self) -> None:
        client = self._client
        if client is not None and not client.closed:
            self._has_more = client.work(self._shell.now())
            self._worked()

    def _worked(self) -> None:
        if self._has_more:
            asyncio.get_running_loop().call_soon(self._work)
        self._shell.requested()

    def pause_writing(self) -> None:
        self._is_congested = True

    def resume_writing(self) -> None:
        self._is_congested = False
        self.write()

    def write(self) -> None:
        """Write what the client is to get, and read from it while it takes requests."""
        client = self._client
        if client is None or self._transport.is_closing():
            return
        was_full = not client.takes_requests
        if not self._is_congested:
            data = client.take_output()
            if data:
                self._transport.write(data)
        if client.closed and self._is_congested:
            self._transport.abort()  # it would wait for a client that does not read
            return
        if client.closed:
            self._transport.close()
            return
        if was_full and client.takes_requests and not self._has_more:
            self._has_more = True
            asyncio.get_running_loop().call_soon(self._work)
        wants_data = client.takes_requests and not self._has_more
        if wants_data != self._is_reading:
            self._is_reading = wants_data
            if wants_data:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
