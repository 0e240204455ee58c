"""Measure whether memory stays flat when logs grow: three federated nodes with event logs are filled to one size and then to a
larger one, and a standalone Spark cluster with two workers (one core, 1 GB each) reads all of them each time.

The rows and the payload bytes that were read must be those that were asked for, each offset once. Each size has a Spark
application of its own; the nodes stay. Measure on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster import ROOT, BenchFailed, Ports
from memory import peaks, tree_bytes
from pipeline_nodes import SETTINGS, DataSet, Extent, LoggingNodes
from pipeline_rows import WrongRows
from pyspark.sql import functions as F
from report import number, replace_table
from revision import git
from rows import THIS
from run_bench import describe, interrupt, progress
from run_pipeline import RUN, session, spark_version
from spark_cluster import SparkCluster, spark_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES: Final = 3
WORKERS: Final = 2
PARTITIONS: Final = 12  # for both sizes: tasks grow with the logs
SIZES_GB: Final = [2.0, 20.0]
DATA: Final = DataSet("4 kB, QoS 0", 0, 10, 1000, 50)
PAYLOAD_BYTES: Final = 4096
FLAT: Final = 1.25  # largest ratio of the memory at the second size to that at the first one
SAMPLE_SECONDS: Final = 0.1
WORD_BITS: Final = 64
BEGIN: Final = "<!-- scale table -->"
END: Final = "<!-- end of scale table -->"
METHOD: Final = (
    "Memory is the highest anonymous memory in MB: of a node while the logs are filled up from the size before, or while they "
    "are read; of a worker's processes (worker, executor, its Python) while they are read."
)


@dataclass
class Figures:
    """Of one size."""

    gb: float
    messages: int
    rows: int = 0
    bytes: int = 0
    filling_seconds: float = 0.0  # from the size before
    reading_seconds: float = 0.0
    peak_mb: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Counted:
    """The records that were read of a node's log. distinct: number of distinct offsets."""

    rows: int
    bytes: int
    first: int
    last: int
    distinct: int


