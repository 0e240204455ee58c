"""Measure this checkout beside another commit or beside other brokers, in alternating slices on one machine.

Each round is one slice of every participant. The order is reversed from round to round, so that a machine that is slow
for seconds slows all of them down. The load is a closed loop (mqtt_load.py): no message may be lost. Measure on a quiet
machine: under other work a broker finds more messages at each read, which lowers its CPU a message.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

from accounts import LOGIN_ARGUMENTS
from brokers import PEER_SETTINGS, make_cluster
from cluster import ROOT, BenchFailed, Cluster, Ports, find_program
from linked_brokers import RABBITMQ_FOLDER, rabbitmq_version
from report import lines_of, replace_table, report, write
from revision import build_revision, git
from rows import (
    FEW,
    GMQTT,
    MOSQUITTO,
    NATS,
    NATS_3,
    NO_LINK,
    NULL_RELAY,
    OTHER,
    OURS,
    PEERS,
    RABBITMQ,
    ROWS,
    THIS,
    V311,
    Row,
)
from slices import Slice, Slices

BENCH: Final = ROOT / "bench"
RUN: Final = ROOT / "run" / "bench"
GENERATOR_SECONDS_MAX: Final = 300.0
OPEN_FILES: Final = 20_000
MANY_SUBSCRIPTIONS: Final = 1_000_000
FEW_SUBSCRIPTIONS: Final = 1_000
PEER_ROUNDS: Final = 10
PAIRS: Final = 20
QUICK_ROUNDS: Final = 3
SLICE_SECONDS: Final = 1.2
QUICK_SLICE_SECONDS: Final = 0.6
SETTLE_SECONDS: Final = {1: "0.1", 2: "0.5"}  # by nodes: a subscription reaches the other node
RABBITMQ_SETTLE_SECONDS: Final = "3"
VERSION: Final = {MOSQUITTO: "-h", NATS: "--version"}  # gmqttd: version
GMQTT_VARIABLE: Final = "GMQTT_BINARY"


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- one slice


def run_generator(row: Row, name: str, cluster: Cluster, count: int) -> dict[str, Any]:
    """The generator's result at a participant. Raises BenchFailed with its output when it has none."""
    places = {
        "first": cluster.first,
        "last": cluster.last,
        "http": cluster.http,
        "gossip": cluster.gossip,
        "metrics": cluster.metrics,
        "layered": cluster.layered,
        "transport": row.transport,
        "cacert": cluster.cacert,
        "later": cluster.later,
        "busy": "" if name == NO_LINK else f"--upstream {cluster.first} --downstream {cluster.last}",
        "settle": RABBITMQ_SETTLE_SECONDS if name == RABBITMQ else SETTLE_SECONDS[row.nodes],
        "count": count,
        "raw": "--raw" if name == NULL_RELAY else "",
        "login": LOGIN_ARGUMENTS if name in row.secured else "",
        "version": "" if name == V311 else "--mqtt5",
        "subscriptions": FEW_SUBSCRIPTIONS if name == FEW else MANY_SUBSCRIPTIONS,
        "pids": " ".join(f"--pid {number}={pid}" for number, pid in enumerate(cluster.pids)),
    }
    program, *arguments = shlex.split(row.command.format(**places))
    command = [sys.executable, str(BENCH / program), *arguments]
    cluster.check_alive()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GENERATOR_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise BenchFailed(f"not finished after {GENERATOR_SECONDS_MAX:.0f} s: {shlex.join(command)}") from None
    cluster.check_alive()
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise BenchFailed(f"{shlex.join(command)}: {done.stderr.strip()}") from None
    return result


def value_of(result: Mapping[str, Any], key: str) -> float:
    """A value of the result. Raises BenchFailed when nothing was delivered and the generator has no value."""
    name, _, part = key.partition(".")
    found = [result[name][part]] if part else [result[at] for at in result if at.partition("[")[0] == name]
    if not found or None in found:
        raise BenchFailed(f"no {key} in {json.dumps(result)}")
    return float(sum(found))


# --- one row


