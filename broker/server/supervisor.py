"""The supervisor of the workers of a node: starts their processes, watches them, passes signals on, and speaks for them.

A worker is a fork of this process, which has loaded what a worker needs and runs no thread and no loop: a start again takes
some milliseconds, and the workers share the memory of the modules.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import gc
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import click

from broker.config.loader import load
from broker.config.rules import check_worker_ports
from broker.config.settings import Settings
from broker.message import NEVER
from broker.metrics.figures import decoded, encoded, ended
from broker.plugins import load_plugin
from broker.server.command_fault import EXIT_FAILED
from broker.server.held_addresses import HeldAddresses
from broker.server.listener import reloaded
from broker.server.logging import get_logger, name_process, setup_logging
from broker.server.named_files import folder_of, make_folder, path_in
from broker.server.pid_file import PidFileError, remove_pid, write_pid
from broker.server.run import run_node
from broker.server.service_manager import notify, reloading_text, watchdog_seconds
from broker.server.shared_counts import ABSENT, SharedCounts
from broker.server.shared_figures import SharedFigures
from broker.server.start_error import StartError
from broker.server.worker import DRAINED, MESSAGE_BYTES_MAX, Worker
from broker.server.worker_folders import leaving_workers, worker_count
from broker.workers.shares import FEDERATION, Place, worker_folder
from broker.workers.supervision import TURN_SECONDS, Do, NodeEnds, NodeReady, Step, Supervision, told

GOSSIP_KEY_BYTES: Final = 32
METRICS: Final = "prometheus"  # the plugin
PR_SET_PDEATHSIG: Final = 1  # prctl(2)
SIGNALS: Final = {Step.STOP: signal.SIGTERM, Step.KILL: signal.SIGKILL, Step.RELOAD: signal.SIGHUP}
HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def run_supervisor(settings: Settings, config_file: str, allow_missing: bool) -> NoReturn:
    """Run the workers of a node until a stop is requested, and end the process."""
    status = EXIT_FAILED
    supervisor: Supervisor | None = None
    try:
        if settings.pid_file:
            write_pid(settings.pid_file)
        supervisor = Supervisor(settings, config_file, allow_missing)
        status = supervisor.run()
    except (StartError, PidFileError) as error:
        click.echo(f"gmqttd: {error}", err=True)
    finally:
        if supervisor is not None:
            supervisor.close()
        if settings.pid_file:
            remove_pid(settings.pid_file)
    sys.exit(status)


def end_with(parent: int) -> None:
    """Have the system kill this process when its parent ends in whatever way, so that the node can be started again at once.
    Where the system cannot, the worker stops when its channel ends."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended just before
        os._exit(EXIT_FAILED)


