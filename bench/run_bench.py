"""Runs this broker and its peers side by side and prints what each costs, with the marks that must be met.

Rounds alternate (ours, theirs, ours, theirs ...), so that a machine that grows slow or fast in between is the same to
all. Run it on a quiet one: other work makes batches longer, and a message cheaper for a broker that works in batches.
A figure is the median of its rounds; a ratio is one of medians. CPU is user + system of every process of a broker, both
nodes added. The load closes its loop (mqtt_load.py): nothing may be lost, and a row that lost messages is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

from brokers import PEER_SETTINGS, ROOT, BenchFailed, Cluster, Ports, find_program, make_cluster
from rows import LOADS, Load, Measure

BENCH: Final = ROOT / "bench"
LOAD_SECONDS_MAX: Final = 300.0
OPEN_FILES: Final = 20_000
PROGRAMS: Final = {"mosquitto": "mosquitto", "nats": "nats-server"}
SETTLE_SECONDS: Final = "0.5"


@dataclass
class Figures:
    """What one kind of broker showed under one load, a value for each round."""

    values: list[float] = field(default_factory=list)
    lost: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass
class Row:
    """One line of the table. `mark` is of the ratio, or of our own bytes; None is only shown."""

    name: str
    unit: str
    peer: str
    ours: float
    theirs: float
    ratio: float
    mark: float | None
    lost: int
    is_met: bool
    ours_by_round: list[float]
    theirs_by_round: list[float]


# --- measuring


def run_generator(program: str, arguments: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, str(BENCH / program), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise BenchFailed(f"not finished after {LOAD_SECONDS_MAX:.0f} s: {shlex.join(command)}") from None
    try:
        result = json.loads(done.stdout)
    except ValueError:
        raise BenchFailed(f"{shlex.join(command)}\n{done.stderr.strip()}") from None
    assert isinstance(result, dict)
    return result


def measure(load: Load, cluster: Cluster, count: int, figures: Figures) -> None:
    """One round of one kind."""
    cluster.check_alive()
    if load.measure is Measure.CONNECTION:
        pids = [f"--pid={number}={pid}" for number, pid in enumerate(cluster.pids)]
        arguments = ["--to", cluster.publish_at, "--connections", str(count), *pids, *load.arguments]
        result = run_generator("mqtt_connections.py", arguments)
        figures.values.append(sum(value for key, value in result.items() if key.startswith("bytes_per_connection")))
        return
    pids = [f"--pid-tree={number}={pid}" for number, pid in enumerate(cluster.pids)]
    places = ["--pub", cluster.publish_at, "--sub", cluster.subscribe_at, "--settle", SETTLE_SECONDS]
    result = run_generator("mqtt_load.py", [*places, "--messages", str(count), *pids, *load.arguments])
    cluster.check_alive()
    figures.lost += int(result["lost"])
    if load.measure is Measure.LATENCY:
        if result["latency_us"]["p50"] is None:
            raise BenchFailed(f"{load.name}: {cluster.kind} delivered nothing")
        figures.values.append(result["latency_us"]["p50"])
    else:
        figures.values.append(sum(value for key, value in result.items() if key.startswith("cpu_us_per_msg")))


def run_load(load: Load, kinds: list[str], rounds: int, count: int, bench: Bench) -> dict[str, Figures]:
    """All rounds of one load. A connection's memory is seen once in a process's life, so that load starts each anew."""
    runs = rounds * load.slices
    figures = {kind: Figures() for kind in kinds}
    with ExitStack() as stack:
        clusters: dict[str, Cluster] = {}
        if load.measure is not Measure.CONNECTION:
            clusters = {kind: stack.enter_context(bench.cluster(kind, load.nodes)) for kind in kinds}
        for number in range(1, runs + 1):
            for kind in kinds:
                if kind in clusters:
                    measure(load, clusters[kind], count // load.slices, figures[kind])
                else:
                    with bench.cluster(kind, load.nodes) as cluster:
                        measure(load, cluster, count, figures[kind])
                progress(f"{load.name}: run {number}/{runs}, {kind}: {figures[kind].values[-1]:.2f}")
    return figures


@dataclass
class Bench:
    """Where clusters are started from: the program of each kind, a folder and ports."""

    commands: dict[str, Path]
    folder: Path
    ports: Ports
    ours: str
    started: int = 0

    def cluster(self, kind: str, nodes: int) -> Cluster:
        self.started += 1
        program = self.ours if kind == "ours" else kind
        folder = self.folder / f"{self.started:03d}-{kind}"
        return make_cluster(program, nodes, folder, self.ports, self.commands[kind])


# --- the table


def make_rows(load: Load, figures: dict[str, Figures]) -> list[Row]:
    ours = figures["ours"]
    rows = []
    for peer, ratio_max in load.marks.items():
        theirs = figures[peer]
        ratio = ours.median / theirs.median if theirs.median else float("inf")
        mark = float(load.bytes_max) if load.bytes_max else ratio_max
        compared = ours.median if load.bytes_max else ratio
        is_met = ours.lost == 0 and (mark is None or compared <= mark)
        rows.append(
            Row(
                name=load.name,
                unit=load.measure.value,
                peer=peer,
                ours=ours.median,
                theirs=theirs.median,
                ratio=ratio,
                mark=mark,
                lost=ours.lost,
                is_met=is_met,
                ours_by_round=ours.values,
                theirs_by_round=theirs.values,
            )
        )
        if theirs.lost:
            progress(f"{load.name}: {peer} lost {theirs.lost} messages")
    return rows


def number_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def table(rows: list[Row]) -> str:
    lines = [
        "| load | unit | peer | ours | theirs | ours / theirs | mark | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        is_absolute = row.unit == Measure.CONNECTION.value
        mark = "" if row.mark is None else f"≤ {number_text(row.mark)}{' bytes' if is_absolute else ''}"
        verdict = "met" if row.is_met else "**MISSED**"
        if row.lost:
            verdict += f", lost {row.lost}"
        cells = [
            row.name,
            row.unit,
            row.peer,
            number_text(row.ours),
            number_text(row.theirs),
            f"{row.ratio:.2f}",
            mark,
            verdict,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def first_line(command: list[str]) -> str:
    """Of what a program says of its version; some of them end with a status of their own."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ((done.stdout or done.stderr).strip().splitlines() or ["?"])[0]


