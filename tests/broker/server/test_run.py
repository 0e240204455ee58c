"""A node as a process: start, signals, reload, stop. A fake server prints the calls that it gets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from broker.server.cli import main
from broker.server.form import installed_version, running_form
from node_process import free_port
from waiting import DEADLINE, eventually

GMQTTD: Final = "from broker.server.cli import main; main(prog_name='gmqttd')"

# Replaces broker.server.lifecycle in the process under test. The environment variable BEHAVIOUR names its fault.
FAKE_SERVER: Final = """
import asyncio, os, sys, types

behaviour = os.environ.get("BEHAVIOUR", "")
module = types.ModuleType("broker.server.lifecycle")

def say(text):
    print(text, flush=True)

from broker.server.start_error import StartError

class Server:
    stop_reason = ""
    worker = None
    def __init__(self, settings, config_folder, worker):
        say("made " + str(len(settings.listeners)))
        self.ended = asyncio.Event()
    async def start(self):
        if behaviour == "start fault":
            raise StartError("the port 1 is in use")
        if behaviour == "start hangs":
            say("starting")
            await asyncio.Event().wait()
        say("started")
        if behaviour == "ends":
            self.stop_reason = "the name is taken"
            self.ended.set()
    async def wait_stopped(self):
        await self.ended.wait()
    async def stop(self):
        say("stop")
        if behaviour == "stop hangs":
            await asyncio.Event().wait()
        if behaviour == "stop fault":
            raise RuntimeError("stop is broken")
        if behaviour == "stop blocks":
            import threading
            threading.Event().wait()
    async def reload(self, settings):
        say("reload " + settings.log.level)
        if behaviour == "reload fault":
            raise RuntimeError("reload is broken")
        return ["listeners"]

