"""One running node: the broker core, its listeners, the API, the plugins, and its life from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import replace
from typing import Any, Final, cast

from broker.broker import Broker
from broker.codec.reason_codes import IMPLEMENTATION_SPECIFIC_ERROR
from broker.config.printer import changed_keys
from broker.config.settings import Settings
from broker.plugins import Plugin, load_plugin
from broker.server.count_log import CountLog, CountLogs
from broker.server.listeners import Listeners
from broker.server.logging import get_logger
from broker.server.protocol import ClientProtocol
from broker.server.turns import Turns
from broker.session.connection import Connection

LEAVE_SECONDS_MAX: Final = 3.5  # of the 5 s that a whole stop may take
CLOSE_SECONDS_MAX: Final = 1.0  # for clients to take what was written to them
PLUGIN_STOP_SECONDS_MAX: Final = 1.0


class Server:
    """Made and used inside a running loop."""

    def __init__(self, settings: Settings) -> None:
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        self.log = get_logger("server")
        self.broker = Broker(settings.mqtt, random.Random(), self.loop.time())
        self.listeners = Listeners(self)
        self.api: Any = None  # broker.api.server.ApiServer, loaded only when the configuration asks for it
        self.plugins: list[Plugin] = []
        self.protocols: set[ClientProtocol] = set()
        self.turns = Turns(self.broker, self.loop, self)
        self._wall_offset = time.time() - self.loop.time()
        self._count_logs: CountLogs | None = None
        self._started = False
        self._stopping = False
        self._stopped = asyncio.Event()
        self._all_closed = asyncio.Event()
        self.stop_reason = ""

    # --- clock and flush ---

    def now(self) -> float:
        """Monotonic seconds, the `now` of every core."""
        return self.turns.now()

    def wall_time(self, monotonic: float) -> float:
        """Unix seconds of a monotonic instant."""
        return monotonic + self._wall_offset

    def flush_soon(self) -> None:
        """After acting on the broker: write what it wants written at the end of this loop turn, once for each receiver."""
        self.turns.flush_soon()

    # --- connections ---

    def admit(self, protocol: ClientProtocol) -> bool:
        """Whether one more connection is within `max_connections`."""
        limit = self.settings.mqtt.max_connections
        if self._stopping or (limit and len(self.protocols) >= limit):
            self.broker.counters.connections_refused += 1
            return False
        self.protocols.add(protocol)
        return True

    def forget(self, protocol: ClientProtocol) -> None:
        self.protocols.discard(protocol)
        if not self.protocols:
            self._all_closed.set()

    def internal_error(self, connection: Connection, error: Exception) -> None:
        """A fault of ours: logged with its traceback, and only this connection ends."""
        self.log.error("fault in handling a client", client_id=connection.client_id, exc_info=error)
        try:
            self.broker.close_connection(connection, IMPLEMENTATION_SPECIFIC_ERROR, "internal error", self.now())
        except Exception as second:
            self.log.error("fault in closing a client", client_id=connection.client_id, exc_info=second)
            cast(ClientProtocol, connection.owner).abort()

    def plugin_error(self, error: Exception) -> None:
        self.log.error("fault in a plugin", exc_info=error)

    def timer_error(self, error: Exception) -> None:
        self.log.error("fault in handling a timeout", exc_info=error)

    def _loop_fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What nobody caught, as a line of the log instead of loose text among it."""
        self.log.error("fault in a callback", text=context.get("message", ""), exc_info=context.get("exception"))

    # --- life ---

    async def start(self) -> None:
        """Open everything; raises StartError, after which `stop` gives back what was opened."""
        self.loop.set_exception_handler(self._loop_fault)
        settings = self.settings
        if settings.api.grpc or settings.api.http:
            from broker.api.server import ApiServer

            self.api = ApiServer(settings.api, get_logger("api"))
        for name in settings.plugin_order:
            plugin_class = load_plugin(name)
            if plugin_class is None:
                self.log.warning("plugin is not there yet", plugin=name)
                continue
            self.plugins.append(plugin_class(self))
        for plugin in self.plugins:
            await plugin.prepare()
        if self.api is not None:
            await self.api.start()
        await self.listeners.start()
        for plugin in self.plugins:
            await plugin.start()
        self.flush_soon()
        self._started = True
        self.log.info("started", listeners=self.listeners.addresses)
        self._count_logs = self._make_count_logs()
        self._count_logs.start()

    def _make_count_logs(self) -> CountLogs:
        counters = self.broker.counters
        now = self.now()

        def lost() -> dict[str, int]:
            found = dict(counters.messages_dropped)
            for plugin in self.plugins:
                found.update(plugin.lost_messages())
            return found

        def refused() -> dict[str, int]:
            found = {
                "connections_refused": counters.connections_refused,
                "protocol_errors": counters.protocol_errors,
                "subscriptions_refused": counters.subscriptions_refused,
            }
            for plugin in self.plugins:
                found.update(plugin.refused_input())
            return found

        return CountLogs(
            self.loop,
            [
                CountLog(self.log.warning, "messages dropped", lost, now),
                CountLog(self.log.info, "input refused", refused, now),
            ],
        )

    async def wait_stopped(self) -> None:
        """Until somebody inside asks for the end (`stop_soon`)."""
        await self._stopped.wait()

    def stop_soon(self, reason: str) -> None:
        """Ask for the end of the process, with the line that it ends with."""
        if not self.stop_reason:
            self.stop_reason = reason
        self.log.error("stopping", reason=reason)
        self._stopped.set()

    async def stop(self) -> None:
        """Graceful end within 5 s: no new clients, those here are told, the other nodes are told, everything is closed."""
        if self._stopping:
            return
        self._stopping = True
        self.listeners.close()
        self.broker.shut_down(self.now())
        self.turns.flush_now(self.now())
        goodbyes: list[Any] = [plugin.leave() for plugin in self.plugins]
        goodbyes.append(self._wait_closed())
        if self.api is not None:
            goodbyes.append(self.api.stop())
        await self._within(LEAVE_SECONDS_MAX, goodbyes, "leave")
        await self._within(PLUGIN_STOP_SECONDS_MAX, [plugin.stop() for plugin in reversed(self.plugins)], "stop")
        self.turns.stop()
        if self._count_logs is not None:
            self._count_logs.stop()
        self._stopped.set()
        self.loop.set_exception_handler(None)
        if self._started:
            self.log.info("stopped")

    async def _within(self, seconds: float, steps: list[Any], what: str) -> None:
        """Carry out the steps side by side; none of them can hold up or break the stop."""
        if not steps:
            return
        tasks = [asyncio.ensure_future(step) for step in steps]
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()
            self.log.warning("not done in time", what=what, seconds=seconds)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                self.log.error("failed", what=what, exc_info=result)

    async def _wait_closed(self) -> None:
        """Give the sockets of clients a moment to take their last bytes, then drop them."""
        if self.protocols:
            self._all_closed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), CLOSE_SECONDS_MAX)
        for protocol in list(self.protocols):
            protocol.abort()

    async def reload(self, settings: Settings) -> list[str]:
        """Take over what can change while running (`mqtt`, `log`); returns the keys that need a restart."""
        self.broker.apply_settings(settings.mqtt)
        need_restart = [key for key in changed_keys(self.settings, settings) if not key.startswith(("mqtt.", "log."))]
        # What needs the restart stays as it runs, so that the next reload names it again.
        self.settings = replace(self.settings, mqtt=settings.mqtt, log=settings.log)
        self.flush_soon()
        return need_restart
