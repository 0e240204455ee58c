"""The connections to the keepers of this node's store: the shell around federation/replication/keeper.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from broker.config.addresses import parse_address
from broker.message import NEVER
from federation.replication.copy_news import CopyNews
from federation.replication.keeper import Keeper, KeeperOutlet
from federation.shell.dialer import Dialer
from federation.stream.state import State


class KeeperConnection(asyncio.Protocol):
    """Of one attempt. `changed` is called after each event."""

    def __init__(self, keeper: Keeper, changed: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self.keeper = keeper
        self.attempt = keeper.attempt
        self._changed = changed
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        now = self._loop.time()
        self.keeper.connected(self.attempt, now)
        self.flush(now)

    def data_received(self, data: bytes) -> None:
        now = self._loop.time()
        try:
            self.keeper.receive_data(self.attempt, data, now)
            self.flush(now)
        except Exception as error:
            self._failed(error)
            self.keeper.connection_lost(self.attempt, "internal error", now)
        self._changed()

    def flush(self, now: float) -> None:
        """Write what is due. The keeper's window bounds what can wait in the transport."""
        transport = self._transport
        if transport is not None and self.attempt == self.keeper.attempt:
            data = self.keeper.data_to_send(now)
            if data:
                transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        reason = str(exc) if exc else "closed by the other node"
        self.keeper.connection_lost(self.attempt, reason, self._loop.time())
        self._changed()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class KeeperWriter(KeeperOutlet):
    """Writes to the open connection of a keeper."""

    def __init__(self, connection: KeeperConnection) -> None:
        self._connection = connection

    def flush_at(self, now: float) -> None:
        self._connection.flush(now)


class KeeperClients:
    """`follow` must be called after each call to the keepers from outside; `changed` is called after those made here."""

    def __init__(self, changed: Callable[[], None], log: Any, dialer: Dialer | None) -> None:
        self._changed = changed
        self._log = log
        self._dialer = dialer
        self._loop = asyncio.get_running_loop()
        self._connections: dict[Keeper, KeeperConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._news: dict[str, CopyNews] = {}  # by the name of the keeper
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, keepers: dict[str, Keeper]) -> None:
        """One connection for each keeper that wants one."""
        wanted = list(keepers.values())
        for keeper, connection in list(self._connections.items()):
            is_open = keeper.state in (State.HELLO, State.STREAMING) and keeper.attempt == connection.attempt
            if keeper not in wanted or not is_open:
                del self._connections[keeper]
                keeper.outlet = None
                connection.close()
        for keeper in wanted:
            if keeper.state is State.HELLO and keeper not in self._connections:
                connection = KeeperConnection(keeper, self._changed, self._failed)
                self._connections[keeper] = connection
                keeper.outlet = KeeperWriter(connection)
                task = self._loop.create_task(self._connect(keeper, connection))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        self._news = {keeper.name: self._news.get(keeper.name) or CopyNews() for keeper in wanted}
        self._tell(wanted)

    async def _connect(self, keeper: Keeper, connection: KeeperConnection) -> None:
        try:
            if keeper.is_tls:
                assert self._dialer is not None
                await self._dialer.connect(keeper.name, keeper.addr, lambda: connection)
            else:
                address = parse_address(keeper.addr)
                await self._loop.create_connection(lambda: connection, address.host, address.port)
        except OSError as error:
            keeper.connection_lost(connection.attempt, f"cannot connect: {error.strerror or error}", self._loop.time())
            self._changed()
        except Exception as error:
            self._failed(error)
            keeper.connection_lost(connection.attempt, "internal error", self._loop.time())
            self._changed()

    def _failed(self, error: Exception) -> None:
        self._log.error("fault in the copy of the store on another node", exc_info=error)

    def _tell(self, keepers: list[Keeper]) -> None:
        """Log when copies become whole, and when they are so no more."""
        now = self._loop.time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_at = NEVER
        for keeper in keepers:
            news = self._news[keeper.name]
            if news.look(keeper.is_whole, now):
                self._log_news(keeper, news)
            due_at = min(due_at, news.due_at)
        if due_at != NEVER:
            self._timer = self._loop.call_at(due_at, self._tell, keepers)

    def _log_news(self, keeper: Keeper, news: CopyNews) -> None:
        if news.is_whole:
            fields = {"node": keeper.name, "addr": keeper.addr, "times_short": news.take_times_short()}
            self._log.info("the copy of the store on another node is whole", **fields)
        else:
            reason = keeper.reason or "it does not answer in time"
            self._log.warning("the copy of the store on another node is not whole", node=keeper.name, reason=reason)

    async def stop(self) -> None:
        for keeper, connection in self._connections.items():
            keeper.outlet = None
            connection.close()
        self._connections.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
