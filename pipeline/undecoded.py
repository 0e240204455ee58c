"""Why payloads of a decoded table did not decode: `gmqttctl pipeline undecoded`. No Spark is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from gmqttctl.text import aligned, printable
from pipeline.aside import committed_files
from pipeline.decoding.rows import UNDECODED
from pipeline.delta_table import is_table, open_table
from pipeline.errors import OptionError, PipelineError

REASONS_MAX: Final = 1_000  # that are told apart; messages with others are counted together
OUTCOME: Final = "outcome"
OTHERS: Final = "other reasons"
COLUMNS: Final = ("reason", "node", "log", "offset", "topic")


def undecoded(place: Path) -> dict[str, Any]:
    """The reasons, the most frequent first, each with its number of messages and the first of them. Raises PipelineError."""
    found: dict[str, dict[str, Any]] = {}
    for batch in _batches(place):
        for row in batch.to_pylist():
            reason = row["reason"] if row["reason"] in found or len(found) < REASONS_MAX else OTHERS
            each = found.setdefault(reason, {"reason": reason, "messages": 0, "first": dict(row)})
            each["messages"] += 1
    return {"table": place.name, "reasons": sorted(found.values(), key=lambda each: -each["messages"])}


def _batches(place: Path) -> Iterator[pa.RecordBatch]:
    if is_table(place):
        table = open_table(place)
        missing = {OUTCOME, *COLUMNS} - {each.name for each in table.schema().fields}
        if missing:
            raise OptionError(
                "TABLE", place.name, f"is no table of job decode: it has no columns {', '.join(sorted(missing))}"
            )
        files = table.to_pyarrow_dataset(file_pruning_predicate=[(OUTCOME, "=", UNDECODED)])
        yield from files.to_batches(columns=list(COLUMNS))
        return
    if not place.is_dir():
        raise OptionError(
            "TABLE", place.name, f"is no folder of {place.parent}; `gmqttctl pipeline status` names the queries"
        )
    try:
        for name in committed_files(place):
            if name.startswith(f"outcome={UNDECODED}/"):
                with pq.ParquetFile(place / name) as file:
                    yield from file.iter_batches(columns=list(COLUMNS))
    except (OSError, pa.ArrowInvalid) as error:
        raise PipelineError(f"{place} cannot be read: {error}") from None


def undecoded_lines(found: Mapping[str, Any]) -> list[str]:
    """The result of `undecoded` for people."""
    rows = [("MESSAGES", "FIRST", "TOPIC", "REASON")]
    for each in found["reasons"]:
        first = each["first"]
        place = f"{printable(first['node'])} {first['offset']}"
        rows.append((str(each["messages"]), place, printable(first["topic"]), printable(each["reason"])))
    return aligned(rows)
