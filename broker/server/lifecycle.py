"""One node from start to stop: listeners, API, plugins, and the log of counters."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from broker.config.printer import changed_keys
from broker.config.settings import Settings
from broker.metrics.metric import Metric
from broker.plugins import Plugin, load_plugin
from broker.server.bounded_log import CounterLog, CounterLogs
from broker.server.clock_watch import ClockWatch
from broker.server.exposure import api_warnings, exposure_warnings
from broker.server.host import Host
from broker.server.listeners import Listeners
from broker.server.logging import get_logger
from broker.server.memory_watch import MemoryWatch
from broker.server.named_files import make_folder
from broker.server.start_error import StartError
from broker.server.sys_publisher import SysPublisher
from broker.store.durability import Durability

if TYPE_CHECKING:
    from broker.api.health import HealthService
    from broker.server.worker import Worker

LEAVE_SECONDS_MAX: Final = 3.5  # of the 5 s that a whole stop may take
CLOSE_SECONDS_MAX: Final = 1.0  # for clients to read their last bytes and close
PLUGIN_STOP_SECONDS_MAX: Final = 1.0
STORE_SECONDS_MAX: Final = 1.0
LOOK_SECONDS: Final = 0.02  # between two looks whether other workers have read their stores
NOT_READ_AGAIN: Final = "a file was not read again, what it had before stays"
LOSERS_TOLD: Final = 3  # number of clients, and of topics, with most losses in a line of the log


class Server(Host):
    """Made and used inside a running loop: `start`, `wait_stopped`, `stop`."""

    def __init__(self, settings: Settings, config_folder: str = "", worker: Worker | None = None) -> None:
        super().__init__(settings, config_folder, worker)
        self.listeners = Listeners(self)
        self.plugins: list[Plugin] = []
        self._durability = Durability(self)
        self._counter_logs: CounterLogs | None = None
        self._sys_publisher = SysPublisher(self)
        self._memory_watch = MemoryWatch(self)
        self._clock_watch = ClockWatch(self)
        self._health: HealthService | None = None

    def _loop_fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.log.error("fault in a callback", text=context.get("message", ""), exc_info=context.get("exception"))

    async def start(self) -> None:
        """Open everything. Raises StartError; call `stop` afterwards to close what was opened."""
        self.loop.set_exception_handler(self._loop_fault)
        settings = self.settings
        self.observe_clients()
        await self._read_tokens()
        if settings.data_dir:
            make_folder(
                "data_dir", self.path_of(settings.data_dir)
            )  # plugins have files in it, before the store is opened
        worker = self.worker
        is_called = worker is not None and worker.has_face and worker.place.index > 0  # by worker 0
        if worker is not None:
            from broker.server.worker_face import WorkerFace

            self.face = WorkerFace(worker, self.own_figures)
        if settings.api.grpc or settings.api.http or is_called:
            from broker.api.health import HealthService
            from broker.api.pb import health_pb2
            from broker.api.server import ApiServer

            self.api = ApiServer(settings.api, self.pages, get_logger("api"), self.api_guard)
            self.api.siblings = None if self.face is None else self.face.siblings
            self._health = HealthService(self.not_ready, self.api.services)
            self.api.register(health_pb2.DESCRIPTOR.services_by_name["Health"], self._health)
        for name in settings.plugin_order:
            plugin_class = load_plugin(name)
            if plugin_class is not None:  # the loader has warned of a missing one
                self.plugins.append(plugin_class(self))
        for plugin in self.plugins:
            await plugin.prepare()
        await self._durability.open()
        if worker is not None:
            worker.counts.has_loaded(worker.place.index)
            # Else clients whose session is there are let in without it, and nobody takes for it what comes by the API. No event
            # comes from another process.
            while worker.counts.is_loading():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)
        if self.api is not None:
            await self.api.start()
        if self.face is not None:
            await self.face.start(self.api)
        await self.listeners.start()
        for plugin in self.plugins:
            self.tags.update(plugin.tags())
        for plugin in self.plugins:
            await plugin.start()
        self.flush_soon()
        self._started = True
        for key, text in (*exposure_warnings(settings, bool(self.broker.connect_deciders)), *api_warnings(settings)):
            self.log.warning(text, key=key)
        self.log.info("listeners started", mqtt=self.listeners.addresses)
        self._counter_logs = self._make_counter_logs()
        self._counter_logs.start()
        self._sys_publisher.follow_settings()
        self._memory_watch.start()
        self._clock_watch.start()

    async def _read_tokens(self) -> None:
        """Read the tokens of the API. Raises StartError; the former ones then stay."""
        if not self.settings.api.token_file:
            return
        guard = self.api_guard
        await asyncio.to_thread(guard.load)
        self.log.info("tokens of the API read", file=guard.path, tokens=guard.token_count)
        if not guard.token_count:
            self.log.warning("nobody can call the API: `gmqttd token create` makes a token", key="api.token_file")

    def metrics(self) -> list[Metric]:
        return super().metrics() + self.listeners.metrics() + self._durability.metrics() + self._memory_watch.metrics()

    def not_ready(self) -> list[str]:
        return super().not_ready() + self._durability.not_ready() + self._memory_watch.not_ready()

    async def copy_store(self, folder: Path) -> bool:
        return await self._durability.copy_to(folder)

    def listener_addresses(self) -> list[str]:
        return self.listeners.addresses

    def _make_counter_logs(self) -> CounterLogs:
        counters = self.broker.counters
        now = self.now()

        def losers() -> dict[str, Any]:
            lost_most = {
                "clients": counters.clients_that_lost.take(LOSERS_TOLD),
                "topics": counters.topics_that_lost.take(LOSERS_TOLD),
            }
            return {name: found for name, found in lost_most.items() if found}

        return CounterLogs(
            self.loop,
            [
                CounterLog(self.log.warning, "messages dropped", self.lost_messages, now, losers),
                CounterLog(self.log.info, "input refused", self.refused_input, now),
            ],
        )

    async def stop(self) -> None:
        """Stop gracefully within 5 s: refuse new clients, send DISCONNECT, leave the federation, close all sockets."""
        if self._stopping:
            return
        self._stopping = True
        if self._health is not None:
            self._health.stop()
        self.listeners.close()
        self.broker.shut_down(self.now())
        self.turns.flush_now(self.now())
        goodbyes: list[Any] = [plugin.leave() for plugin in self.plugins]
        goodbyes.append(self._wait_closed())
        if self.api is not None:
            goodbyes.append(self.api.stop())
        if self.face is not None:
            goodbyes.append(self.face.stop())
        await self._within(LEAVE_SECONDS_MAX, goodbyes, "leave")
        await self._within(PLUGIN_STOP_SECONDS_MAX, [plugin.stop() for plugin in reversed(self.plugins)], "stop")
        await self._within(STORE_SECONDS_MAX, [self._durability.close()], "stop the store")
        self._sys_publisher.stop()
        self._memory_watch.stop()
        self._clock_watch.stop()
        self.turns.stop()
        if self._counter_logs is not None:
            self._counter_logs.stop()
        self._stopped.set()
        self.loop.set_exception_handler(None)
        if self._started:
            self.log.info("stopped")

    async def _within(self, seconds: float, steps: list[Any], what: str) -> None:
        """Carry out the steps at the same time. One that fails or takes longer than `seconds` does not hold up the stop."""
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
        """Wait until clients have taken their last bytes, at most CLOSE_SECONDS_MAX, then end their sockets."""
        if self.protocols:
            self._all_closed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), CLOSE_SECONDS_MAX)
        for protocol in list(self.protocols):
            protocol.abort()

    async def reload(self, settings: Settings) -> list[str]:
        """Take over the keys of `mqtt` and `log` and limits of listeners, and have plugins read their files again; returns the
        changed keys that need a restart."""
        self.broker.apply_settings(settings.mqtt)
        self.listeners.renew_tls()
        if self.api is not None:
            self.api.renew_tls()
        try:
            await self._read_tokens()
        except StartError as error:
            self.log.error(NOT_READ_AGAIN, reason=str(error))
        need_restart = self.listeners.take_limits(settings.listeners) + [
            key
            for key in changed_keys(self.settings, settings)
            if not key.startswith(("mqtt.", "log.")) and key != "listeners"
        ]
        # The other settings stay as they run, so that the next reload names the keys again.
        self.settings = replace(self.settings, mqtt=settings.mqtt, log=settings.log)
        self.observe_clients()
        self._sys_publisher.follow_settings()
        self._memory_watch.follow_settings()
        for plugin in self.plugins:
            try:
                await plugin.reload()
            except StartError as error:
                self.log.error(NOT_READ_AGAIN, reason=str(error))
            except Exception as error:
                self.log.error("fault in a plugin's reload", plugin=type(plugin).__name__, exc_info=error)
        self.flush_soon()
        return need_restart
