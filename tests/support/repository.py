"""The files of this repository, for tests that read them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]


def tracked_files() -> list[str]:
    """Files in git, and new files that are not ignored, so that a test fails before the commit."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout: which files belong to the project is not known")
    names = [name for name in done.stdout.decode().split("\0") if name]
    return sorted(name for name in set(names) if (ROOT / name).is_file())


def is_generated(path: Path) -> bool:
    return path.stem.endswith(("_pb2", "_pb2_grpc"))
