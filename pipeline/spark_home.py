"""A SPARK_HOME for sessions on this machine whose Python workers start fast.

Spark gives its Python workers the modules of PySpark in a zip below SPARK_HOME, which has no compiled files: a worker takes
0.95 s of CPU to start, with the installed package 0.35 s. A query ends where a worker does not start within ten seconds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SPARK_HOME: Final = "SPARK_HOME"
ZIPS: Final = "python"  # the folder with the zip: without it workers find the installed package


def link_spark_home(package: Path, folder: Path) -> Path:
    """A SPARK_HOME below `folder` that has all of the package `pyspark` but ZIPS. Raises OSError."""
    home = folder / f"spark-{hashlib.sha256(bytes(package)).hexdigest()[:16]}"
    home.mkdir(parents=True, exist_ok=True)
    for place in package.iterdir():
        if place.name != ZIPS:
            with suppress(FileExistsError):
                (home / place.name).symlink_to(place)
    return home


@contextmanager
def fast_workers(master: str | None, folder: Path) -> Iterator[None]:
    """Java that is started meanwhile has such a SPARK_HOME, unless one is given, its workers are those of other machines, or
    they run another Python, which may lack PySpark."""
    found = importlib.util.find_spec("pyspark")
    is_own = (master or "").startswith("local") and os.environ.get("PYSPARK_PYTHON") == sys.executable
    if SPARK_HOME in os.environ or not is_own or found is None or found.origin is None:
        yield
        return
    with suppress(OSError):  # without it Spark starts as ever
        os.environ[SPARK_HOME] = str(link_spark_home(Path(found.origin).parent, folder))
    try:
        yield
    finally:
        os.environ.pop(SPARK_HOME, None)
