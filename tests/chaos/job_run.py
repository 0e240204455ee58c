"""Runs of one pipeline over logs that do not change: undisturbed, and with kill -9 of its driver at random moments."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import duckdb
import pyarrow.parquet as pq
from deltalake import DeltaTable

from event_log_node import EventLogNode, event_log_nodes
from job_messages import DEVICES, LINE_METRICS, NODES, JobMessage, decode_logs, job_logs
from queries import GMQTTCTL, MASTER
from reader_process import COMMIT_SECONDS
from records import archive_files
from spark_limits import ENDS_MAX, is_limit
from spark_process import SparkProcess
from waiting import eventually

END_SECONDS: Final = 900.0
KILL_WAIT_MAX: Final = 3.0  # seconds from a batch to a kill
EARLY_WAIT_MAX: Final = 8.0  # seconds from the start to a kill that does not wait for a batch
EARLY: Final = 0.25  # part of the kills
SILENT_AFTER: Final = 20  # seconds
BLOCK_MESSAGES: Final = 50
BATCHES: Final = 24  # about
DIGITS: Final = 9  # sums of floats depend on the order
DELTA_END: Final = "-delta"
FAULTS_SHOWN: Final = 10

# Of each job: its queries, and its options.
QUERIES: Final = {
    "rollup": ("rollup-2-10s",),
    "payload": ("payload", "payload-statistics-2-10s"),
    "alerts": ("alerts-range-t", "alerts-silent-0"),
    "archive": ("archive-delta",),
    "decode": ("decoded-line-delta", "decoded-device-delta"),
}
OPTIONS: Final = {
    "rollup": ("window=10s", "delay=5s"),
    "payload": ("window=10s", "delay=5s", "columns=t=$.t:double,n=$.n:bigint"),
    "alerts": ("value=$.t", f"silent_after={SILENT_AFTER}s", "startingOffsets=earliest"),
    "archive": ("format=delta",),
    "decode": ("format=delta", "schemas=schemas.yml"),
}
SCHEMAS: Final = """
schemas:
  line:
    filter: spBv1.0/#
    format: sparkplug
    columns:
      speed: {path: $.metrics.speed, type: double}
      count: {path: $.metrics.count, type: double}
  device:
    filter: plant/#
    format: json
    columns:
      t: {type: double}
      n: {type: bigint}
