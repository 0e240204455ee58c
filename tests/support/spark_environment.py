"""Pythons for Spark's workers that have not got this project: it comes with the application, as a wheel or in an archive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from repository import ROOT, tracked_files

BUILD: Final = "from setuptools.build_meta import build_wheel; print(build_wheel('..'))"
PACKED: Final = ("broker/", "federation/", "gmqttctl/", "pipeline/", "docs/", "configs/")


WORKERS: Final = ("gmqttd", "pipeline-workers")


def build_wheel(folder: Path) -> Path:
    """The interpreted form: a wheel for any Python."""
    tree = folder / "tree"
    for name in tracked_files():
        if name.startswith(PACKED) or "/" not in name:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    done = subprocess.run(
        [sys.executable, "-c", BUILD],
        cwd=tree,
        env={**os.environ, "GMQTTD_COMPILE": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / done.stdout.splitlines()[-1]


def needed_distributions(project: str, extra: str) -> set[str]:
    """What the extra of a project brings, all below it included, without the project and its other dependencies."""
    found: set[str] = set()
    todo = [
        Requirement(text).name
        for text in distribution(project).requires or ()
        if (marker := Requirement(text).marker) is not None and marker.evaluate({"extra": extra})
    ]
    while todo:
        name = canonicalize_name(todo.pop())
        if name in found:
            continue
        found.add(name)
        for text in distribution(name).requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo.append(requirement.name)
    return found


def link_packages(folder: Path, project: str, extra: str) -> Path:
    """A folder with the packages of the extra, as links to those that are installed here."""
    folder.mkdir()
    for name in needed_distributions(project, extra):
        installed = distribution(name)
        for first in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            if not (folder / first).is_symlink():  # parts of one namespace come from several
                (folder / first).symlink_to(Path(str(installed.locate_file(first))))
    return folder


def make_python(folder: Path, *paths: Path) -> Path:
    """A Python that has nothing but these folders."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "more.pth").write_text("".join(f"{path}\n" for path in paths))
    return python


def pack(archive: Path, *folders: Path) -> None:
    """A .tar.gz of what these folders have."""
    with tarfile.open(archive, "w:gz", compresslevel=1, dereference=True) as tar:
        for folder in folders:
            for path in sorted(folder.iterdir()):
                tar.add(path, path.name, filter=lambda member: None if "__pycache__" in member.name else member)
