"""Messages that jobs kept aside: those that came late, and payloads that did not parse. They are partitions of a
job's table.

The numbers are read from the files that Spark's sink log names, or from the log of a Delta table, so they are right also
after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.delta_table import count_by_partition, is_table
from pipeline.errors import PipelineError

METADATA: Final = "_spark_metadata"
COMPACT: Final = ".compact"
# Partition of a table -> what is counted there.
ASIDE: Final = {"arrival=late": "late", "outcome=rejected": "rejected", "outcome=undecoded": "undecoded"}
MESSAGES: Final = "messages"  # of rows that count messages
COLUMN: Final = "column"  # "" in the row that counts all messages of a window


def kept_aside(table: Path) -> dict[str, int]:
    """Return how many messages of each kind in ASIDE; kinds without messages are left out. Raises PipelineError."""
    if is_table(table):
        counts = count_by_partition(table)
        return {kind: counts[partition] for partition, kind in ASIDE.items() if partition in counts}
    found: dict[str, int] = {}
    for name in committed_files(table):
        kind = ASIDE.get(name.partition("/")[0])
        if kind is not None:
            found[kind] = found.get(kind, 0) + messages_of(table / name)
    return found


def committed_files(table: Path) -> Iterator[str]:
    """Names of the files below the table's folder that the sink log names. Raises PipelineError.

    The log has a file for each batch, and from time to time one that has all batches until then.
    """
    log = table / METADATA
    if not log.is_dir():
        return
    batches = sorted((int(path.name.removesuffix(COMPACT)), path) for path in log.glob("[0-9]*"))
    whole = max((index for index, (_, path) in enumerate(batches) if path.name.endswith(COMPACT)), default=0)
    # Spark gives URIs. Special characters in the folder of a partition are escaped once more in them.
    mark = f"/{table.name}/"
    for _, path in batches[whole:]:
        try:
            _, *lines = path.read_text(encoding="utf-8").splitlines()
            names = [json.loads(line)["path"] for line in lines]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PipelineError(f"{path} is no sink log of Spark: {error}") from None
        yield from (unquote(name).rpartition(mark)[2] for name in names)


def messages_of(path: Path) -> int:
    """Raises PipelineError."""
    try:
        with pq.ParquetFile(path) as file:
            names = [name for name in (MESSAGES, COLUMN) if name in file.schema_arrow.names]
            if not names:
                return int(file.metadata.num_rows)
            rows = file.read(names)
    except (OSError, ValueError) as error:
        raise PipelineError(f"{path} is no Parquet file of this table: {error}") from None
    if COLUMN in names:
        rows = rows.filter(pc.equal(rows[COLUMN], ""))
    return int(pc.sum(rows[MESSAGES]).as_py() or 0)


def aside_text(found: dict[str, Any]) -> str:
    """Such as "5 late, 2 rejected"; "" for nothing."""
    return ", ".join(f"{count} {kind}" for kind, count in found.items())
