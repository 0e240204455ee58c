"""Compile the hot modules with mypyc when a wheel is built. Everything else about the package is in pyproject.toml.

An editable install is never compiled: there the sources themselves run, and they are the reference.
GMQTTD_COMPILE chooses for a wheel:
    unset   compile; without a C compiler, or when compiling fails, say so and build the interpreted form
    0       do not compile
    1       compile or fail (scripts/build_fast, so that nobody tests or measures the wrong form)
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# One group, so that calls between these modules are C calls. Packages' __init__ only re-export and stay as they are.
HOT_MODULES = (
    "broker/errors.py",
    "broker/message.py",
    "broker/counters.py",
    "broker/codec/*.py",
    "broker/topics/*.py",
    "broker/session/*.py",
    "broker/timers.py",
    "broker/flow.py",
    "broker/route.py",
    "broker/router.py",
    "broker/broker.py",
    "broker/hooks.py",
    "federation/stream/*.py",
    # Shells and the sum that every message passes. With everything on one CPU a message took 113 and 143 µs over two
    # nodes, without them 123 and 155 (two runs each); not pinned, no difference showed above the noise.
    "federation/node.py",
    "federation/shell/direct_client.py",
    "federation/shell/direct_server.py",
    "federation/shell/outflow.py",
    "broker/server/protocol.py",
    "broker/server/turns.py",
)

PROBE = "#include <Python.h>\nint main(void) { return Py_IsInitialized(); }\n"


def say(text: str) -> None:
    print(f"gmqttd: {text}", file=sys.stderr, flush=True)


def hot_modules() -> list[str]:
    paths = [path for pattern in HOT_MODULES for path in sorted(glob(pattern))]
    return [path for path in paths if not path.endswith("__init__.py")]


def compiler_fault() -> str | None:
    """Why C extensions cannot be built here, None when they can: a compiler and Python's headers are needed."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(PROBE)
        includes = [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
        try:
            done = subprocess.run(
                [*command, *includes, "-c", str(source), "-o", str(Path(folder, "probe.o"))],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:
            return f"no C compiler ({command[0]}); on Debian: apt-get install gcc python3-dev"
    if done.returncode != 0:
        reason = "no Python.h; on Debian: apt-get install python3-dev" if "Python.h" in done.stderr else done.stderr
        return f"{command[0]} cannot build an extension: {reason.strip()}"
    return None


def extensions() -> list[Extension]:
    """The hot modules as C extensions; [] for the interpreted form."""
    wanted = os.environ.get("GMQTTD_COMPILE", "")
    builds_a_wheel = any(command in sys.argv for command in ("bdist_wheel", "build", "build_ext", "install"))
    if wanted == "0" or not builds_a_wheel or "editable_wheel" in sys.argv:
        return []
    fault = compiler_fault()
    if fault is None:
        try:
            from mypyc.build import mypycify

            return mypycify(hot_modules(), opt_level="3", group_name="gmqttd")
        except ImportError as error:
            fault = f"mypyc is missing ({error})"
        except SystemExit:  # mypyc's way to report errors, after it has printed them
            fault = "mypyc refused the sources, see above"
    if wanted == "1":
        raise SystemExit(f"gmqttd: cannot be compiled: {fault}")
    say(f"built in its interpreted form: {fault}")
    return []


class BuildOrLeaveInterpreted(build_ext):
    """A C compiler that fails half-way leaves a wheel that works, only slower."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            if os.environ.get("GMQTTD_COMPILE") == "1":
                raise
            say(f"built in its interpreted form: {error}")
            self.extensions = []


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildOrLeaveInterpreted})
