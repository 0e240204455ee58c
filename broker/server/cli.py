"""The command `gmqttd`: start, check, reload, defaults, version.

A command imports only what it needs, when it needs it: `gmqttd check` loads neither an event loop nor gRPC.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from broker.config.loader import Warning
    from broker.config.settings import Settings
    from broker.server.lifecycle import Server

EXIT_FAILED: Final = 1
EXIT_BAD_CONFIGURATION: Final = 2
STOP_TIMEOUT: Final = 4.5  # for the server's own stop
EXIT_TIMEOUT: Final = 5.0  # from the signal to the end of the process, also when the loop or a thread hangs
HOME_CONFIG_FILE: Final = "gmqtt.yml"
GO_CONFIG_FILE: Final = "/etc/gmqtt/gmqttd.yml"  # the default of the Go broker
OUTPUT_FAULTS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

Command = TypeVar("Command", bound=Callable[..., Any])


class Commands(click.Group):
    """The group of commands, with a sentence instead of a traceback where standard output cannot be written."""

    def main(self, *args: Any, **options: Any) -> Any:
        _open_standard_descriptors()
        try:
            return super().main(*args, **options)
        except OSError as error:
            if error.errno not in OUTPUT_FAULTS or error.filename is not None:
                raise
            _fail(f"standard output cannot be written: {error.strerror}")


def _open_standard_descriptors() -> None:
    """Open the null device under each of 0, 1 and 2 that is closed. A socket would get that number otherwise, and libuv
    aborts the process when it closes one of the three."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def default_config_file() -> str:
    """The file of a command without -c: the first of the two default files that exists. Exits when neither does."""
    home = os.path.join(os.path.expanduser("~"), HOME_CONFIG_FILE)
    for file in (home, GO_CONFIG_FILE):
        if os.path.exists(file):
            return file
    click.echo(f"gmqttd: neither {home} nor {GO_CONFIG_FILE} exists; name a configuration file with -c FILE", err=True)
    sys.exit(EXIT_BAD_CONFIGURATION)


def _print_version(context: click.Context, _option: click.Parameter, is_set: bool) -> None:
    if is_set and not context.resilient_parsing:
        click.echo(f"gmqttd {_version_text()}")
        context.exit()


def _chosen_file(context: click.Context, _option: click.Parameter, file: str | None) -> str | None:
    """-c of the command, else -c before the command, else a default file."""
    if context.resilient_parsing:  # the shell asks for completions
        return file
    return file or context.find_root().params["config_file"] or default_config_file()


def config_option(callback: Callable[..., str | None] | None) -> Callable[[Command], Command]:
    return click.option(
        "-c",
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(),
        callback=callback,
        help=f"The configuration file.  [default: ~/{HOME_CONFIG_FILE}, else {GO_CONFIG_FILE}]",
    )


allow_missing_option = click.option(
    "--allow-missing",
    is_flag=True,
    help="Warn of plugins and security features that the file asks for and that are not there, instead of refusing.",
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version, and exit.",
)
@config_option(None)
def main(config_file: str | None) -> None:
    """An MQTT broker whose nodes act as one."""


@main.command()
@config_option(_chosen_file)
@allow_missing_option
def start(config_file: str, allow_missing: bool) -> None:
    """Run a node until SIGTERM or SIGINT. SIGHUP reads the file again."""
    settings, warnings = _load_or_exit(config_file, allow_missing)
    from broker.server.form import log_form
    from broker.server.logging import get_logger, setup_logging

    setup_logging(settings.log)
    log_form(get_logger("server"))
    log = get_logger("config")
    for warning in warnings:
        log.warning(str(warning))
    sys.exit(_run(settings, config_file, allow_missing))


@main.command()
@config_option(_chosen_file)
@allow_missing_option
def check(config_file: str, allow_missing: bool) -> None:
    """Print the effective configuration, or every fault (exit status 2)."""
    settings, warnings = _load_or_exit(config_file, allow_missing)
    _print_warnings(warnings)
    from broker.config.printer import effective_yaml

    click.echo(effective_yaml(settings), nl=False)


@main.command()
@config_option(_chosen_file)
@allow_missing_option
def reload(config_file: str, allow_missing: bool) -> None:
    """Tell the running node to read its file again."""
    settings, _ = _load_or_exit(config_file, allow_missing)
    from broker.server.pid_file import PidFileError, read_pid

    if not settings.pid_file:
        _fail(f"{config_file}: pid_file is not set, so the node cannot be found; set it and restart the node")
    import signal

    try:
        pid = read_pid(settings.pid_file)
        os.kill(pid, signal.SIGHUP)
    except PidFileError as error:
        _fail(str(error))
    except ProcessLookupError:
        _fail(f"{settings.pid_file}: the node has just ended")
    except PermissionError:
        _fail(f"{settings.pid_file}: the node with process id {pid} belongs to another user")
    click.echo(f"told the node with process id {pid} to read its configuration again; its log tells the result")


@main.command()
def defaults() -> None:
    """Print a configuration file with every key, its meaning and its default, those of installed plugins too."""
    from broker.config.document import default_yaml

    click.echo(default_yaml(), nl=False)


@main.command()
def version() -> None:
    """Print the version, the form that runs and why, and where the files are that came with it."""
    from broker.server.form import shared_folder, version_text

    click.echo(f"gmqttd {version_text()}")
    click.echo(f"configurations, systemd unit, documentation: {shared_folder()}")