class Supervisor:
    """The processes of `Supervision`'s workers."""

    def __init__(self, settings: Settings, config_file: str, allow_missing: bool) -> None:
        """Open what must stay while workers come and go. Raises StartError."""
        self._settings = settings
        for key, text in check_worker_ports(
            settings, worker_count(settings.workers)
        ):  # of `auto`, nobody has looked yet
            raise StartError(f"{key}: {text}")
        self._config_file = config_file
        self._allow_missing = allow_missing
        self._log = get_logger("supervisor")
        self._folder = tempfile.mkdtemp(prefix="gmqttd-")
        self._held = HeldAddresses()
        self._selector = selectors.DefaultSelector()
        self._processes: dict[int, int] = {}  # indexes by process id
        self._channels: dict[int, socket.socket] = {}
        self._count = worker_count(settings.workers)
        self._data_dir = path_in(folder_of(config_file), settings.data_dir) if settings.data_dir else ""
        leaving = leaving_workers(settings, self._data_dir, self._count)
        self._gossip: dict[int, tuple[socket.socket, socket.socket]] = {}
        try:
            self._open((*range(self._count), *leaving))
        except BaseException:
            self.close()
            raise
        self._gossip_ports = {index: pair[0].getsockname()[1] for index, pair in self._gossip.items()}
        self._gossip_key = base64.b64encode(os.urandom(GOSSIP_KEY_BYTES)).decode()
        self._core = Supervision(self._count, leaving)
        self._counts = SharedCounts(self._count)
        self._figures = SharedFigures((*range(self._count), *leaving))
        self._started_at = time.monotonic()
        if leaving:
            self._log.info("workers of an earlier start give away what they have", workers=list(leaving))

    def _open(self, indexes: Iterable[int]) -> None:
        """Raises StartError."""
        if self._data_dir:
            make_folder("data_dir", self._data_dir)  # the folders of workers are in it
        self._held.open_listeners(self._settings.listeners, self._count)
        for index in indexes:
            self._gossip[index] = self._held.gossip_sockets()

    def run(self) -> int:
        """Returns the exit status of the node."""
        for name in (*self._settings.plugin_order, FEDERATION):
            load_plugin(name)
        gc.collect()
        gc.freeze()
        woken = self._install_signals()
        self._core.begin(time.monotonic())
        self._log.info("workers start", workers=self._count, process=os.getpid())
        alive_seconds = watchdog_seconds() or NEVER
        alive_at = 0.0 if alive_seconds != NEVER else NEVER
        while (status := self._carry_out()) < 0:
            now = time.monotonic()
            if alive_at <= now:
                notify("WATCHDOG=1")
                alive_at = now + alive_seconds
            until = min(self._core.next_timeout(), alive_at, now + TURN_SECONDS)
            events = self._selector.select(max(0.0, until - now))
            now = time.monotonic()
            self._core.turn(now)
            self._take(events, woken, now)
            self._core.handle_timeout(now)
        return status

    def _take(self, events: Sequence[tuple[selectors.SelectorKey, int]], woken: socket.socket, now: float) -> None:
        """Take what has come at the same time: signals, and messages of workers."""
        for key, _ in events:
            if key.fileobj is woken:
                self._take_signals(woken, now)
            else:
                self._take_message(key.data, now)

    def close(self) -> None:
        """Close and remove what the workers had."""
        self._held.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- signals

    def _install_signals(self) -> socket.socket:
        reading, writing = socket.socketpair()
        reading.setblocking(False)
        writing.setblocking(False)
        signal.set_wakeup_fd(writing.detach(), warn_on_full_buffer=False)
        for number in HANDLED:
            signal.signal(number, lambda *_: None)
        self._selector.register(reading, selectors.EVENT_READ)
        return reading

    def _take_signals(self, woken: socket.socket, now: float) -> None:
        for number in dict.fromkeys(woken.recv(MESSAGE_BYTES_MAX)):
            if number == signal.SIGHUP:
                found = load(self._config_file, self._allow_missing).settings
                if found is not None:  # else each worker names the faults, and keeps the former ones
                    self._settings = reloaded(self._settings, found)
                if self._core.reload(now):
                    notify(reloading_text())
                    notify("READY=1")
            elif number in (signal.SIGTERM, signal.SIGINT):
                self._log.info("stopping", signal=signal.Signals(number).name)
                notify("STOPPING=1")
                self._core.stop(now)
        self._take_ends(now)

    def _take_ends(self, now: float) -> None:
        """Look which workers have ended."""
        for process, index in list(self._processes.items()):
            found, status = os.waitpid(process, os.WNOHANG)
            if not found:
                continue
            del self._processes[process]
            self._counts.set(index, ABSENT)
            channel = self._channels.pop(index)
            while self._take_one(channel, index, now):
                pass
            self._selector.unregister(channel)
            channel.close()
            code = os.waitstatus_to_exitcode(status)
            if not self._core.is_stopping:
                self._log.warning("a worker has ended", worker=index, process=process, end=told(code))
            self._figures.write(index, encoded(ended(decoded(self._figures.read(index)))))
            self._core.died(index, code, now)
            self._counts.set_restarts(index, self._core.restarts[index])

    # --- messages of workers

    def _take_message(self, index: int, now: float) -> None:
        channel = self._channels.get(index)
        if channel is not None:  # `_take_ends` of this turn may have closed it
            self._take_one(channel, index, now)

    def _take_one(self, channel: socket.socket, index: int, now: float) -> bool:
        """Take one message. False where there is none."""
        try:
            text = channel.recv(MESSAGE_BYTES_MAX).decode()
        except OSError:
            return False
        if text.startswith("READY=1"):
            self._core.ready(index, now)
        elif text == DRAINED:
            self._core.given_all(index)
        elif text:
            self._core.heard(index, now)
        return bool(text)

    # --- what the core wants

    def _carry_out(self) -> int:
        """Returns the exit status of the node; -1 while it runs."""
        for effect in self._core.take_effects():
            if isinstance(effect, NodeReady):
                self._log.info("serving", process=os.getpid(), workers=self._count, config=self._config_file)
                notify("READY=1")
            elif isinstance(effect, NodeEnds):
                if effect.reason:
                    click.echo(f"gmqttd: {effect.reason}", err=True)
                return 0 if effect.is_clean else EXIT_FAILED
            else:
                self._do(effect)
        return -1

    def _do(self, effect: Do) -> None:
        index = effect.index
        if effect.step is Step.START:
            self._start(index)
            return
        if effect.step is Step.CLEAR:
            self._clear(index)
            return
        if effect.reason:
            self._log.error("a worker is killed", worker=index, reason=effect.reason)
        for process, other in self._processes.items():
            if other == index:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, SIGNALS[effect.step])

    def _clear(self, index: int) -> None:
        folder = Path(worker_folder(self._data_dir, index))
        try:
            shutil.rmtree(folder)
        except OSError as error:  # the next start finds it, and starts the worker once more
            text = "all sessions of a worker are with others, but its folder cannot be removed"
            self._log.error(text, worker=index, folder=str(folder), reason=error.strerror or str(error))
            return
        self._log.info(
            "all sessions of a worker are with others, its folder is removed", worker=index, folder=str(folder)
        )

    def _start(self, index: int) -> None:
        """Start a worker. One that the system has no process or socket for has ended at once."""
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self._not_started(index, error)
            return
        parent = os.getpid()
        try:
            process = os.fork()
        except OSError as error:
            ours.close()
            theirs.close()
            self._not_started(index, error)
            return
        if process == 0:
            try:
                end_with(parent)
                ours.close()
                self._become_worker(index, theirs)
            except Exception as error:
                self._log.error("a worker has failed", worker=index, error=repr(error), exc_info=error)
            finally:
                os._exit(EXIT_FAILED)
        theirs.close()
        ours.setblocking(False)
        self._processes[process] = index
        self._channels[index] = ours
        self._selector.register(ours, selectors.EVENT_READ, index)
        self._log.info("worker started", worker=index, process=process, starts_before=self._core.restarts[index])

    def _not_started(self, index: int, error: OSError) -> None:
        self._log.error("a worker cannot be started now", worker=index, reason=error.strerror or str(error))
        self._core.died(index, EXIT_FAILED, time.monotonic())
        self._counts.set_restarts(index, self._core.restarts[index])

    def _become_worker(self, index: int, channel: socket.socket) -> NoReturn:
        """Go on as the worker, in its process."""
        signal.set_wakeup_fd(-1)
        for number in HANDLED:
            signal.signal(number, signal.SIG_DFL)
        self._selector.close()
        for other in self._channels.values():
            other.close()
        for other_index, pair in self._gossip.items():
            if other_index != index:
                for sock in pair:
                    sock.close()
        is_member = FEDERATION in self._settings.plugin_order
        ports = {other: self._gossip_ports[other] for other in self._core.present()}
        place = Place(index, self._count, is_member, ports, self._gossip_key)
        api = self._settings.api
        worker = Worker(
            place,
            self._folder,
            self._gossip[index],
            self._held.unix_sockets,
            channel,
            self._counts,
            bool(api.grpc or api.http) or METRICS in self._settings.plugin_order,
            self._figures,
            self._started_at,
        )
        name_process(worker=index)
        settings = worker.settings(self._settings)
        setup_logging(settings.log)
        run_node(settings, self._config_file, self._allow_missing, worker)
