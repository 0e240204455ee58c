"""A node as a process: start, signals, reloads, stop."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from broker.config.loader import load
from broker.config.settings import Settings
from broker.server.command_fault import EXIT_FAILED
from broker.server.lifecycle import Server
from broker.server.logging import get_logger, setup_logging
from broker.server.named_files import folder_of
from broker.server.node_loop import NodeLoop
from broker.server.open_files import connections_max, few_files_warning, raise_file_limit
from broker.server.pid_file import PidFileError, remove_pid, write_pid
from broker.server.service_manager import ServiceManager
from broker.server.start_error import StartError

if TYPE_CHECKING:
    from broker.server.worker import Worker

STOP_TIMEOUT: Final = 4.5  # for `Server.stop`
SAME_REQUEST_SECONDS: Final = (
    0.5  # `timeout -s INT` and a shell signal the process and its group: two signals, one request
)
EXIT_TIMEOUT: Final = 5.0  # from the signal to the end of the process, also when the loop or a thread hangs


def run_node(settings: Settings, config_file: str, allow_missing: bool, worker: Worker | None = None) -> NoReturn:
    """Run a node, or a worker of one, until a stop is requested, and end the process."""
    gc.disable()  # while modules are loaded and a store is read, whose objects stay; see _settle_memory
    if settings.pid_file:
        try:
            write_pid(settings.pid_file)
        except PidFileError as error:
            click.echo(f"gmqttd: {error}", err=True)
            sys.exit(EXIT_FAILED)
    try:
        with asyncio.Runner(loop_factory=NodeLoop) as runner:
            _server, status = runner.run(_serve(settings, config_file, allow_missing, worker))
    finally:
        if settings.pid_file:
            remove_pid(settings.pid_file)
    # The objects of `_server` are not freed: with a million subscriptions that takes longer than EXIT_TIMEOUT.
    os._exit(status)


async def _serve(
    settings: Settings, config_file: str, allow_missing: bool, worker: Worker | None
) -> tuple[Server, int]:
    """The stopped node and the exit status."""
    file_limit = raise_file_limit()
    server = Server(settings, folder_of(config_file), worker)
    server.connections_possible = connections_max(file_limit)
    run = Run(server, settings, config_file, allow_missing, file_limit)
    run.install_signals()
    try:
        return server, await run.until_stopped()
    except StartError as error:
        click.echo(f"gmqttd: {error}", err=True)
        return server, EXIT_FAILED


class Run:
    """One run of a server: start, signals, stop. A signal during the start stops it as well."""

    def __init__(
        self, server: Server, settings: Settings, config_file: str, allow_missing: bool, file_limit: int
    ) -> None:
        self._server = server
        self._settings = settings
        self._config_file = config_file
        self._allow_missing = allow_missing
        self._file_limit = file_limit
        self._stop_signal_at = math.inf  # of the first one
        self._stop_asked = asyncio.Event()
        self._reload_asked = asyncio.Event()
        self._log = get_logger("server")
        self._worker = server.worker
        loop = asyncio.get_running_loop()
        if self._worker is None:
            self._service_manager = ServiceManager(loop)
        else:
            from broker.server.worker import Channel

            self._worker.finish = self.ask_stop
            self._service_manager = Channel(loop, self._worker)

    def install_signals(self) -> None:
        """SIGTERM and SIGINT request the stop; a second, later one ends the process at once. SIGHUP requests a reload."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask_stop, number.name)
        loop.add_signal_handler(signal.SIGHUP, self._reload_asked.set)

    def ask_stop(self, cause: str) -> None:
        """Stop gracefully. `cause` is the name of a signal, or a sentence."""
        now = asyncio.get_running_loop().time()
        if now - self._stop_signal_at >= SAME_REQUEST_SECONDS:
            self._exit_now(f"{cause} came a second time")
        if self._stop_asked.is_set():
            return
        self._stop_signal_at = now
        self._log.info("stopping", signal=cause)
        self._stop_asked.set()
        # A thread, because the loop, its executor or a library's threads may hang.
        timer = threading.Timer(EXIT_TIMEOUT, self._exit_now, (f"the stop took more than {EXIT_TIMEOUT:g} s",))
        timer.daemon = True
        timer.start()

    def _exit_now(self, reason: str) -> None:
        self._log.error("ended at once; other nodes see a failure", reason=reason)
        if self._settings.pid_file:
            remove_pid(self._settings.pid_file)
        os._exit(EXIT_FAILED)

    async def until_stopped(self) -> int:
        """Start, serve until a stop is requested or the server stops itself, stop. Returns the exit status."""
        asked = asyncio.ensure_future(self._stop_asked.wait())
        starting = asyncio.ensure_future(self._server.start())
        stopped: asyncio.Future[Any] | None = None
        reloading: asyncio.Future[None] | None = None
        try:
            await asyncio.wait((asked, starting), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                await asyncio.wait((starting,), timeout=STOP_TIMEOUT)
            elif (error := starting.exception()) is not None:
                await self._stop()  # closes the listeners that were opened before the fault
                raise error
            _settle_memory()
            if not self._stop_asked.is_set():
                self._log.info("serving", process=os.getpid(), config=self._config_file)
                self._service_manager.ready()
                self._warn_of_few_files(self._settings)
                reloading = asyncio.ensure_future(self._reload_when_asked())
                stopped = asyncio.ensure_future(self._server.wait_stopped())
                await asyncio.wait((asked, stopped), return_when=asyncio.FIRST_COMPLETED)
            in_time = await self._stop()
            if stopped is not None and stopped.done() and not stopped.cancelled() and not asked.done():
                stopped.result()
                click.echo(f"gmqttd: {self._server.stop_reason or 'the node has ended by itself'}", err=True)
                return EXIT_FAILED
            return 0 if in_time else EXIT_FAILED
        finally:
            for task in (asked, starting, stopped, reloading):
                if task is not None:
                    task.cancel()

    def _warn_of_few_files(self, settings: Settings) -> None:
        workers = 1 if self._worker is None else self._worker.place.count
        warning = few_files_warning(settings.mqtt, self._file_limit, workers)
        if warning:
            self._log.warning(warning)

    async def _stop(self) -> bool:
        """Stop within STOP_TIMEOUT. False when the time was too short or the stop failed."""
        self._service_manager.stopping()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await self._server.stop()
        except TimeoutError:
            self._log.error("the stop took too long and is cut short", seconds=STOP_TIMEOUT)
            return False
        except Exception as error:
            self._log.error("stop failed", error=repr(error), exc_info=error)
            return False
        return True

    async def _reload_when_asked(self) -> None:
        """Reload after each SIGHUP. A bad file or a fault in reloading does not end this loop."""
        while True:
            await self._reload_asked.wait()
            self._reload_asked.clear()
            self._service_manager.reloading()
            try:
                await self._reload()
            except Exception as error:
                self._log.error("reload failed, the node runs on", error=repr(error), exc_info=error)
            self._service_manager.ready()

    async def _reload(self) -> None:
        result = load(self._config_file, self._allow_missing)
        for warning in result.warnings:
            self._log.warning(str(warning))
        if result.settings is None:
            for fault in result.faults:
                self._log.error(str(fault))
            self._log.error("configuration not reloaded, the node keeps the former one")
            return
        settings = result.settings if self._worker is None else self._worker.settings(result.settings)
        setup_logging(settings.log)
        self._warn_of_few_files(settings)
        need_restart = await self._server.reload(settings)
        for key in need_restart:
            self._log.warning("this change takes effect after a restart", key=key)
        self._log.info("configuration reloaded", file=self._config_file)


def _settle_memory() -> None:
    """Exclude the objects of the start from garbage collection. A full collection with all modules loaded takes 18 ms, in
    which no client is served.

    With 10,000 clients it takes 50 ms, and finds nothing: connections and sessions that end leave no cycles behind, and what
    the API leaves is young. So a full collection comes once for 400 million objects more than were freed."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 1_000)
