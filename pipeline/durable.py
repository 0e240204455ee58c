"""Files that are on disk, and whole, when a call returns: a reader finds the old content or the new one."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_names(folder: Path, top: Path) -> None:
    """Put the names in a folder on disk, and those in the folders above it up to `top`. Raises OSError."""
    sync(folder)
    while folder != top:
        folder = folder.parent
        sync(folder)


def publish_file(part: Path, path: Path) -> None:
    """Give a written file its name, in one step. Raises OSError."""
    sync(part)
    part.replace(path)
    sync(path.parent)


def replace_text(path: Path, text: str) -> None:
    """Replace the content of a file in one step. Raises OSError."""
    part = path.with_name(f".{path.name}")
    part.write_text(text, encoding="utf-8")
    publish_file(part, path)
