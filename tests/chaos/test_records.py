"""Rows of an archive are read as Spark's sink log says; what it does not name was not committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oracle import Row
from records import archive_files, read_archive

ROW = Row(
    *("node 1", "log", 7, 1000, "chaos/a", b"\x00\xff", 1, False, "client", None, "text/plain", None, None),
    *((("part", "a"), ("part", "b")), None, None),
)


def write_part(folder: Path, name: str, *rows: Row) -> Path:
    """A file of an archive that is partitioned by date and node."""
    path = folder / "date=2026-11-22" / "node=node%201" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    for row in rows:
        properties = [{"key": key, "value": value} for key, value in row.user_properties]
        fields = {**row._asdict(), "user_properties": properties}
        del fields["node"]
        found.append(fields)
    pq.write_table(pa.Table.from_pylist(found), path)
    return path


def write_batch(folder: Path, name: str, *paths: Path) -> None:
    log = folder / "_spark_metadata"
    log.mkdir(exist_ok=True)
    lines = [json.dumps({"path": path.as_uri(), "size": 1, "action": "add"}) for path in paths]
    (log / name).write_text("\n".join(["v1", *lines]))


def test_only_files_of_committed_batches_are_read(tmp_path: Path) -> None:
    first = write_part(tmp_path, "part-0.parquet", ROW)
    second = write_part(tmp_path, "part-1.parquet", ROW._replace(offset=8), ROW._replace(offset=9))
    write_part(tmp_path, "part-2.parquet", ROW._replace(offset=10))
    write_batch(tmp_path, "0", first)
    write_batch(tmp_path, "1", second)
    assert read_archive(tmp_path) == [ROW, ROW._replace(offset=8), ROW._replace(offset=9)]


def test_a_compact_file_replaces_the_batches_before_it(tmp_path: Path) -> None:
    paths = [write_part(tmp_path, f"part-{number}.parquet", ROW) for number in range(4)]
    for number in range(3):
        write_batch(tmp_path, str(number), paths[number])
    write_batch(tmp_path, "9.compact", *paths[1:3])
    write_batch(tmp_path, "10", paths[3])
    assert archive_files(tmp_path) == paths[1:4]
