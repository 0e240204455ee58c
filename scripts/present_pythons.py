"""The Pythons of this machine that the project takes, and the sdist that they build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
VERSIONS: Final = ((3, 11), (3, 12), (3, 13), (3, 14))
ASK_VERSION: Final = (
    "import sys; print(sys.implementation.name, *sys.version_info[:3], sys.prefix == sys.base_prefix, sys.executable)"
)


def present_pythons() -> list[Path]:
    """Each CPython of VERSIONS once, without virtual environments."""
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    folders += [Path("/usr/bin"), Path("/usr/local/bin"), *sorted(Path.home().glob(".pyenv/versions/*/bin"))]
    found: dict[Path, tuple[int, ...]] = {}
    for folder in folders:
        for major, minor in VERSIONS:
            described = describe(folder / f"python{major}.{minor}")
            if described is not None:
                found.setdefault(described[0], described[1])
    return sorted(found, key=lambda path: found[path])


def describe(python: Path) -> tuple[Path, tuple[int, ...]] | None:
    """The real path and the version; None unless it is a CPython that runs and is not a virtual environment."""
    try:
        done = subprocess.run([str(python), "-c", ASK_VERSION], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    name, major, minor, micro, is_base, executable = done.stdout.split(maxsplit=5)
    if name != "cpython" or is_base != "True":
        return None
    return Path(executable.strip()).resolve(), (int(major), int(minor), int(micro))


def make_sdist(folder: Path) -> Path:
    command = "import sys; from setuptools.build_meta import build_sdist; print(build_sdist(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", command, str(folder)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.tar.gz"))
