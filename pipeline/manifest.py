"""The manifest of the compacted archive: which Parquet files hold which messages. Readers take its files and no others.

`manifest.json` is replaced as a whole, after its files are on disk. Files are never removed once they are published,
so a reader may keep the list that it read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pipeline.durable import replace_text, sync, sync_names
from pipeline.errors import PipelineError

FILE: Final = "manifest.json"
FORMAT: Final = 1


@dataclass(frozen=True)
class CompactedFile:
    """path   below the manifest's folder
    date    of all its messages, in UTC
    bytes   of the file
    logs    [{"node", "log", "first_offset", "last_offset"}] of its messages
    """

    path: str
    date: str
    rows: int
    bytes: int
    logs: list[dict[str, Any]]


@dataclass(frozen=True)
class Manifest:
    """version  one more with each change
    files    of all dates that were compacted
    sources  date -> names of the archive's files whose messages are in `files`
    """

    version: int = 0
    files: list[CompactedFile] = field(default_factory=list)
    sources: dict[str, list[str]] = field(default_factory=dict)

    def with_date(self, date: str, files: Iterable[CompactedFile], sources: Iterable[str]) -> Manifest:
        """The next manifest: further files of a date, made of further files of the archive."""
        return Manifest(
            self.version + 1,
            [*self.files, *files],
            {**self.sources, date: [*self.sources.get(date, ()), *sources]},
        )

    def folders(self) -> set[str]:
        """Those of its files."""
        return {path.rpartition("/")[0] for path in (each.path for each in self.files)}


def read_manifest(folder: Path) -> Manifest:
    """An empty one where there is none. Raises PipelineError."""
    try:
        found = json.loads((folder / FILE).read_bytes())
    except FileNotFoundError:
        return Manifest()
    except (OSError, ValueError) as error:
        raise PipelineError(f"{folder / FILE} cannot be read: {error}. Restore it, or remove the folder") from None
    if found.get("format") != FORMAT:
        raise PipelineError(f"{folder / FILE} has format {found.get('format')}; this version reads {FORMAT}")
    return Manifest(found["version"], [CompactedFile(**each) for each in found["files"]], found["sources"])


def publish(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest in one step. Its files must be on disk: see `sync_files`."""
    replace_text(folder / FILE, json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1))


def sync_files(folder: Path, top: Path) -> None:
    """Put the files of a folder, and the folders from there up to `top`, on disk."""
    for path in folder.iterdir():
        sync(path)
    sync_names(folder, top)


def compacted_files(folder: str | Path) -> list[str]:
    """The paths of all compacted files, for pandas, pyarrow, DuckDB and others."""
    base = Path(folder)
    return [str(base / each.path) for each in read_manifest(base).files]