"""
# Sketches of the same values differ in their bytes.
SKETCHES: Final = ("publisher_sketch", "size_sketch", "gap_sketch", "sketch")


@dataclass
class JobReport:
    """faults  what differs from the undisturbed run
    kills   after so many batches
    ends    exit statuses of drivers that Spark's limit ended
    """

    job: str
    rows: int = 0
    kills: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def line(self) -> str:
        kills = f"killed {len(self.kills)} times, after batches {', '.join(map(str, self.kills))}"
        if self.ends:
            kills += f"; ended by Spark with {', '.join(map(str, self.ends))}, and started again"
        result = "; ".join(self.faults) if self.faults else "as in the undisturbed run"
        return f"{self.job}: {kills}; {self.rows:,} rows or alerts, {result}"


@contextmanager
def nodes_with(logs: Sequence[Sequence[JobMessage]]) -> Iterator[list[EventLogNode]]:
    """Nodes with these logs, whose ids are the same in each run."""
    with event_log_nodes(*(f"n{number}" for number in range(1, NODES + 1))) as nodes:
        for node, log in zip(nodes, logs, strict=True):
            node.log_id = f"log-{node.node}"
            for at in range(0, len(log), BLOCK_MESSAGES):
                node.append_records(log[at : at + BLOCK_MESSAGES])
        yield nodes


class JobRun:
    """One folder in which the job runs, until it has read the logs to their end."""

    def __init__(self, job: str, folder: Path, nodes: Sequence[EventLogNode]) -> None:
        self.job = job
        self._folder = folder
        self._nodes = nodes
        self._ends = job != "alerts"  # by itself
        messages = sum(node.next_offset for node in nodes)
        command = [str(GMQTTCTL), "pipeline", "run", job, "--servers", nodes[0].address, "--dir", str(folder)]
        command += ["--master", MASTER, "-o", f"maxOffsetsPerTrigger={max(1, messages // BATCHES)}"]
        command += ["--once"] if self._ends else ["--every", "500ms"]
        for option in OPTIONS[job]:
            command += ["-o", option]
        folder.mkdir(parents=True)
        (folder / "schemas.yml").write_text(SCHEMAS)  # the folder is where a driver runs
        self._drivers = [
            SparkProcess(name, command, folder / "checkpoints" / name, folder / "driver.log") for name in QUERIES[job]
        ]
        self.driver = self._drivers[0]  # the others tell how far their queries are
        self.ends: list[int] = []

    async def run(self, kills: int, random: Random, say: Callable[[str], None]) -> list[int]:
        """Kill the driver so many times, then let it read to the end. Returns how many batches were done at each kill. Raises
        AssertionError for a driver that fails."""
        found: list[int] = []
        driver = self.driver
        try:
            driver.start()
            while len(found) < kills:
                is_early = random.random() < EARLY
                if not is_early:
                    await eventually(self._has_moved, f"a batch of {self.job}, see {driver.log_path}", COMMIT_SECONDS)
                await asyncio.sleep(random.uniform(0.0, EARLY_WAIT_MAX if is_early else KILL_WAIT_MAX))
                process = driver.process
                if self._has_ended():
                    break
                if process is not driver.process:  # it was started again: nothing was at work
                    continue
                assert process is not None
                batches = driver.batches()
                driver.kill()
                if process.returncode == -signal.SIGKILL:
                    found.append(batches)
                    say(f"kill {len(found)} of {kills}: driver of {self.job}, {batches} batches are done")
                elif process.returncode:
                    self._note_end(process.returncode)
                driver.start()
            done = self._has_ended if self._ends else self._all_are_silent
            await eventually(done, f"end of {self.job}, see {driver.log_path}", END_SECONDS)
        finally:
            await driver.stop()
        return found

    def _has_moved(self) -> bool:
        return self._has_ended() or self.driver.has_moved

    def _has_ended(self) -> bool:
        """Whether the job is done. A driver that Spark's limit ended is started again, as a supervisor does. Raises
        AssertionError for every other end."""
        assert self.driver.process is not None
        status = self.driver.process.poll()
        if status is None:
            return False
        if self._ends and status == 0:
            return True
        self._note_end(status)
        self.driver.start()
        return False

    def _note_end(self, status: int) -> None:
        """Raises AssertionError where Spark's limit is not the reason, or is it too often."""
        text = self.driver.said()
        where = f"{self.job} ended with {status}, see {self.driver.log_path}"
        assert status, where
        assert is_limit(text), f"{where}: {text[-500:]}"
        self.ends.append(status)
        assert len(self.ends) <= ENDS_MAX, f"{where}: for the {len(self.ends)}th time"

    def _all_are_silent(self) -> bool:
        """Each query has read all, and each device has fallen silent after that."""
        self._has_ended()
        end = {node.node: (node.log_id, node.next_offset) for node in self._nodes}
        if any(driver.position() != end for driver in self._drivers):
            return False
        states = {alert["device"]: alert["state"] for alert in self.alerts("silent")}
        return len(states) == DEVICES and set(states.values()) == {"began"}

    def alerts(self, kind: str) -> list[dict[str, Any]]:
        """The payloads of published alerts, in order."""
        payloads = (json.loads(row[1]) for node in self._nodes for rows in node.published.values() for row in rows)
        return [payload for payload in payloads if payload["alert"] == kind]

    def rows(self) -> Counter[str]:
        """The rows of the job's tables that Spark's sink log names, sketches left out; for alerts those of values."""
        if not self._ends:
            return Counter(json.dumps(alert) for alert in self.alerts("range"))
        found: Counter[str] = Counter()
        for name in QUERIES[self.job]:
            if name.endswith(DELTA_END):
                found.update(f"{name} {exact(row)}" for row in self.delta_rows(name))
                continue
            for path in archive_files(self._folder / name):
                folders = [part for part in path.parts if "=" in part]
                table = pq.read_table(path, partitioning=None)
                for row in table.drop([each for each in SKETCHES if each in table.column_names]).to_pylist():
                    found[f"{name} {folders} {exact(row)}"] += 1
        return found

    def delta_rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a Delta table, as DuckDB has them: deltalake gives it the files that the table's log names."""
        with duckdb.connect() as connection:
            connection.register("given", DeltaTable(self._folder / name).to_pyarrow_dataset())
            rows = connection.sql("SELECT * FROM given")
            return [dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()]

    def message_faults(self, logs: Sequence[Sequence[JobMessage]]) -> list[str]:
        """Of jobs with Delta tables: each message of the logs must be in one row of one table, with its content."""
        names = [name for name in QUERIES[self.job] if name.endswith(DELTA_END)]
        if not names:
            return []
        wanted = {(f"n{number}", at): message for number, log in enumerate(logs, 1) for at, message in enumerate(log)}
        found = [row for name in names for row in self.delta_rows(name)]
        counts = Counter((row["node"], row["offset"]) for row in found)
        faults = [
            f"{len(keys)} messages have no row, such as {min(keys)}" for keys in [wanted.keys() - counts.keys()] if keys
        ]
        faults += [f"{key} has {count} rows" for key, count in counts.items() if count > 1]
        faults += [
            f"row {row} is not {wanted[row['node'], row['offset']]}" for row in found if not has_content(row, wanted)
        ]
        return faults[:FAULTS_SHOWN]


