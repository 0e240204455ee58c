"""Nodes by fork from a process that has imported the product: a start costs a tenth of that of a new interpreter, which imports
for most of its CPU seconds.

    pytest -> the fork server (this file as a program) -> fork -> fork: the node

The process between server and node ends at once, so that the node becomes a child of pytest, which is the subreaper of all
that descends from it (prctl(2)) and waits for the node's end.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn

PR_SET_CHILD_SUBREAPER: Final = 36
# What nodes import at a start; the rest follows from these.
PRELOADED: Final = (
    "broker.api.plugin",
    "broker.auth.plugin",
    "broker.event_log.plugin",
    "broker.metrics.plugin",
    "broker.server.run",
    "federation.links.plugin",
    "federation.plugin",
)


class ForkedProcess:
    """A child of this process, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        if self.poll() is None:
            ended = os.pidfd_open(self.pid)
            try:
                select.select([ended], [], [], timeout)
            finally:
                os.close(ended)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired([str(self.pid)], timeout)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _server() -> subprocess.Popen[bytes]:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, str(Path(__file__).resolve())]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def end() -> None:
        server.communicate()

    atexit.register(end)
    return server


def fork_node(arguments: list[str], directory: Path, log: Path) -> ForkedProcess:
    """The command `gmqttd ARGUMENTS`, whose output goes to the end of `log`."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    order = {"arguments": arguments, "directory": str(directory), "log": str(log), "environment": dict(os.environ)}
    server.stdin.write(json.dumps(order).encode() + b"\n")
    server.stdin.flush()
    return ForkedProcess(int(server.stdout.readline()))


# --- the server


def serve() -> None:
    """Orders come as lines of JSON; answers are lines with the number of a process."""
    for name in PRELOADED:
        importlib.import_module(name)
    assert threading.active_count() == len(os.listdir("/proc/self/task")) == 1, "only one thread survives a fork"
    while line := sys.stdin.buffer.readline():
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            node = os.fork()
            if node == 0:
                os.close(reading)
                os.close(writing)
                become_node(json.loads(line))
            os.write(writing, b"%d\n" % node)
            os._exit(0)
        os.close(writing)
        os.waitpid(between, 0)
        os.write(1, os.read(reading, 32))
        os.close(reading)


def become_node(order: dict[str, Any]) -> NoReturn:
    from broker.server.cli import main

    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)
    sys.argv = ["gmqttd", *order["arguments"]]
    main()
    raise AssertionError("a command ends with its exit status")


if __name__ == "__main__":
    serve()
