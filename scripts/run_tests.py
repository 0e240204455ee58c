"""Both halves of scripts/test: pytest with the interpreted sources, pytest with the compiled wheel, one sum.

The halves run side by side, because tests wait more than they compute; so do three parts of the interpreted half: tests with
processes and sockets, tests that start a JVM, and the others. The compiled half begins when it is built. What runs beside is
printed behind the rest.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO
from xml.etree import ElementTree

ROOT: Final = Path(__file__).resolve().parent.parent
RUN: Final = ROOT / "run" / "test"
BUILD_LOG: Final = RUN / "build.log"
# Parts of the interpreted half that run beside the others. They wait for processes, and for JVMs.
INTEGRATION_PATHS: Final = ("tests/integration", "tests/bench")
JVM_PATHS: Final = ("tests/pipeline", "tests/chaos")
# What compiling can change: the cores, the sockets, other programs as peers. UNCOMPILED_PATHS and tests with the mark
# `uncompiled` would only run the same interpreted code again.
COMPILED_PATHS: Final = (
    "tests/broker",
    "tests/fuzz",
    "tests/properties",
    "tests/federation/shell",
    "tests/federation/stream",
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/federation/test_*.py")),
    "tests/integration",
)
UNCOMPILED_PATHS: Final = (
    "tests/broker/config",
    "tests/broker/test_plugins.py",
    *(
        f"tests/broker/server/test_{name}.py"
        for name in ("cli", "logging", "log_output", "pid_file", "run", "stop_signals")
    ),
    "tests/integration/test_bad_start.py",
    "tests/integration/test_operation.py",
)
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


def run_half(name: str, python: Path, arguments: list[str], output: TextIO) -> Counts:
    report = RUN / f"{name}.xml"
    report.unlink(missing_ok=True)
    environment = dict(os.environ)
    if name == "compiled":  # the package comes from the environment that is tested, never from the current directory
        environment["PYTHONSAFEPATH"] = "1"
    environment.pop("PYTHONPATH", None)
    command = [str(python), "-m", "pytest", f"--junit-xml={report}", "-p", "no:cacheprovider", *arguments]
    print(f"\n=== {name}: pytest {' '.join(arguments)}", file=output, flush=True)
    started_at = time.monotonic()
    status = subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
    ).returncode
    counts = read_report(report) if report.exists() else Counts()
    if status not in (0, NO_TESTS) and counts.failed == 0:
        print(f"pytest ended with exit status {status}", file=output, flush=True)
        counts.failed += 1
    print(f"=== {name}: {counts} in {time.monotonic() - started_at:.0f} s", file=output, flush=True)
    return counts


Lane = tuple[str, Callable[[TextIO], Counts]]  # the name of its log, what runs


def interpreted_lanes(arguments: list[str]) -> list[Lane]:
    python = ROOT / ".venv" / "bin" / "python"

    def lane(name: str, *paths: str) -> Lane:
        return name, lambda output: run_half(name, python, [*paths, *arguments], output)

    if names_paths(arguments):
        return [lane("interpreted")]
    return [
        lane("interpreted", *(f"--ignore={path}" for path in (*INTEGRATION_PATHS, *JVM_PATHS))),
        lane("integration", *INTEGRATION_PATHS),
        lane("pipeline", *JVM_PATHS),
    ]


def run_lanes(first: Lane, *others: Lane) -> Counts:
    """Run the lanes at the same time. The output of the first is seen at once, that of the others behind it."""
    total = Counts()
    with ExitStack() as stack:
        logs = [stack.enter_context((RUN / f"{name}.log").open("w+")) for name, _ in others]
        pool = stack.enter_context(ThreadPoolExecutor(max(1, len(others))))
        running = [pool.submit(run, log) for (_, run), log in zip(others, logs, strict=True)]
        try:
            total.add(first[1](sys.stdout))
            for lane in running:
                total.add(lane.result())
        finally:
            for log in logs:
                log.seek(0)
                print(log.read(), end="", flush=True)
    return total


def names_paths(arguments: list[str]) -> bool:
    return any(not argument.startswith("-") and Path(argument.split("::")[0]).exists() for argument in arguments)


def is_compiled(python: Path) -> bool:
    code = "import broker.message; raise SystemExit(broker.message.__file__.endswith('.py'))"
    return subprocess.run([str(python), "-P", "-c", code], cwd=ROOT, check=False).returncode == 0


@contextmanager
def building() -> Iterator[subprocess.Popen[bytes]]:
    """Runs scripts/build_fast beside the tests, which wait more than they compute. Its output goes to BUILD_LOG."""
    with (
        BUILD_LOG.open("wb") as log,
        subprocess.Popen(
            ["nice", "-n", "19", "scripts/build_fast"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as build,
    ):
        try:
            yield build
        finally:
            if build.poll() is None:
                os.killpg(build.pid, signal.SIGTERM)


def compiled_half(arguments: list[str], build: subprocess.Popen[bytes], output: TextIO) -> Counts:
    print("\n=== compiled: building", file=output, flush=True)
    status = build.wait()
    print(BUILD_LOG.read_text(errors="replace"), end="", file=output, flush=True)
    if status == NO_COMPILER:
        print("=== compiled: skipped, there is no C compiler on this machine", file=output, flush=True)
        return Counts(skipped=1)
    python = ROOT / ".venv-fast" / "bin" / "python"
    if status != 0 or not is_compiled(python):
        print("=== compiled: the build failed", file=output, flush=True)
        return Counts(failed=1)
    if not names_paths(arguments):
        arguments = [*COMPILED_PATHS, *(f"--ignore={path}" for path in UNCOMPILED_PATHS), *arguments]
    if not any(argument.startswith("-m") for argument in arguments):
        arguments = ["-m", "not uncompiled and not interpreted", *arguments]
    return run_half("compiled", python, arguments, output)


def main() -> int:
    os.chdir(ROOT)
    RUN.mkdir(parents=True, exist_ok=True)
    arguments = sys.argv[1:]
    only = ""
    if "--only" in arguments:
        at = arguments.index("--only")
        only = arguments[at + 1] if at + 1 < len(arguments) else ""
        if only not in ("interpreted", "compiled"):
            print(f"--only takes interpreted or compiled, not {only!r}", file=sys.stderr)
            return 2
        del arguments[at : at + 2]
    interpreted = interpreted_lanes(arguments)
    if only == "interpreted":
        total = run_lanes(*interpreted)
    else:
        with building() as build:
            compiled: Lane = ("compiled", lambda output: compiled_half(arguments, build, output))
            total = run_lanes(compiled) if only == "compiled" else run_lanes(*interpreted, compiled)
    if total.passed == 0 and total.failed == 0:
        print("no test ran", flush=True)
        total.failed = 1
    print(f"\n{total}", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
