"""Compile the hot modules with mypyc when a wheel is built. Everything else about the package is in pyproject.toml.

An editable install is never compiled: it runs the sources, which are the reference.
GMQTTD_COMPILE chooses for a wheel:
    unset   compile where a C compiler is; build the interpreted form elsewhere
    0       build the interpreted form
    1       compile, or fail where no C compiler is
The wheel records the reason for its form in broker/server/form.txt.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

# A module with this line is compiled. All are one group, so that calls between them are C calls.
COMPILED = "# compiled with mypyc"
PACKAGES = ("broker", "federation")
# The build environment has no dependencies of the product in it. Modules that only lend their types to the hot ones
# may import them: their errors are not reported. A hot module whose own import or type is missing fails the build,
# because it would become slow `Any`. scripts/check has the strict rules.
MYPY_OPTIONS = ("--config-file=", "--follow-imports=silent", "--disallow-any-unimported")
# One C file for each module, so that all cores compile. Beside one file of all with mypyc's own -O3 -g1 this takes half of the
# CPU time (88 s and 168 s on a busy machine) and 0.6 of the disk, and a message takes 0.93 of the time: hidden symbols are
# called directly.
C_OPTIONS = {"multi_file": True, "opt_level": "2", "debug_level": "0"}
C_FLAGS = ("-fvisibility=hidden",)
FORM_FILE = "broker/server/form.txt"  # read by broker/server/form.py

PROBE = "#include <Python.h>\nint main(void) { return Py_IsInitialized(); }\n"


def hot_modules() -> list[str]:
    """Paths of the modules with the line COMPILED."""
    root = Path(__file__).parent
    paths = [path for package in PACKAGES for path in sorted(root.joinpath(package).rglob("*.py"))]
    return [str(path.relative_to(root)) for path in paths if is_hot(path)]


def is_hot(path: Path) -> bool:
    return COMPILED in path.read_text(encoding="utf-8").splitlines()


def compiler_command() -> list[str]:
    return (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()


def compiler_fault() -> str | None:
    """The reason why C extensions cannot be built; None when a compiler and Python's headers are there."""
    command = compiler_command()
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


def extensions() -> tuple[list[Extension], str]:
    """The hot modules as C extensions ([] for the interpreted form) and the reason for the form."""
    wanted = os.environ.get("GMQTTD_COMPILE", "")
    if wanted == "0":
        return [], "built with GMQTTD_COMPILE=0"
    fault = compiler_fault()
    if fault is not None:
        if wanted == "1":
            raise SystemExit(f"gmqttd: cannot be compiled: {fault}")
        return [], f"built where there was {fault}"
    from mypy.version import __version__ as mypy_version
    from mypyc.build import mypycify

    try:
        found = mypycify([*MYPY_OPTIONS, *hot_modules()], group_name="gmqttd", **C_OPTIONS)
    except SystemExit as error:  # mypyc exits after it has printed its errors
        raise SystemExit(
            "gmqttd: mypyc refused the sources, see above; GMQTTD_COMPILE=0 builds the interpreted form"
        ) from error
    for extension in found:
        extension.extra_compile_args = [*extension.extra_compile_args, *C_FLAGS]
    return found, f"built by mypyc {mypy_version} and {compiler_command()[0]}"


class BuildWithForm(build_py):
    """Adds the file with the reason for the wheel's form."""

    reason = ""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)  # modules that an earlier build left there would be packed
        super().run()
        if self.reason:
            Path(self.build_lib, FORM_FILE).write_text(f"{self.reason}\n", encoding="utf-8")


class BuildInParallel(build_ext):
    """Compiles on all cores: the C files of one extension, and several extensions."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        compile_files = self.compiler.compile

        def compile_in_parallel(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(self.parallel) as pool:
                objects = list(pool.map(lambda source: compile_files([source], **options), sources))
            return [name for names in objects for name in names]

        self.compiler.compile = compile_in_parallel
        super().build_extensions()


if __name__ == "__main__":
    if "bdist_wheel" in sys.argv:
        found, BuildWithForm.reason = extensions()
        setup(ext_modules=found, cmdclass={"build_py": BuildWithForm, "build_ext": BuildInParallel})
    else:  # an sdist, an editable install, a question about the metadata
        setup()