@dataclass
class Bench:
    """The programs of all participants, their folder, and the slices that were measured."""

    commands: Mapping[str, Path]
    folder: Path
    slices: Slices
    rounds: int
    seconds: float
    ports: Ports = field(default_factory=Ports)
    not_measured: dict[str, str] = field(default_factory=dict)
    started: int = 0

    def measure(self, row: Row) -> None:
        """Measure the rounds that are missing. A participant that fails is omitted from the rest, with its reason."""
        names = [name for name in (THIS, *row.beside) if name in self.commands]
        todo = range(self.slices.rounds_done(row.name, names) + 1, min(self.rounds, row.rounds_max) + 1)
        if not todo:
            return
        with ExitStack() as stack:
            clusters: dict[str, Cluster] = {}
            counts: dict[str, int] = {}
            for number in (0, *todo):  # 0 is the slice that is not measured
                for name in names[:: 1 if number % 2 else -1]:
                    try:
                        if number:
                            self.add_slice(row, name, number, clusters.get(name), counts[name])
                        else:
                            counts[name] = row.count
                            if not row.starts_anew:
                                clusters[name] = stack.enter_context(self.cluster(row, name))
                                counts[name] = self.count_for(row, name, clusters[name])
                    except BenchFailed as fault:
                        progress(f"{row.name}: {name}: {fault}")
                        self.not_measured[f"{row.name}, {name}"] = str(fault).splitlines()[0]
                        names = [] if name == THIS else [kept for kept in names if kept != name]

    def cluster(self, row: Row, name: str) -> Cluster:
        self.started += 1
        folder = self.folder / f"{self.started:03d}-{name}"
        return make_cluster(name, self.commands[name], folder, self.ports, row)

    def count_for(self, row: Row, name: str, cluster: Cluster) -> int:
        """Messages for a slice of --seconds, from the rate of a first slice."""
        result = run_generator(row, name, cluster, row.count)
        return round(row.count * self.seconds / result["seconds"]) if "seconds" in result else row.count

    def add_slice(self, row: Row, name: str, number: int, cluster: Cluster | None, count: int) -> None:
        if cluster is None:
            with self.cluster(row, name) as fresh:
                result = run_generator(row, name, fresh, count)
        else:
            result = run_generator(row, name, cluster, count)
        values = {figure.key: value_of(result, figure.key) for figure in row.figures}
        self.slices.add(Slice(row.name, name, number, values, int(result.get("lost", 0))))
        shown = ", ".join(f"{values[figure.key]:.2f} {figure.unit}" for figure in row.figures)
        progress(f"{row.name}: round {number}, {name}: {shown}")


# --- the whole


def find_commands(arguments: argparse.Namespace, other: Path | None) -> tuple[dict[str, Path], dict[str, str]]:
    """The program of each participant, and the reasons for missing peers."""
    ours = ROOT / (".venv" if arguments.interpreted else ".venv-fast") / "bin" / "gmqttd"
    if not ours.exists():
        raise BenchFailed(f"{ours.relative_to(ROOT)} is missing: scripts/setup and scripts/build_fast make it")
    commands = dict.fromkeys(OURS, ours)
    missing: dict[str, str] = {}
    if other is not None:
        commands[OTHER] = other
    wanted = () if other is not None else PEERS
    programs = {
        MOSQUITTO: "mosquitto",
        NATS: "nats-server",
        NATS_3: "nats-server",
        NULL_RELAY: "cc",
        RABBITMQ: str(RABBITMQ_FOLDER / "rabbitmq-server"),
        GMQTT: os.environ.get(GMQTT_VARIABLE, ""),
    }
    for peer in wanted if arguments.peers is None else arguments.peers:
        found = find_program(programs[peer]) if programs[peer] else None
        if found is not None:
            commands[peer] = Path(found)
        elif peer == GMQTT:
            missing[peer] = f"{GMQTT_VARIABLE} names no Go broker (docs/operations.md)"
        else:
            missing[peer] = f"no {programs[peer]}: sudo apt-get install {Path(programs[peer]).name}"
    return commands, missing


