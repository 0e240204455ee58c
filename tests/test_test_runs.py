"""`.ci/run` and `scripts/test` with stubs in the place of what they begin: what they end, and with which status."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from repository import ROOT

WAIT_SECONDS_MAX: Final = 40.0
CI: Final = [".ci/run"]
TESTS: Final = [sys.executable, "scripts/run_tests.py"]
# Two processes, which end by signals if these are not ignored, at any moment: a shell hears them between its commands.
LIVING: Final = """
import os, signal, sys, time
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
os.fork()
fifo = os.open(sys.argv[1], os.O_WRONLY)
os.write(fifo, b"%d\\n" % os.getpid())
time.sleep(600)
"""


def write_stub(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (".ci/run", "scripts/run_tests.py"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("setup", "build_fast", "check", "test"):
        write_stub(tmp_path / "scripts" / name, "exit 0")
    (tmp_path / "run").mkdir()
    return tmp_path


class Living:
    """The processes of stubs that live: each holds the writing end of a FIFO, and has written its number there."""

    def __init__(self, folder: Path) -> None:
        program, fifo = folder / "living.py", folder / "fifo"
        program.write_text(LIVING)
        os.mkfifo(fifo)
        self._reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self._told = b""
        self.stub = f"exec {sys.executable} -IS {program} {fifo}"

    def _read(self) -> bytes:
        """Return what came; b"" when no process holds the FIFO any more."""
        assert select.select([self._reading], [], [], WAIT_SECONDS_MAX)[0], f"nothing from {self.processes}"
        found = os.read(self._reading, 4096)
        self._told += found
        return found

    @property
    def processes(self) -> list[int]:
        return [int(word) for word in self._told.split()]

    def wait_for(self, count: int) -> None:
        while self._told.count(b"\n") < count:
            assert self._read(), f"only {self.processes} have lived"

    def wait_for_none(self) -> None:
        while self._read():
            pass

    def close(self) -> None:
        os.close(self._reading)
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("command", "count"), [(CI, 8), (TESTS, 4)])
def test_a_signal_ends_all_that_runs(checkout: Path, command: list[str], count: int, number: signal.Signals) -> None:
    """With .ci/run: two builds, the checks, a pytest. Without: a build, a pytest. Each is two processes."""
    living = Living(checkout)
    for name in ("scripts/build_fast", "scripts/check", ".venv/bin/python"):
        write_stub(checkout / name, living.stub)
    write_stub(checkout / "scripts/test", f"exec {' '.join(TESTS)}")
    (checkout / "setup.py").write_text("def hot_modules():\n    return []\n")
    default = ["env", "--default-signal=INT"]  # it may be ignored here
    with (checkout / "output").open("wb") as output:
        process = subprocess.Popen([*default, *command], cwd=checkout, stdout=output, stderr=output)
    try:
        living.wait_for(count)
        process.send_signal(number)
        assert process.wait(WAIT_SECONDS_MAX) != 0
        living.wait_for_none()
    finally:
        process.kill()
        process.wait()
        living.close()


@pytest.mark.parametrize(
    ("stubs", "status"),
    [({}, 0), ({"test": "exit 1"}, 1), ({"check": "exit 1"}, 1), ({"setup": "exit 1", "test": "echo TESTED"}, 1)],
)
def test_the_run_fails_where_a_part_of_it_does(checkout: Path, stubs: dict[str, str], status: int) -> None:
    for name, text in {"check": "exit 0", **stubs}.items():
        write_stub(checkout / "scripts" / name, f"echo said by {name}\n{text}")
    done = subprocess.run(CI, cwd=checkout, capture_output=True, text=True, check=False, timeout=WAIT_SECONDS_MAX)
    assert (done.returncode != 0) == bool(status)
    assert ("said by check" in done.stdout) == ("setup" not in stubs)
    assert ("NOT clean" in done.stdout) == ("check" in stubs)
    assert "TESTED" not in done.stdout
