"""Makes few large files of the archive's closed dates, in a folder of their own.

The steps for a date, and what a crash after each leaves: (1) read which files Spark's sink log names and the manifest does
not have: nothing; (2) write them anew, sorted, into a folder with a fresh name: a folder that no manifest names, which the
next run removes; (3) compare the numbers of rows: the same; (4) sync the files: the same; (5) replace the manifest: the
date is published. Files of the archive are never changed. Messages that come later for a closed date make a further file.
"""

from __future__ import annotations

import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from broker.config.durations import parse_size
from pipeline.aside import METADATA, committed_files
from pipeline.errors import OptionError, PipelineError
from pipeline.jobs.archive import COMPRESSIONS, read_archive
from pipeline.jobs.archive import FOLDER as ARCHIVE
from pipeline.manifest import CompactedFile, Manifest, publish, read_manifest, sync_files
from pipeline.registry import Context, Option, works

FOLDER: Final = "compacted"
ORDER: Final = ("node", "log", "offset")
DATE: Final = "date="


@dataclass(frozen=True)
class CompactOptions:
    close_after: Annotated[float, Option("a date is closed so long after its end (UTC)", 0.0, is_duration=True)] = (
        3600.0
    )
    file_bytes: Annotated[str, Option("about the size of a file")] = "256MiB"
    compression: Annotated[str, Option("of the Parquet files", words=COMPRESSIONS)] = "zstd"


def plan(files: Iterable[str], manifest: Manifest, now: datetime, close_after: float) -> dict[str, list[str]]:
    """date -> names of the archive's files that are to be compacted, for closed dates. A name is `date=…/node=…/…`."""
    found: dict[str, list[str]] = defaultdict(list)
    done = {name for names in manifest.sources.values() for name in names}
    for name in sorted(files):
        day = name.partition("/")[0].removeprefix(DATE)
        end = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=1, seconds=close_after)
        if end <= now and name not in done:
            found[day].append(name)
    return dict(found)


def rows_of(path: Path) -> int:
    return int(pq.ParquetFile(path).metadata.num_rows)


def logs_of(path: Path) -> list[dict[str, Any]]:
    """Return which offsets of which logs a file has; read from its columns, which are sorted and compress to little."""
    table = pq.ParquetFile(path).read(["node", "log", "offset"])
    grouped = table.group_by(["node", "log"]).aggregate([("offset", "min"), ("offset", "max")])
    ordered = grouped.sort_by([("node", "ascending"), ("log", "ascending")])
    named = ordered.rename_columns({"offset_min": "first_offset", "offset_max": "last_offset"})
    found: list[dict[str, Any]] = named.to_pylist()
    return found


def write_date(
    spark: SparkSession, archive: Path, folder: Path, day: str, names: list[str], file_bytes: int, compression: str
) -> list[CompactedFile]:
    """The messages of these files as few large ones below `folder`, on disk. Raises PipelineError when rows differ."""
    place = folder / day / uuid.uuid4().hex
    size = sum((archive / name).stat().st_size for name in names)
    count = max(1, -(-size // file_bytes))
    rows = read_archive(spark, str(archive), *names)
    ordered = rows.repartitionByRange(count, *ORDER) if count > 1 else rows.coalesce(1)
    ordered.sortWithinPartitions(*ORDER).write.option("compression", compression).parquet(str(place))
    paths = sorted(place.glob("*.parquet"))
    expected, written = sum(rows_of(archive / name) for name in names), sum(rows_of(path) for path in paths)
    if written != expected:
        raise PipelineError(f"{place} has {written} rows, the {len(names)} files of the archive have {expected}")
    sync_files(place, folder)
    return [
        CompactedFile(str(path.relative_to(folder)), day, rows_of(path), path.stat().st_size, logs_of(path))
        for path in paths
    ]


def remove_unnamed(folder: Path, manifest: Manifest) -> int:
    """Remove folders that no manifest names: runs that were cut off left them."""
    named = manifest.folders()
    removed = 0
    for place in folder.glob("*/*"):
        if str(place.relative_to(folder)) not in named:
            shutil.rmtree(place)
            removed += 1
    return removed


def compact(
    spark: SparkSession, archive: Path, folder: Path, options: CompactOptions, now: datetime
) -> Mapping[str, list[CompactedFile]]:
    """Publish all closed dates; date -> files that were added. One process does that in a folder."""
    try:
        file_bytes = parse_size(options.file_bytes)
    except ValueError as error:
        raise OptionError("file_bytes", options.file_bytes, f"is not right: {error}") from None
    if file_bytes < 1:
        raise OptionError("file_bytes", options.file_bytes, "is below 1")
    folder.mkdir(parents=True, exist_ok=True)
    if not (archive / METADATA).is_dir():
        raise PipelineError(f"{archive} is no archive: run the pipeline `archive` first")
    manifest = read_manifest(folder)
    remove_unnamed(folder, manifest)
    added: dict[str, list[CompactedFile]] = {}
    for day, names in plan(committed_files(archive), manifest, now, options.close_after).items():
        added[day] = write_date(spark, archive, folder, day, names, file_bytes, options.compression)
        manifest = manifest.with_date(day, added[day], names)
        publish(folder, manifest)
    return added


@works("compact", CompactOptions)
def work(context: Context, options: CompactOptions) -> list[str]:
    """Few large files of the archive's closed dates, published by a manifest."""
    now = datetime.now(UTC)
    added = compact(context.spark, context.folder / ARCHIVE, context.folder / FOLDER, options, now)
    lines = [
        f"{day}: {sum(each.rows for each in files)} messages in {len(files)} files, "
        f"{sum(each.bytes for each in files)} bytes"
        for day, files in added.items()
    ]
    return lines or [f"no closed date is new (it is {now:%Y-%m-%d %H:%M} UTC)"]
