"""Installs the package into a virtual environment outside of this checkout, and checks it there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
INSTALL_SECONDS: Final = 900.0
COMMAND_SECONDS: Final = 60.0
PIP: Final = ("-m", "pip", "--disable-pip-version-check")

# Run by the environment's own Python. Prints the hot modules that are not compiled.
LIST_UNCOMPILED: Final = """
import importlib, sys
for name in sys.argv[1:]:
    if importlib.import_module(name).__file__.endswith(".py"):
        print(name)
"""


class InstallFailed(Exception):
    """A command of an installation failed. The text has the end of its output."""


def environment() -> dict[str, str]:
    """This process's environment without its settings for Python and for the build."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "GMQTTD_"))}


def run(command: Sequence[str | Path], folder: Path, seconds: float = COMMAND_SECONDS) -> str:
    """Run a command in the folder. Returns its output; raises InstallFailed."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()[-20:]
        raise InstallFailed("\n".join([f"{command[0]} failed with exit status {done.returncode}", *lines]))
    return done.stdout


def setup_module() -> ModuleType:
    """setup.py as a module."""
    spec = spec_from_file_location("setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hot_modules() -> list[str]:
    """The names of the modules that setup.py compiles."""
    return [path.removesuffix(".py").replace("/", ".") for path in setup_module().hot_modules()]


def unpack_sdist(sdist: Path, folder: Path) -> Path:
    """Unpack the sdist and return its folder. pip may take a wheel of an sdist file from its cache, never of a folder."""
    folder.mkdir()
    run(["tar", "-xzf", sdist, "-C", folder, "--strip-components=1"], folder)
    return folder


def install(python: Path, package: Path, folder: Path) -> Path:
    """Make a virtual environment in the folder and install a wheel or the folder of an sdist. Returns its bin folder."""
    run([python, "-m", "venv", folder / "venv"], folder)
    binaries = folder / "venv" / "bin"
    run([binaries / "python", *PIP, "install", "--quiet", package], folder, INSTALL_SECONDS)
    return binaries


def faults(binaries: Path, folder: Path) -> list[str]:
    """Faults of the package in this environment; [] when every hot module is compiled."""
    found = []
    uncompiled = run([binaries / "python", "-c", LIST_UNCOMPILED, *hot_modules()], folder).split()
    if uncompiled:
        found.append(f"not compiled: {', '.join(uncompiled)}")
    version, files = run([binaries / "gmqttd", "version"], folder).splitlines()
    if "(compiled: built by mypyc " not in version:
        found.append(version)
    shared = Path(files.partition(": ")[2])
    if binaries.parent not in shared.parents:
        found.append(f"the configurations are looked for in {shared}")
    else:
        run([binaries / "gmqttd", "check", "-c", shared / "configs" / "single.yml"], folder)
    return found