module.Server = Server
sys.modules["broker.server.lifecycle"] = module
from broker.server.cli import main
main()
"""


class Node:
    """A process of `gmqttd start`; its output line by line."""

    def __init__(self, folder: Path, config: str, behaviour: str = "") -> None:
        self.config = folder / "node.yml"
        self.config.write_text(config)
        script = folder / "gmqttd"
        script.write_text(FAKE_SERVER)
        self.process = subprocess.Popen(
            [sys.executable, str(script), "start", "-c", str(self.config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "BEHAVIOUR": behaviour},
        )
        self.errors = ""

    def expect(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().rstrip("\n") == line

    def expect_error(self, part: str) -> None:
        """Read standard error up to a line with this part."""
        assert self.process.stderr is not None
        while True:
            line = self.process.stderr.readline()
            assert line, f"no {part!r} in {self.errors!r}"
            self.errors += line
            if part in line:
                return

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def finish(self) -> tuple[int, str]:
        """Exit status and standard error."""
        _, errors = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, self.errors + errors


def after_start(errors: str) -> list[str]:
    """The lines after those about the form: one, and a warning for the interpreted form."""
    return errors.splitlines()[1 if running_form().name == "compiled" else 2 :]


Start = Callable[..., Node]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    nodes: list[Node] = []

    def start_node(config: str = "log: {level: info}\n", behaviour: str = "") -> Node:
        nodes.append(Node(tmp_path, config, behaviour))
        return nodes[-1]

    yield start_node
    for node in nodes:
        node.process.kill()
        node.process.communicate(timeout=DEADLINE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_node(start: Start, tmp_path: Path, number: int) -> None:
    pid_file = tmp_path / "node.pid"
    node = start(f"pid_file: {pid_file}\n")
    node.expect("made 1")
    node.expect("started")
    assert pid_file.read_text() == str(node.process.pid)
    node.expect_error("serving")
    node.signal(number)
    node.expect("stop")
    status, errors = node.finish()
    assert status == 0
    form, reason = running_form()
    starting = errors.splitlines()[0]
    assert f'info  server: starting version={installed_version()} form={form} reason="{reason}"' in starting
    serving, stopping = after_start(errors)
    assert f"info  server: serving process={node.process.pid} config={node.config}" in serving
    assert f"info  server: stopping signal={signal.Signals(number).name}" in stopping
    assert not pid_file.exists()


def test_a_second_later_signal_exits_at_once(start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "node.pid"
    node = start(f"pid_file: {pid_file}\n", "stop hangs")
    node.expect("made 1")
    node.expect("started")
    node.signal(signal.SIGTERM)
    node.expect("stop")
    while node.process.poll() is None:
        node.signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.process.wait(0.1)
    status, errors = node.finish()
    assert status == 1
    assert "SIGINT came a second time" in errors
    assert "took too long" not in errors
    assert not pid_file.exists()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
async def test_a_node_without_standard_descriptors_stops_cleanly(tmp_path: Path, closed: str) -> None:
    """libuv aborts the process when it closes a socket with the number 0, 1 or 2."""
    port = free_port()
    config = tmp_path / "node.yml"
    config.write_text(f"listeners: [{{address: '127.0.0.1:{port}'}}]\n")
    shell = f'exec "$0" -m broker start -c "$1" {closed}'
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", shell, sys.executable, str(config))

    def serves() -> bool:
        assert process.returncode is None
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        await eventually(serves, "the node serves clients")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_a_stop_that_hangs_ends_within_its_time(start: Start) -> None:
    """One stop waits for ever, another one blocks the loop."""
    told = {"stop hangs": "the stop took too long", "stop blocks": "the stop took more than 5 s"}
    nodes = {}
    for behaviour in told:
        node = nodes[behaviour] = start(behaviour=behaviour)
        node.expect("made 1")
        node.expect("started")
    for node in nodes.values():
        node.signal(signal.SIGTERM)
    for behaviour, node in nodes.items():
        status, errors = node.finish()
        assert status == 1
        assert told[behaviour] in errors


def test_a_fault_in_the_stop_is_logged(start: Start) -> None:
    node = start(behaviour="stop fault")
    node.expect("made 1")
    node.expect("started")
    node.signal(signal.SIGTERM)
    status, errors = node.finish()
    assert status == 1
    assert "stop is broken" in errors


def test_a_signal_during_the_start_stops_it(start: Start) -> None:
    node = start(behaviour="start hangs")
    node.expect("made 1")
    node.expect("starting")
    node.signal(signal.SIGTERM)
    node.expect("stop")
    status, errors = node.finish()
    assert status == 0
    assert len(after_start(errors)) == 1, errors
    assert "stopping signal=SIGTERM" in errors


def test_a_start_error_is_one_line_and_closes_everything(start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "node.pid"
    node = start(f"pid_file: {pid_file}\n", "start fault")
    node.expect("made 1")
    node.expect("stop")
    status, errors = node.finish()
    assert (status, after_start(errors)) == (1, ["gmqttd: the port 1 is in use"])
    assert not pid_file.exists()


def test_a_node_that_ends_by_itself_logs_the_reason(start: Start) -> None:
    node = start(behaviour="ends")
    node.expect("made 1")
    node.expect("started")
    node.expect("stop")
    status, errors = node.finish()
    assert status == 1
    assert after_start(errors)[1:] == ["gmqttd: the name is taken"]


def test_reload_takes_a_good_file_and_survives_bad_ones(start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "node.pid"
    config = f"pid_file: {pid_file}\n"
    node = start(config)
    node.expect("made 1")
    node.expect("started")
    for broken in ("log: {level: loud}\n", "", "[", "\tx"):
        node.config.write_text(broken)
        node.signal(signal.SIGHUP)
        node.expect_error("configuration not reloaded")
    node.config.unlink()
    node.signal(signal.SIGHUP)
    node.expect_error("there is no such file")
    node.expect_error("configuration not reloaded")
    node.config.write_text(f"{config}log: {{level: debug}}\n")
    result = CliRunner().invoke(main, ["reload", "-c", str(node.config)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert str(node.process.pid) in result.stdout
    node.expect("reload debug")
    node.expect_error("configuration reloaded")
    assert '"loud" is not one of debug, info, warn, error' in node.errors
    assert "this change takes effect after a restart key=listeners" in node.errors
    node.signal(signal.SIGTERM)
    node.expect("stop")
    assert node.finish()[0] == 0


def test_a_fault_in_reloading_does_not_end_the_reloads(start: Start) -> None:
    node = start(behaviour="reload fault")
    node.expect("made 1")
    node.expect("started")
    for _ in range(2):
        node.signal(signal.SIGHUP)
        node.expect("reload info")
        node.expect_error("reload failed, the node runs on")
    node.signal(signal.SIGTERM)
    assert node.finish()[0] == 0


def test_warnings_of_the_file_are_logged(start: Start) -> None:
    node = start("config_dir: /etc/gmqtt\n")
    node.expect("made 1")
    node.expect("started")
    node.signal(signal.SIGTERM)
    status, errors = node.finish()
    assert status == 0
    assert "config_dir: this key has no effect" in errors
    assert " warn " in errors
