"""The tests of scripts/test: pytest with the compiled wheel, a part of it with the sources, one sum.

Lanes are parts of the tests: those with processes and sockets, those that start a JVM, those of federations, all others; with
--all once more those with processes, whose nodes have workers then.
LANES_AT_ONCE of them run side by side, because tests wait as much as they compute. What needs the wheel begins when it is
built. The output of the first lane is seen at once, that of the others behind it. SIGINT and SIGTERM end all that runs.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO
from xml.etree import ElementTree

ROOT: Final = Path(__file__).resolve().parent.parent
RUN: Final = ROOT / "run" / "test"
BUILD_LOG: Final = RUN / "build.log"
PYTHON: Final = ROOT / ".venv" / "bin" / "python"
COMPILED_PYTHON: Final = ROOT / ".venv-fast" / "bin" / "python"
ENDING: Final = (signal.SIGINT, signal.SIGTERM)
END_SECONDS: Final = 15.0  # for what is told to end, before it is told more plainly
LANES_AT_ONCE: Final = 9  # most of them wait more than they compute
# Lanes of their own: they wait for processes, and for JVMs.
INTEGRATION: Final = "tests/integration"
INTEGRATION_LANES: Final = 4
JVM: Final = "tests/pipeline"
JVM_JOBS: Final = "tests/pipeline/jobs"  # a JVM of their own, beside that of the others
# Half of what computes: with a lane for all of it one core waits at the end.
FEDERATION: Final = ("tests/federation", "tests/simulation")
INTERPRETED_MARK: Final = "mark.interpreted"
NOT_LONG: Final = ("-m", "not slow")
SMOKE: Final = ("-m", "not slow and (interpreted or not thorough)")
NO_COMPILER: Final = 3  # exit status of scripts/build_fast
NO_TESTS: Final = 5  # exit status of pytest


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Counts) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_report(report: Path) -> Counts:
    """The counts of a JUnit report. Errors of fixtures and of collection count as failed."""
    counts = Counts()
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        counts.add(Counts(max(0, int(suite.get("tests", 0)) - failed - skipped), failed, skipped))
    return counts


class Sessions:
    """Processes that run, each in a session of its own: a signal reaches it with all that it has started."""

    def __init__(self) -> None:
        self._running: set[int] = set()
        self._is_over = False
        self._changed = threading.Condition()

    def begin(
        self, command: list[str], output: TextIO, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Raises RuntimeError after `end`."""
        with self._changed:
            if self._is_over:
                raise RuntimeError(f"{command[0]} does not begin: the tests end")
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            self._running.add(process.pid)
        return process

    def wait(self, process: subprocess.Popen[bytes]) -> tuple[int, float]:
        """Return the exit status, and the CPU seconds of the process and of its children."""
        _, status, usage = os.wait4(process.pid, 0)
        with self._changed:
            self._running.discard(process.pid)
            self._changed.notify_all()
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, usage.ru_utime + usage.ru_stime

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            for number in (*ENDING, signal.SIGKILL):
                for session in self._running:
                    with suppress(ProcessLookupError):
                        os.killpg(session, number)
                if self._changed.wait_for(lambda: not self._running, END_SECONDS):
                    break


SESSIONS: Final = Sessions()


def run_pytest(name: str, python: Path, arguments: list[str], output: TextIO, workers: int = 1) -> Counts:
    """workers: of each node of a test."""
    report = RUN / f"{name}.xml"
    report.unlink(missing_ok=True)
    environment = dict(os.environ)
    if python == COMPILED_PYTHON:  # the package comes from there, never from the current directory
        environment["PYTHONSAFEPATH"] = "1"
    if workers > 1:
        environment["GMQTTD_TEST_WORKERS"] = str(workers)
    environment.pop("PYTHONPATH", None)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each node of a test compiles all modules for itself
    command = [str(python), "-m", "pytest", f"--junit-xml={report}", "-p", "no:cacheprovider", *arguments]
    print(f"\n=== {name}: pytest {' '.join(arguments)}", file=output, flush=True)
    started_at = time.monotonic()
    status, cpu_seconds = SESSIONS.wait(SESSIONS.begin(command, output, environment))
    counts = read_report(report) if report.exists() else Counts()
    if status not in (0, NO_TESTS) and counts.failed == 0:
        print(f"pytest ended with exit status {status}", file=output, flush=True)
        counts.failed += 1
    seconds = time.monotonic() - started_at
    print(f"=== {name}: {counts} in {seconds:.0f} s, {cpu_seconds:.0f} s of CPU", file=output, flush=True)
    return counts


Lane = tuple[str, Callable[[TextIO], Counts]]  # the name of its log, what runs


def lane(name: str, python: Path, arguments: list[str]) -> Lane:
    return name, lambda output: run_pytest(name, python, arguments, output)


def integration_lanes(name: str, python: Path, files: list[str], arguments: list[str]) -> list[Lane]:
    """The files take turns: those of one kind, which take about as long, come to different lanes."""
    parts = [files[part::INTEGRATION_LANES] for part in range(INTEGRATION_LANES)]
    return [lane(f"{name}-{number}", python, [*part, *arguments]) for number, part in enumerate(parts, 1)]


def workers_lane(python: Path, arguments: list[str]) -> Lane:
    """The tests of nodes once more, with nodes of two processes."""
    return "workers", lambda output: run_pytest("workers", python, [INTEGRATION, *arguments], output, 2)


def files_of(folder: str) -> list[str]:
    return [str(file.relative_to(ROOT)) for file in sorted((ROOT / folder).glob("test_*.py"))]


