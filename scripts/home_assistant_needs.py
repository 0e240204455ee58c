"""Writes what Home Assistant and its integrations of a test need, and the versions that it takes: NEEDS CONSTRAINTS.

Run by the Python where it is installed without its dependencies. At a start it would fetch them by itself.
"""

from __future__ import annotations

import json
import shutil
import sys
from importlib.metadata import distribution, requires
from pathlib import Path
from typing import Final

INTEGRATIONS: Final = ("mqtt", "api", "config", "onboarding", "frontend")  # the start ends without the last


def main() -> None:
    folder = Path(str(distribution("homeassistant").locate_file("homeassistant")))
    waiting, seen, needs = list(INTEGRATIONS), set[str](), set(requires("homeassistant") or ())
    while waiting:
        name = waiting.pop()
        manifest = folder / "components" / name / "manifest.json"
        if name not in seen and manifest.exists():
            seen.add(name)
            found = json.loads(manifest.read_text(encoding="utf-8"))
            needs.update(found.get("requirements", ()))
            waiting += found.get("dependencies", ())
    Path(sys.argv[1]).write_text("\n".join(sorted(needs)), encoding="utf-8")
    shutil.copyfile(folder / "package_constraints.txt", sys.argv[2])


if __name__ == "__main__":
    main()