def has_content(row: dict[str, Any], messages: dict[tuple[str, int], JobMessage]) -> bool:
    """Whether a row has what its message says."""
    message = messages[row["node"], row["offset"]]
    if row["topic"] != message.topic:
        return False
    if "outcome" not in row:  # the archive
        return bool(row["payload"] == message.payload)
    if "speed" in row:
        wanted = {name: row["offset"] + more for name, more in LINE_METRICS.items()}
        has = {name: row[name] for name in wanted if row[name] is not None}
        return row["reason"] is None and bool(has) and has.items() <= wanted.items()
    try:
        values = json.loads(message.payload)
    except ValueError:
        return bool(row["payload"] == message.payload)
    return bool((row["t"], row["n"]) == (values["t"], values["n"]))


def exact(row: dict[str, Any]) -> str:
    """A row as a text that is equal for equal rows."""
    return repr({key: f"{value:.{DIGITS}g}" if isinstance(value, float) else value for key, value in row.items()})


def differences(wanted: Counter[str], found: Counter[str]) -> list[str]:
    faults = []
    for what, rows in (("missing", wanted - found), ("more than in the undisturbed run", found - wanted)):
        if rows:
            faults.append(f"{rows.total()} rows {what}, such as {min(rows)}")
    return faults


def episode_faults(alerts: Sequence[dict[str, Any]]) -> list[str]:
    """Of each device: began 1, ended 1, began 2 and so on."""
    seen: Counter[str] = Counter()
    faults = []
    for alert in alerts:
        count = seen[alert["device"]]
        wanted = ("ended" if count % 2 else "began", count // 2 + 1)
        if (alert["state"], alert["episode"]) != wanted:
            faults.append(f"alert {alert} is not {wanted[0]} {wanted[1]}")
        seen[alert["device"]] += 1
    return faults


async def compare(
    job: str, directory: Path, seed: int, messages: int, kills: int, say: Callable[[str], None]
) -> JobReport:
    """Run the job undisturbed and killed, over the same logs."""
    logs = decode_logs(seed, messages) if job == "decode" else job_logs(seed, messages)
    report = JobReport(job)
    with nodes_with(logs) as nodes:
        undisturbed = JobRun(job, directory / job / "undisturbed", nodes)
        await undisturbed.run(0, Random(seed), say)
        wanted = undisturbed.rows()
        report.ends += undisturbed.ends
        report.faults += episode_faults(undisturbed.alerts("silent"))
    say(f"{job}: undisturbed run, {wanted.total():,} rows")
    with nodes_with(logs) as nodes:
        killed = JobRun(job, directory / job / "killed", nodes)
        report.kills = await killed.run(kills, Random(f"{seed} {job}"), say)
        found = killed.rows()
        report.ends += killed.ends
        report.faults += episode_faults(killed.alerts("silent"))
        report.faults += killed.message_faults(logs)
    report.rows = found.total()
    report.faults += differences(wanted, found)
    if not found:
        report.faults.append("no rows")
    return report