def all_lanes(name: str, python: Path, arguments: list[str]) -> list[Lane]:
    """All tests as lanes: those that wait most begin first, those that compute fill the time of the others."""
    elsewhere = [f"--ignore={folder}" for folder in (INTEGRATION, JVM, *FEDERATION)]
    return [
        lane(f"{name}-pipeline", python, [JVM, f"--ignore={JVM_JOBS}", *arguments]),
        lane(f"{name}-jobs", python, [JVM_JOBS, *arguments]),
        *integration_lanes(f"{name}-integration", python, files_of(INTEGRATION), arguments),
        lane(f"{name}-federation", python, [*FEDERATION, *arguments]),
        lane(name, python, [*elsewhere, *arguments]),
    ]


def smoke_lane(arguments: list[str]) -> Lane:
    """The sources: the unit files of the modules that are otherwise compiled, the tests that need sources, one broker.

    What takes long and is `thorough` is left to the compiled form.
    """
    hot_modules: list[str] = runpy.run_path(str(ROOT / "setup.py"))["hot_modules"]()
    files = {f"{INTEGRATION}/test_protocol.py"}
    for module in hot_modules:
        unit = Path("tests", module).with_name(f"test_{Path(module).name}")
        if (ROOT / unit).exists():
            files.add(str(unit))
    for file in (ROOT / "tests").rglob("test_*.py"):
        if INTERPRETED_MARK in file.read_text(encoding="utf-8"):
            files.add(str(file.relative_to(ROOT)))
    return lane("interpreted", PYTHON, [*sorted(files), *arguments])


class Lanes:
    """Lanes that run, or wait for their turn. The first one writes to standard output. An exception that passes ends all."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(LANES_AT_ONCE)
        self._lanes: list[tuple[Path | None, Future[Counts]]] = []

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown(wait=kind is None, cancel_futures=True)
        if kind is not None:
            for number in ENDING:
                signal.signal(number, signal.SIG_IGN)  # all is told to end already
            SESSIONS.end()

    def add(self, lanes: Iterable[Lane]) -> None:
        """Lanes may add others while they run."""
        for name, run in lanes:
            log = RUN / f"{name}.log" if self._lanes else None
            self._lanes.append((log, self._pool.submit(run_logged, run, log)))

    def total(self) -> Counts:
        """Wait for all; print what was logged."""
        total = Counts()
        for log, counts in self._lanes:
            total.add(counts.result())
            if log is not None:
                print(log.read_text(errors="replace"), end="", flush=True)
        return total


def run_logged(run: Callable[[TextIO], Counts], log: Path | None) -> Counts:
    if log is None:
        return run(sys.stdout)
    with log.open("w") as output:
        return run(output)


def names_paths(arguments: list[str]) -> bool:
    return any(not argument.startswith("-") and Path(argument.split("::")[0]).exists() for argument in arguments)


def is_compiled() -> bool:
    code = "import broker.message; raise SystemExit(broker.message.__file__.endswith('.py'))"
    return subprocess.run([str(COMPILED_PYTHON), "-P", "-c", code], cwd=ROOT, check=False).returncode == 0


def after_build(build: subprocess.Popen[bytes], needs_it: list[Lane], lanes: Lanes) -> Lane:
    """A lane that waits for the build and goes on as the first of those that need it; the others are added then."""
    first, *others = needs_it

    def run(output: TextIO) -> Counts:
        print("\n=== compiled: building", file=output, flush=True)
        status, _ = SESSIONS.wait(build)
        print(BUILD_LOG.read_text(errors="replace"), end="", file=output, flush=True)
        if status == NO_COMPILER:
            print("=== compiled: skipped, there is no C compiler on this machine", file=output, flush=True)
            return Counts(skipped=1)
        if status != 0 or not is_compiled():
            print("=== compiled: the build failed", file=output, flush=True)
            return Counts(failed=1)
        lanes.add(others)
        return first[1](output)

    return first[0], run


def main() -> int:
    os.chdir(ROOT)
    RUN.mkdir(parents=True, exist_ok=True)
    arguments = sys.argv[1:]
    options = {"--interpreted", "--compiled", "--all"} & set(arguments)
    if len(options) > 1:
        print(f"scripts/test takes one of: {', '.join(sorted(options))}", file=sys.stderr)
        return 2
    arguments = [argument for argument in arguments if argument not in options]
    if "--all" in options:
        os.environ["GMQTTD_TEST_ALL"] = "1"  # tests/support/effort.py
    has_paths = names_paths(arguments)
    smoke_arguments = arguments
    if not has_paths and "--all" not in options and "-m" not in arguments:
        arguments, smoke_arguments = [*NOT_LONG, *arguments], [*SMOKE, *arguments]
    for number in ENDING:  # SIGINT may be ignored: a shell does so for what it begins in the background
        signal.signal(number, signal.default_int_handler)
    with Lanes() as lanes:
        if "--interpreted" in options or (has_paths and "--compiled" not in options):
            lanes.add(
                [lane("interpreted", PYTHON, arguments)] if has_paths else all_lanes("interpreted", PYTHON, arguments)
            )
        else:
            at_build = [] if has_paths else [smoke_lane(smoke_arguments)]
            if has_paths:
                compiled = [lane("compiled", COMPILED_PYTHON, arguments)]
            else:
                compiled = all_lanes("compiled", COMPILED_PYTHON, arguments)
                if "--all" in options:
                    compiled.append(workers_lane(COMPILED_PYTHON, [*NOT_LONG, *arguments]))
            with BUILD_LOG.open("w") as log:
                build = SESSIONS.begin(["scripts/build_fast"], log)
            lanes.add([after_build(build, compiled, lanes), *at_build])
        total = lanes.total()
    if total.passed == 0 and total.failed == 0:
        print("no test ran", flush=True)
        total.failed = 1
    print(f"\n{total}", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
