"""The form of the package, compiled or interpreted, and the folder of the files that are installed with it.

The hot modules are compiled with mypyc when a wheel is built (setup.py). The wheel records the reason for its form.
"""

from __future__ import annotations

import platform
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

HOT_MODULE: Final = "broker.errors"  # any module that is compiled: all are compiled together
RECORD_FILE: Final = Path(__file__).with_name("form.txt")  # written by setup.py into each wheel
ROOT: Final = Path(__file__).resolve().parents[2]
REMEDY: Final = (
    "pip install --force-reinstall --no-cache-dir, not editable, where a C compiler and Python's headers are"
)


class Form(NamedTuple):
    name: str  # "compiled" or "interpreted"
    reason: str  # for people


def running_form() -> Form:
    """The form of the hot modules that this process imports, with its reason."""
    spec = find_spec(HOT_MODULE)
    is_source = spec is None or spec.origin is None or spec.origin.endswith(".py")
    try:
        reason = RECORD_FILE.read_text(encoding="utf-8").strip()
    except OSError:
        reason = f"the sources in {ROOT} run, by an editable install or from a checkout"
    return Form("interpreted" if is_source else "compiled", reason)


def version_text() -> str:
    """The package's version, the form with its reason, and the version of Python."""
    form = running_form()
    return f"{installed_version()} ({form.name}: {form.reason}; Python {platform.python_version()})"


def installed_version() -> str:
    installed = _distribution()
    return "(not installed)" if installed is None else installed.version


def log_form(log: Any, on_every_interface: list[str]) -> None:
    """Log the first line of a node. Warn of the interpreted form and name the remedy.

    `log` is a logger of broker.server.logging, `on_every_interface` the addresses that every interface reaches.
    """
    form = running_form()
    log.info(
        "starting",
        version=installed_version(),
        form=form.name,
        reason=form.reason,
        python=platform.python_version(),
        on_every_interface=on_every_interface,
    )
    if form.name == "interpreted":
        log.warning("the interpreted form takes three to six times the CPU of the compiled one", remedy=REMEDY)


def shared_folder() -> Path:
    """The folder of configs/ and docs/: share/gmqttd of the installation, or the checkout."""
    installed = _distribution()
    for file in (installed.files if installed is not None else None) or ():
        if file.match("share/gmqttd/configs/*"):
            return Path(str(file.locate())).resolve().parents[1]
    return ROOT


def _distribution() -> Distribution | None:
    try:
        return distribution("gmqttd")
    except PackageNotFoundError:
        return None