def first_line(command: list[str]) -> str:
    """The first line of a program's output. The exit status is ignored: that of mosquitto -h is not 0."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ((done.stdout or done.stderr).strip().splitlines() or ["?"])[0]


def describe(commands: Mapping[str, Path], subject: Mapping[str, str]) -> dict[str, str]:
    """The machine, the commits and the versions."""
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "?")
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    facts = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{len(os.sched_getaffinity(0))} cores, {cpu.rpartition(': ')[2]}, {memory_kib / 1024**2:.0f} GiB",
        "system": f"Linux {platform.release()}, {platform.freedesktop_os_release().get('PRETTY_NAME', '?')}",
        "load average before": f"{os.getloadavg()[0]:.2f}",
        **subject,
    }
    for name, command in commands.items():
        if name == THIS or name not in (
            GMQTT,
            NATS_3,
            NULL_RELAY,
            *OURS,
        ):  # the Go broker has no command for its version
            command_line = [str(command), VERSION.get(name, "version")]
            facts[f"{name}, version"] = rabbitmq_version() if name == RABBITMQ else first_line(command_line)
    return {**facts, "settings": PEER_SETTINGS}


def chosen_rows(patterns: Sequence[str]) -> list[Row]:
    rows = [row for row in ROWS if not patterns or any(pattern.lower() in row.name.lower() for pattern in patterns)]
    if not rows:
        names = "\n  ".join(row.name for row in ROWS)
        raise BenchFailed(f"--rows {' '.join(patterns)}: no row has one of these in its name. There are:\n  {names}")
    return rows


def run(arguments: argparse.Namespace) -> int:
    started_at = time.monotonic()
    rows = chosen_rows(arguments.rows)
    commit, other = build_revision(arguments.against) if arguments.against else ("", None)
    rounds = arguments.pairs or (QUICK_ROUNDS if arguments.quick else PAIRS if other else PEER_ROUNDS)
    seconds = QUICK_SLICE_SECONDS if arguments.quick else SLICE_SECONDS
    commands, missing = find_commands(arguments, other)
    subject = {
        THIS: git("describe", "--always", "--dirty") + (" interpreted" if arguments.interpreted else ""),
        **({OTHER: commit} if commit else {}),
        "seconds a slice": str(seconds),
    }
    facts = describe(commands, subject)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES if hard < 0 else min(OPEN_FILES, hard), hard))
    name = "against" if commit else "latest"
    slices = Slices(RUN / f"{name}.jsonl", subject, arguments.continues)
    with tempfile.TemporaryDirectory(prefix="gmqttd-bench-") as folder:
        Path(folder).chmod(0o755)  # mosquitto drops root before it opens some of its files
        bench = Bench(commands, Path(folder), slices, rounds, seconds, not_measured=missing)
        for row in rows:
            bench.measure(row)
    slices.close()
    lines = [line for row in rows for line in lines_of(row, slices)]
    labels = {OTHER: commit, GMQTT: "Go broker"}
    text = report(lines, rounds, bench.not_measured, facts, labels)
    # A part does not replace the figures of a whole run.
    is_whole = rows == list(ROWS) and not arguments.quick and not arguments.interpreted and not arguments.peers
    target = BENCH / "results" if is_whole else RUN
    write(target, name, text, lines, facts)
    if is_whole and not commit:
        replace_table(ROOT / "docs" / "performance.md", text)
    print(f"{text}\nWritten: {(target / name).relative_to(ROOT)}.md and .json")
    progress(f"{time.monotonic() - started_at:.0f} s")
    if bench.not_measured.keys() - missing.keys():
        return 2
    return 0 if all(line.is_met for line in lines) else 1


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
    parser.add_argument(
        "--against", metavar="REV", help="build this commit too and measure beside it, without the peers"
    )
    parser.add_argument("--pairs", type=positive, help=f"rounds of each row: {PEER_ROUNDS}; with --against {PAIRS}")
    parser.add_argument(
        "--rows", nargs="+", default=[], metavar="TEXT", help="only rows with one of these in their name"
    )
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="these and no others")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds of short slices")
    parser.add_argument(
        "--continue",
        dest="continues",
        action="store_true",
        help="keep the rounds of the last run with the same commits",
    )
    parser.add_argument("--interpreted", action="store_true", help="measure .venv's gmqttd instead of the compiled one")
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return run(parser.parse_args())
    except BenchFailed as fault:
        progress(f"bench: {fault}")
        return 2
    except KeyboardInterrupt:
        progress("bench: interrupted; --continue goes on from the rounds that are done")
        return 130


if __name__ == "__main__":
    sys.exit(main())
