"""bench/hot_path.txt: it names what there is and what a message runs through, and the compiled code lies in its order."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import broker.routing.router

ROOT: Final = Path(__file__).resolve().parent.parent
LINES: Final = [
    line
    for line in (ROOT / "bench" / "hot_path.txt").read_text(encoding="utf-8").splitlines()
    if line and line[0] != "#"
]


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """setup.py as a module, in the folder that it runs in."""
    monkeypatch.chdir(ROOT)
    spec = importlib.util.spec_from_file_location("gmqttd_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def functions_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return found


def module_names(setup: ModuleType) -> list[str]:
    return [path.removesuffix(".py").replace("/", ".") for path in setup.hot_modules()]


@pytest.mark.uncompiled
def test_every_name_is_one_of_the_sources(setup: ModuleType) -> None:
    modules = module_names(setup)
    for line in LINES:
        module, function, *caller = line.split()
        assert caller in ([], ["from", "Python"]), line
        if module == "C":
            assert not caller, line
            continue
        assert module in modules, line
        assert function in functions_of(ROOT / f"{module.replace('.', '/')}.py"), (
            f"{line}: run bench/hot_path.py --write"
        )
    assert len(set(LINES)) == len(LINES)


@pytest.mark.uncompiled
def test_what_every_message_runs_through_is_listed() -> None:
    done = subprocess.run(
        [sys.executable, "bench/hot_path.py", "--steady"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    assert len(found) > 50
    missing = [line for line in found if line not in LINES and f"{line} from Python" not in LINES]
    assert missing == [], "run bench/hot_path.py --write"


@pytest.mark.uncompiled
def test_the_linker_script(setup: ModuleType) -> None:
    lines = ["# a comment", "", "a.b.turns Turns._end from Python", "a.b.wire check", "c.wire Block.__init__", "C CPyX"]
    names = setup.c_names(lines, ["a.b.turns", "a.b.wire", "c.wire"])
    assert names == [
        "CPyPy_turns___Turns____end",
        "CPyDef_turns___Turns____end",
        "CPyDef_b___wire___check",
        "CPyDef_c___wire___Block",
        "CPyDef_c___wire_____mypyc__Block_setup",
        "CPyDef_c___wire___Block_____init__",
        "c___wire___Block_dealloc",
        "CPyDef_c___wire___Block_clear",
        "CPyX",
    ]
    assert setup.linker_script(names[:2]).split() == [
        *("SECTIONS", "{", ".text.hot_path", ":", "{"),
        *("*(.text.CPyPy_turns___Turns____end", ".text.CPyPy_turns___Turns____end.*)"),
        *("*(.text.CPyDef_turns___Turns____end", ".text.CPyDef_turns___Turns____end.*)"),
        *("}", "}", "INSERT", "BEFORE", ".text;"),
    ]


@pytest.mark.uncompiled
def test_only_what_the_runtime_declares_is_declared_cold(setup: ModuleType) -> None:
    text = "void CPy_Other(void);\nvoid CPy_TypeError(const char *expected,\n   PyObject *value);\n"
    text += "int CPyError_OutOfMemory(void);\n"  # another type than we know: left alone
    text += "void CPyTagged_DecRef(CPyTagged x);\n"
    assert setup.cold_header(text) == (
        "#include <stddef.h>\nstruct _object;\n"
        "__attribute__((cold)) void CPy_TypeError(const char *expected,\n   struct _object *value);\n"
        "__attribute__((cold)) void CPyTagged_DecRef(size_t x);\n"
    )


@pytest.mark.uncompiled
@pytest.mark.parametrize("variable", ["CC", "LDSHARED"])
def test_without_such_a_compiler_or_linker_nothing_is_arranged(
    setup: ModuleType,
    variable: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, "false")
    extension = setup.Extension("group", [])
    setup.lay_out(extension, tmp_path)
    assert extension.extra_link_args == []
    assert "-ffunction-sections" not in extension.extra_compile_args
    assert "compiled without this: order of functions" in capsys.readouterr().err
    if variable == "CC":
        assert extension.extra_compile_args == []


def test_the_compiled_functions_lie_in_this_order(setup: ModuleType) -> None:
    site = Path(broker.router.__file__).parent.parent
    libraries = list(site.glob("gmqttd__mypyc*.so"))
    if broker.router.__file__.endswith(".py") or len(libraries) != 1:
        pytest.skip("this is the interpreted form")
    fault = setup.compiler_fault() or setup.order_fault()
    if fault is not None:
        pytest.skip(f"functions cannot be laid in an order here: {fault}")
    try:
        done = subprocess.run(["nm", "-n", str(libraries[0])], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("no nm to look with")
    places = {words[2]: place for place, line in enumerate(done.stdout.splitlines()) if len(words := line.split()) == 3}
    wanted = setup.c_names(LINES, module_names(setup))
    found = [places[name] for name in wanted if name in places]
    # The compiler may have put small functions of its own choice into their callers.
    assert len(found) > 0.9 * len(wanted), [name for name in wanted if name not in places]
    assert found == sorted(found)
    between = [name for name, place in places.items() if found[0] < place < found[-1] and name not in wanted]
    assert all("." in name for name in between), between  # parts of the wanted ones
