"""Batches of rows as Parquet files, with the position of a reader behind each one.

`rows/N` has the rows of batch N, a file or a folder of files; `commits/N` is written when these are on disk, and has the next
offset of each node. What has no commit does not count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


class BatchFiles:
    def __init__(self, folder: Path) -> None:
        self._rows = folder / "rows"
        self._commits = folder / "commits"
        for place in (self._rows, self._commits):
            place.mkdir(parents=True, exist_ok=True)

    def __len__(self) -> int:
        return max((int(name) + 1 for name in os.listdir(self._commits) if name.isdigit()), default=0)

    def position(self) -> dict[str, int]:
        count = len(self)
        found: dict[str, int] = json.loads((self._commits / str(count - 1)).read_text()) if count else {}
        return found

    def place(self) -> Path:
        """Where the rows of the next batch go; an earlier try may have left some there."""
        return self._rows / str(len(self))

    def commit(self, position: Mapping[str, int]) -> None:
        """The rows of the next batch are whole."""
        written = self.place()
        for path in [written, *written.rglob("*")] if written.is_dir() else [written]:
            _to_disk(path)
        _to_disk(self._rows)
        target = self._commits / str(len(self))
        part = target.with_name(f".{target.name}")
        part.write_text(json.dumps(position))
        _to_disk(part)
        part.replace(target)
        _to_disk(self._commits)

    def files(self) -> list[Path]:
        found = []
        for number in range(len(self)):
            place = self._rows / str(number)
            found += sorted(place.glob("*.parquet")) if place.is_dir() else [place]
        return found


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