def count_rows(spark: SparkSession, server: str, extents: Mapping[str, Extent]) -> dict[str, Counted]:
    """Read these extents. Nodes are found by asking `server`. Distinct offsets are counted exactly, as bits of words."""
    ends = {node: extent.end for node, extent in extents.items()}
    reader = spark.read.format("mqtt").option("servers", server).option("endingOffsets", json.dumps(ends))
    word = F.floor(F.col("offset") / WORD_BITS).alias("word")
    bit = F.expr(f"bit_or(shiftleft(1L, cast(offset % {WORD_BITS} as int)))")
    rows = reader.option("minPartitions", PARTITIONS).load()
    words = rows.groupBy("node", word).agg(
        F.count("*").alias("rows"),
        F.sum(F.length("payload")).alias("bytes"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        bit.alias("bits"),
    )
    found = words.groupBy("node").agg(
        F.sum("rows"), F.sum("bytes"), F.min("first"), F.max("last"), F.sum(F.bit_count("bits"))
    )
    return {node: Counted(*values) for node, *values in found.collect()}


def check(found: Mapping[str, Counted], extents: Mapping[str, Extent], payload: int) -> None:
    """Raise WrongRows unless each record of the extents was read once, with a payload of `payload` bytes."""
    wanted = {}
    for node, extent in extents.items():
        rows = extent.end - extent.start
        wanted[node] = Counted(rows, rows * payload, extent.start, extent.end - 1, rows)
    if found != wanted:
        raise WrongRows(f"{found} was read, should be {wanted}")


def measure(folder: Path, command: Path, sizes: Sequence[float]) -> list[Figures]:
    ports = Ports()
    found: list[Figures] = []
    with (
        LoggingNodes(command, folder / "nodes", ports, NODES) as nodes,
        spark_cluster(folder / "cluster", ports, WORKERS) as cluster,
    ):
        for gb in sizes:
            figures = Figures(gb, round(gb * 1e9 / PAYLOAD_BYTES))
            fill(nodes, figures, figures.messages - (found[-1].messages if found else 0))
            read(folder, nodes, cluster, figures)
            found.append(figures)
    return found


def fill(nodes: LoggingNodes, figures: Figures, messages: int) -> None:
    start = time.monotonic()
    with peaks(node_figures(nodes, "filling"), SAMPLE_SECONDS) as found:
        nodes.publish(DATA, messages, "--size", PAYLOAD_BYTES)
    figures.filling_seconds = time.monotonic() - start
    keep(figures, found)
    progress(f"{figures.gb:g} GB: {messages:,} messages published in {figures.filling_seconds:.0f} s")


def read(folder: Path, nodes: LoggingNodes, cluster: SparkCluster, figures: Figures) -> None:
    extents = nodes.extents()
    watched = node_figures(nodes, "reading")
    for at, pid in enumerate(cluster.workers, start=1):
        watched[f"worker {at}, reading"] = partial(tree_bytes, pid)
        watched[f"worker {at}, its Python"] = partial(tree_bytes, pid, "python")
    with session(folder, cluster.master) as spark, peaks(watched, SAMPLE_SECONDS) as found:
        start = time.monotonic()
        counted = count_rows(spark, nodes.api[0], extents)
        figures.reading_seconds = time.monotonic() - start
    nodes.cluster.check_alive()
    check(counted, extents, PAYLOAD_BYTES)
    figures.rows = sum(each.rows for each in counted.values())
    figures.bytes = sum(each.bytes for each in counted.values())
    keep(figures, found)
    progress(f"{figures.gb:g} GB: {figures.rows:,} rows read in {figures.reading_seconds:.0f} s")


def node_figures(nodes: LoggingNodes, work: str) -> dict[str, Callable[[], int]]:
    pids = zip(nodes.names, nodes.cluster.pids, strict=True)
    return {f"{name}, {work}": partial(tree_bytes, pid) for name, pid in pids}


def keep(figures: Figures, found: Mapping[str, int]) -> None:
    figures.peak_mb |= {name: most / 1e6 for name, most in found.items()}
    progress("; ".join(f"{name}: {figures.peak_mb[name]:.0f} MB" for name in found))


# --- the table


def is_met(first: Figures, second: Figures) -> bool:
    return (
        all((each.rows, each.bytes) == (each.messages, each.messages * PAYLOAD_BYTES) for each in (first, second))
        and first.peak_mb.keys() == second.peak_mb.keys()
        and all(second.peak_mb[name] <= FLAT * most for name, most in first.peak_mb.items())
    )


def report(first: Figures, second: Figures, facts: Mapping[str, str]) -> str:
    lines = [
        f"| figure | {first.gb:g} GB | {second.gb:g} GB | ratio | mark | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]

    def add(name: str, values: tuple[float, float], mark: str = "", met: bool = True) -> None:
        verdict = ("met" if met else "**MISSED**") if mark else ""
        cells = [name, *map(number, values), f"{values[1] / values[0]:.2f}", mark, verdict]
        lines.append(f"| {' | '.join(cells)} |")

    both = (first, second)
    add("rows read", (first.rows, second.rows), "as published", all(each.rows == each.messages for each in both))
    are_all = all(each.bytes == each.messages * PAYLOAD_BYTES for each in both)
    add("payload bytes read", (first.bytes, second.bytes), "as published", are_all)
    add("seconds of reading", (first.reading_seconds, second.reading_seconds))
    add(
        "MB of payload a second",
        (first.bytes / 1e6 / first.reading_seconds, second.bytes / 1e6 / second.reading_seconds),
    )
    for name, most in first.peak_mb.items():
        add(f"{name}: MB", (most, second.peak_mb[name]), f"≤ {FLAT:g}", second.peak_mb[name] <= FLAT * most)
    verdict = "Every mark is met" if is_met(first, second) else "A mark is MISSED"
    described = "\n".join(f"- {name}: {text}" for name, text in facts.items())
    return "\n".join(lines) + f"\n\n{METHOD} {verdict}.\n\n{described}\n"


def run(arguments: argparse.Namespace) -> int:
    sizes = arguments.gb
    if not 0 < sizes[0] < sizes[1]:
        raise BenchFailed(
            f"--gb {sizes[0]:g} {sizes[1]:g}: the second size must be above the first one, and both above 0"
        )
    command = ROOT / (".venv" if arguments.interpreted else ".venv-fast") / "bin" / "gmqttd"
    if not command.exists():
        raise BenchFailed(f"{command.relative_to(ROOT)} is missing: scripts/setup and scripts/build_fast make it")
    subject = {
        THIS: git("describe", "--always", "--dirty") + (" interpreted" if arguments.interpreted else ""),
        "data": f"messages of {PAYLOAD_BYTES:,} random bytes on {NODES} nodes; a size is that of all payloads",
        "Spark": f"standalone, {WORKERS} workers with one core and 1 GB each, {PARTITIONS} tasks, pyspark {spark_version()}",
    }
    facts = {**describe({THIS: command}, subject), "settings": SETTINGS}
    with tempfile.TemporaryDirectory(prefix="gmqttd-scale-", dir=arguments.dir) as folder:
        first, second = measure(Path(folder), command, sizes)
    text = report(first, second, facts)
    # A part does not replace the figures of a whole run.
    is_whole = sizes == SIZES_GB and not arguments.interpreted
    target = ROOT / "bench" / "results" if is_whole else RUN
    target.mkdir(parents=True, exist_ok=True)
    data = {"facts": facts, "sizes": [asdict(first), asdict(second)]}
    (target / "scale.md").write_text(text)
    (target / "scale.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    if is_whole:
        replace_table(ROOT / "docs" / "performance.md", text, BEGIN, END)
    print(f"{text}\nWritten: {(target / 'scale').relative_to(ROOT)}.md and .json")
    return 0 if is_met(first, second) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gb", type=float, nargs=2, default=SIZES_GB, metavar="GB", help="the two sizes: 2 20")
    parser.add_argument("--dir", metavar="DIR", help="where logs are kept meanwhile: the system's temporary folder")
    parser.add_argument("--interpreted", action="store_true", help="measure .venv's gmqttd instead of the compiled one")
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return run(parser.parse_args())
    except (BenchFailed, WrongRows) as fault:
        progress(f"bench: {fault}")
        return 2
    except KeyboardInterrupt:
        progress("bench: interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
