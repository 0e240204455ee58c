"""Tables as a streaming query of Spark leaves them: Parquet files, and a sink log that names those which count."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_rows(table: Path, name: str, rows: dict[str, list[object]]) -> str:
    """Write a file of the table; its name."""
    (table / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(rows), table / name)
    return name


def write_batch(table: Path, batch: str, *names: str) -> None:
    """Name these files in the sink log. Spark writes a checksum beside."""
    log = table / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": (table / name).as_uri(), "action": "add"}) for name in names]
    (log / batch).write_text("\n".join(["v1", *lines]))
    (log / f".{batch}.crc").write_text("")