def _settle_memory() -> None:
    """Keep the garbage collector from the objects that were made for the start. A full collection with all modules loaded
    takes 18 ms, in which no client is served."""
    import gc

    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _load_or_exit(config_file: str, allow_missing: bool) -> tuple[Settings, list[Warning]]:
    from broker.config.loader import load

    result = load(config_file, allow_missing)
    if result.settings is None:
        _print_warnings(result.warnings)
        for fault in result.faults:
            click.echo(str(fault), err=True)
        sys.exit(EXIT_BAD_CONFIGURATION)
    return result.settings, result.warnings


def _print_warnings(warnings: list[Warning]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def _fail(text: str) -> NoReturn:
    click.echo(f"gmqttd: {text}", err=True)
    sys.exit(EXIT_FAILED)


def _run(settings: Settings, config_file: str, allow_missing: bool) -> int:
    """Run the node under uvloop; the exit status."""
    import asyncio

    import uvloop

    from broker.server.pid_file import PidFileError, remove_pid, write_pid

    if settings.pid_file:
        try:
            write_pid(settings.pid_file)
        except PidFileError as error:
            click.echo(f"gmqttd: {error}", err=True)
            return EXIT_FAILED
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings, config_file, allow_missing))
    finally:
        if settings.pid_file:
            remove_pid(settings.pid_file)


async def _serve(settings: Settings, config_file: str, allow_missing: bool) -> int:
    from broker.server.lifecycle import Server
    from broker.server.open_files import raise_file_limit, within_files
    from broker.server.start_error import StartError

    file_limit = raise_file_limit()
    server = Server(within_files(settings, file_limit))
    run = Run(server, settings, config_file, allow_missing, file_limit)
    run.install_signals()
    try:
        return await run.until_stopped()
    except StartError as error:
        click.echo(f"gmqttd: {error}", err=True)
        return EXIT_FAILED


class Run:
    """One run of a server: start, signals, stop. A signal during the start stops it as well."""

    def __init__(
        self, server: Server, settings: Settings, config_file: str, allow_missing: bool, file_limit: int
    ) -> None:
        import asyncio

        from broker.server.logging import get_logger
        from broker.server.stop_signals import StopSignals

        self._server = server
        self._settings = settings
        self._config_file = config_file
        self._allow_missing = allow_missing
        self._file_limit = file_limit
        self._stop_signals = StopSignals()
        self._stop_asked = asyncio.Event()
        self._reload_asked = asyncio.Event()
        self._log = get_logger("server")

    def install_signals(self) -> None:
        """SIGTERM and SIGINT ask for the stop, a second, later one ends the process at once. SIGHUP asks for a reload."""
        import asyncio
        import signal

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask_stop, number.name)
        loop.add_signal_handler(signal.SIGHUP, self._reload_asked.set)

    def ask_stop(self, signal_name: str) -> None:
        import asyncio

        from broker.server.stop_signals import Wish

        wish = self._stop_signals.receive(asyncio.get_running_loop().time())
        if wish is Wish.END_NOW:
            self._exit_now(f"{signal_name} came a second time")
        if wish is not Wish.STOP:
            return
        self._log.info("stopping", signal=signal_name)
        self._stop_asked.set()
        import threading

        # In a thread, because the loop, its executor or the threads of a library may hang.
        timer = threading.Timer(EXIT_TIMEOUT, self._exit_now, (f"the stop took more than {EXIT_TIMEOUT:g} s",))
        timer.daemon = True
        timer.start()

    def _exit_now(self, reason: str) -> None:
        from broker.server.pid_file import remove_pid

        self._log.error("ended at once, other nodes see a failure", reason=reason)
        if self._settings.pid_file:
            remove_pid(self._settings.pid_file)
        os._exit(EXIT_FAILED)

    async def until_stopped(self) -> int:
        """Start, serve until asked to stop or until the server ends by itself, stop; the exit status."""
        import asyncio

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
                await self._stop()  # what was opened before the fault
                raise error
            _settle_memory()
            if not self._stop_asked.is_set():
                self._log.info("serving", process=os.getpid(), config=self._config_file)
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
        from broker.server.open_files import few_files_warning

        warning = few_files_warning(settings.mqtt, self._file_limit)
        if warning:
            self._log.warning(warning)

    async def _stop(self) -> bool:
        """Stop within STOP_TIMEOUT; False where that was too short or the stop itself failed."""
        import asyncio

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
        """The reload loop: no file and no fault in reloading ends it."""
        while True:
            await self._reload_asked.wait()
            self._reload_asked.clear()
            try:
                await self._reload()
            except Exception as error:
                self._log.error("reload failed, the node runs on", error=repr(error), exc_info=error)

    async def _reload(self) -> None:
        from broker.config.loader import load
        from broker.server.logging import setup_logging
        from broker.server.open_files import within_files

        result = load(self._config_file, self._allow_missing)
        for warning in result.warnings:
            self._log.warning(str(warning))
        if result.settings is None:
            for fault in result.faults:
                self._log.error(str(fault))
            self._log.error("the configuration is not taken, the node runs on with the former one")
            return
        setup_logging(result.settings.log)
        self._warn_of_few_files(result.settings)
        need_restart = await self._server.reload(within_files(result.settings, self._file_limit))
        for key in need_restart:
            self._log.warning("this change takes effect after a restart", key=key)
        self._log.info("the configuration is taken", file=self._config_file)
