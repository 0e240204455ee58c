"""Installs the sdist with each Python that is present and prints a table. scripts/test_package describes its arguments."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from present_pythons import describe, make_sdist, present_pythons

from fresh_environment import InstallFailed, faults, install, unpack_sdist


def outcome(python: Path, sdist: Path) -> str:
    """The word "compiled", or the fault."""
    with tempfile.TemporaryDirectory(prefix="gmqttd-package-") as name:
        folder = Path(name)
        try:
            binaries = install(python, unpack_sdist(sdist, folder / "source"), folder)
            found = faults(binaries, folder)
        except (InstallFailed, subprocess.TimeoutExpired) as error:
            found = [str(error)]
    return "; ".join(found) or "compiled"


def main() -> int:
    pythons = [Path(name).absolute() for name in sys.argv[1:]] or present_pythons()
    rows = []
    with tempfile.TemporaryDirectory(prefix="gmqttd-sdist-") as folder:
        sdist = make_sdist(Path(folder))
        for python in pythons:
            described = describe(python)
            version = ".".join(map(str, described[1])) if described is not None else "?"
            print(f"{python} ({version}) …", file=sys.stderr, flush=True)
            started_at = time.monotonic()
            rows.append((version, str(python), outcome(python, sdist), f"{time.monotonic() - started_at:.0f} s"))
    print("| Python | at | outcome | took |\n| --- | --- | --- | --- |")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    return 0 if rows and all(row[2] == "compiled" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