def describe_machine(bench: Bench) -> dict[str, str]:
    cpu = "?"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    facts = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_kib / 1024 / 1024:.0f} GiB",
        "load average before": f"{os.getloadavg()[0]:.2f}",
        "system": f"Linux {platform.release()}, {distribution()}",
        "python": platform.python_version(),
        "commit": first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
    }
    version = {"gmqttd": "version", "mosquitto": "-h", "nats": "--version"}
    for kind, command in bench.commands.items():
        program = bench.ours if kind == "ours" else kind
        facts[kind] = first_line([str(command), version[program]])
    return facts


def distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return "?"


def report(rows: list[Row], not_measured: list[str], machine: dict[str, str], rounds: int, is_whole: bool) -> str:
    facts = "\n".join(f"- {name}: {text}" for name, text in {**machine, "settings": PEER_SETTINGS}.items())
    missed = sum(not row.is_met for row in rows)
    verdict = "every mark is met" if not missed else f"{missed} of {len(rows)} MISSED"
    if not_measured:
        verdict = f"{verdict} of what was measured; NOT MEASURED: {'; '.join(not_measured)}"
    text = f"{table(rows)}\n\nMedians of {rounds} rounds; {verdict}.\n\n{facts}\n"
    # A part is no result: the figures of the whole stay where they are.
    folder = BENCH / "results" if is_whole else ROOT / "run" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    name = "latest" if is_whole else "partial"
    (folder / f"{name}.md").write_text(text)
    data = {"machine": machine, "rounds": rounds, "not_measured": not_measured, "rows": [asdict(row) for row in rows]}
    (folder / f"{name}.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return f"{text}\nWritten: {(folder / name).relative_to(ROOT)}.md and .json"


# --- the whole


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def find_commands(arguments: argparse.Namespace, peers: list[str]) -> dict[str, Path]:
    commands: dict[str, Path] = {}
    for peer in peers:
        program = find_program(PROGRAMS[peer])
        if program is None:
            raise BenchFailed(f"{PROGRAMS[peer]} is missing: sudo apt-get install {PROGRAMS[peer]}")
        commands[peer] = Path(program)
    if arguments.ours == "gmqttd":
        environment = ".venv" if arguments.interpreted else ".venv-fast"
        ours = ROOT / environment / "bin" / "gmqttd"
        if not ours.exists():
            raise BenchFailed(f"{ours.relative_to(ROOT)} is missing: scripts/setup and scripts/build_fast make it")
        return {"ours": ours, **commands}
    stand_in = find_program(PROGRAMS[arguments.ours])
    if stand_in is None:
        raise BenchFailed(f"{PROGRAMS[arguments.ours]} is missing")
    return {"ours": Path(stand_in), **commands}


def run(arguments: argparse.Namespace) -> int:
    loads = [load for load in LOADS if arguments.only.lower() in load.name.lower()]
    if not loads:
        raise BenchFailed(
            f"no row has {arguments.only!r} in its name; there are: {', '.join(load.name for load in LOADS)}"
        )
    peers = [peer for peer in PROGRAMS if any(peer in load.marks for load in loads)]
    rounds = arguments.rounds or (2 if arguments.quick else 5)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    rows: list[Row] = []
    not_measured: list[str] = []
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gmqttd-bench-") as folder:
        # mosquitto gives up root before it opens some of its files.
        Path(folder).chmod(0o755)
        bench = Bench(find_commands(arguments, peers), Path(folder), Ports(), arguments.ours)
        machine = describe_machine(bench)
        for load in loads:
            count = load.quick_count if arguments.quick else load.count
            try:
                rows += make_rows(load, run_load(load, ["ours", *load.marks], rounds, count, bench))
            except BenchFailed as fault:  # the other rows are not lost with this one
                progress(f"{load.name}: {fault}")
                not_measured.append(load.name)
    is_full_set = len(loads) == len(LOADS) and not not_measured
    is_whole = is_full_set and not arguments.quick and not arguments.interpreted and arguments.ours == "gmqttd"
    print(report(rows, not_measured, machine, rounds, is_whole))
    progress(f"{time.monotonic() - started_at:.0f} s")
    if not_measured:
        return 2
    return 0 if all(row.is_met for row in rows) else 1


def interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=positive, help="default 5, with --quick 2")
    parser.add_argument("--only", metavar="PATTERN", default="", help="rows whose name has this in it")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and messages")
    parser.add_argument("--interpreted", action="store_true", help="measure .venv's gmqttd and not the compiled one")
    parser.add_argument(
        "--ours",
        choices=["gmqttd", *PROGRAMS],
        default="gmqttd",
        help="what stands in the column ours; a peer there checks the bench itself",
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return run(arguments)
    except BenchFailed as fault:
        progress(f"bench: {fault}")
        return 2
    except KeyboardInterrupt:
        progress("bench: interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
