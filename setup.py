"""Compile the hot modules with mypyc when a wheel is built. Everything else about the package is in pyproject.toml.

An editable install is never compiled: there the sources themselves run, and they are the reference.
GMQTTD_COMPILE chooses for a wheel:
    unset   compile; without a C compiler, or when compiling fails, say so and build the interpreted form
    0       do not compile
    1       compile or fail (scripts/build_fast, so that nobody tests or measures the wrong form)
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
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
    "broker/routing/*.py",
    "broker/session/*.py",
    "broker/timers.py",
    "broker/flow.py",
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
    "broker/server/socket_writer.py",
    "broker/server/turns.py",
)

PROBE = "#include <Python.h>\nint main(void) { return Py_IsInitialized(); }\n"

# At 1,000 messages a second the caches are cold when a message comes, and every line of code that it touches costs some
# 30 ns. So its functions lie side by side in the order of their calls, and what only errors need lies elsewhere.
HOT_PATH = "bench/hot_path.txt"  # written by bench/hot_path.py, which is where the order comes from
RARE_HELPERS = (  # of mypyc's runtime: errors, and integers of more than 62 bits
    "CPy_AddTraceback",
    "CPy_AttributeError",
    "CPy_Raise",
    "CPy_Reraise",
    "CPy_TypeError",
    "CPy_TypeErrorTraceback",
    "CPyError_OutOfMemory",
    "CPyInt32_Overflow",
    "CPyTagged_DecRef",
    "CPyTagged_IncRef",
    "CPyUInt8_Overflow",
)
ORDER_PROBE = ("gmqttd_c", "gmqttd_a", "gmqttd_b")  # functions that nobody would lay so without being told


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


def c_names(lines: Iterable[str], modules: Sequence[str]) -> list[str]:
    """mypyc's C functions for the lines of HOT_PATH, which says at its head what they mean."""
    from mypyc.namegen import NameGenerator

    names = NameGenerator([list(modules)])
    found: list[str] = []
    for line in lines:
        words = line.partition("#")[0].split()
        if not words:
            continue
        module, function, *caller = words
        if module == "C":
            found.append(function)
            continue
        if caller:
            found.append(f"CPyPy_{names.private_name(module, function)}")
        owner, _, method = function.rpartition(".")
        if owner and method == "__init__":  # what makes an object comes and goes with it
            made = names.private_name(module, owner)
            found += [f"CPyDef_{made}", f"CPyDef_{names.private_name(module, f'__mypyc__{owner}_setup')}"]
            found += [f"CPyDef_{names.private_name(module, function)}", f"{made}_dealloc", f"CPyDef_{made}_clear"]
        else:
            found.append(f"CPyDef_{names.private_name(module, function)}")
    return list(dict.fromkeys(found))


def linker_script(functions: Iterable[str]) -> str:
    """Adds to the linker's own script. The compiler may put .isra, .part or .constprop behind a name; names that are not
    there, such as those of another mypyc, do no harm."""
    places = "".join(f"    *(.text.{name} .text.{name}.*)\n" for name in functions)
    return f"SECTIONS\n{{\n  .text.hot_path :\n  {{\n{places}  }}\n}}\nINSERT BEFORE .text;\n"


def cold_header(runtime_header: str) -> str:
    """RARE_HELPERS declared as rarely called: the compiler moves the branches that lead to them away."""
    found = [re.search(rf"^void {name}\([^;{{]*\);", runtime_header, re.MULTILINE) for name in RARE_HELPERS]
    declared = "".join(f"__attribute__((cold)) {match[0]}\n" for match in found if match is not None)
    # Without Python.h, in front of which the runtime may want to set something.
    return "#include <stddef.h>\nstruct _object;\n" + declared.replace("PyObject", "struct _object").replace(
        "CPyTagged ", "size_t "
    )


def build_fault(
    folder: Path, source: str, compiling: Sequence[str], linking: Sequence[str] | None = None
) -> str | None:
    """Why this C source cannot be compiled (and linked to folder/probe.so) with these options, None when it can."""
    from distutils.ccompiler import new_compiler  # setuptools' own, which knows CC, CFLAGS and so on
    from distutils.sysconfig import customize_compiler

    compiler = new_compiler()
    customize_compiler(compiler)
    Path(folder, "probe.c").write_text(source)
    paths = [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
    code = f"{folder}/probe.o"
    commands = [[*compiler.compiler_so, *paths, *compiling, "-c", f"{folder}/probe.c", "-o", code]]
    if linking is not None:
        commands.append([*compiler.linker_so, code, *linking, "-o", f"{folder}/probe.so"])
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            return str(error)
        if done.returncode != 0:
            return done.stderr.strip().partition("\n")[0] or f"{command[0]} failed"
    return None


def order_fault(arguments: Sequence[str] = ()) -> str | None:
    """Why functions cannot be laid in an order here, None when they can: GNU ld and its like take the script."""
    source = "".join(f"int {name}(int n) {{ return n; }}\n" for name in sorted(ORDER_PROBE))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "probe.ld")
        script.write_text(linker_script(ORDER_PROBE))
        fault = build_fault(Path(folder), source, [*arguments, "-ffunction-sections"], [f"-Wl,-T,{script}"])
        if fault is not None:
            return fault
        try:
            library = ctypes.CDLL(str(Path(folder, "probe.so")))
        except OSError as error:
            return str(error)
        places = [ctypes.cast(library[name], ctypes.c_void_p).value or 0 for name in ORDER_PROBE]
    return None if places == sorted(places) else "the linker keeps an order of its own"


def lay_out(extension: Extension, folder: Path = Path("build")) -> None:
    """Adds the options that arrange the code, each where compiler and linker take it. Without them it is only slower."""
    try:
        import mypyc.build

        arguments: list[str] = extension.extra_compile_args
        runtime = Path(mypyc.build.__file__).parent / "lib-rt"
        modules = [path.removesuffix(".py").replace("/", ".") for path in hot_modules()]
        folder.mkdir(exist_ok=True)
        script = folder / "hot_path.ld"
        script.write_text(linker_script(c_names(Path(HOT_PATH).read_text(encoding="utf-8").splitlines(), modules)))
        header = folder / "cold_errors.h"
        header.write_text(cold_header((runtime / "CPy.h").read_text(encoding="utf-8")))
        with tempfile.TemporaryDirectory() as probes:
            no_plt = build_fault(Path(probes), PROBE, [*arguments, "-fno-plt"])
            include = [f"-I{runtime}", "-include", str(header.absolute())]
            cold = build_fault(Path(probes), '#include "CPy.h"\n', [*arguments, *include])
        order = order_fault(arguments)
    except Exception as error:
        say(f"the hot path is compiled as it comes: {error!r}")
        return
    if order is None:
        extension.extra_compile_args.append("-ffunction-sections")
        extension.extra_link_args.append(f"-Wl,-T,{script}")
        extension.depends.append(HOT_PATH)
    if no_plt is None:
        extension.extra_compile_args.append("-fno-plt")
    if cold is None:
        extension.extra_compile_args += ["-include", str(header)]
    for what, fault in (("order of functions", order), ("-fno-plt", no_plt), ("cold error paths", cold)):
        if fault is not None:
            say(f"compiled without this: {what} ({fault})")


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

            found = mypycify(hot_modules(), opt_level="3", group_name="gmqttd")
            for extension in found:
                if extension.name.endswith("__mypyc"):  # all code of the group; the others only name their module in it
                    lay_out(extension)
            return found
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
