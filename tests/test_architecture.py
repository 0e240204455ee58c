"""The architecture as tests: what a core may import, who knows whom, how long a module may be, what stays outside."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from module_graph import module_graph, module_name
from repository import ROOT, is_generated, tracked_files

LINES_MAX: Final = 500

# A module of these packages is a core (rules without input and output), unless it stands in one of these folders or says
# in a line of its own why not.
CORE_PACKAGES: Final = ("broker", "federation")
SHELL_FOLDERS: Final = frozenset({"api", "pb", "server", "shell"})
NOT_A_CORE: Final = re.compile(r"^# not a core: .{5,}$", re.MULTILINE)
A_CORE: Final = re.compile(r"^# a core$", re.MULTILINE)  # in a folder of shells
# A module with the first line is compiled (setup.py). Modules that it imports are, too, or say why not.
COMPILED: Final = re.compile(r"^# compiled with mypyc$", re.MULTILINE)
NOT_COMPILED: Final = re.compile(r"^# not compiled: .{5,}$", re.MULTILINE)
INPUT_AND_OUTPUT: Final = frozenset(
    [
        "aiohttp",
        "asyncio",
        "grpc",
        "multiprocessing",
        "os",
        "pathlib",
        "secrets",
        "select",
        "selectors",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "uvloop",
        "uuid",
    ]
)
# The type of what a core is handed; all else in that module draws from state of its own.
RANDOM_NAMES: Final = frozenset({"Random"})


def sources(*places: str) -> list[Path]:
    found: list[Path] = []
    for place in places:
        path = ROOT / place
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path] * path.exists()
    return [path for path in found if not is_generated(path)]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(source: str) -> list[tuple[int, str, str]]:
    """(line, module, name) of every import that runs, also inside functions; name is "" for `import module`."""
    found: list[tuple[int, str, str]] = []
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(node.lineno, node.module or "", alias.name) for alias in node.names]
        if isinstance(node, ast.If) and is_type_checking(node):
            todo += node.orelse
        else:
            todo += ast.iter_child_nodes(node)
    return sorted(found)


def core_faults(source: str) -> list[str]:
    """What of this source a core must not have: imports of input and output, the module's own random state."""
    faults = [
        f"line {line}: imports {module}"
        for line, module, name in imports(source)
        if module.split(".")[0] in INPUT_AND_OUTPUT or (module == "random" and name not in RANDOM_NAMES | {""})
    ]
    for node in ast.walk(ast.parse(source)):
        is_attribute_of_random = (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random"
        )
        if is_attribute_of_random and isinstance(node, ast.Attribute) and node.attr not in RANDOM_NAMES:
            faults.append(f"line {node.lineno}: random.{node.attr}: take a random.Random instead")
    return faults


@pytest.mark.parametrize(
    ("source", "fault_count"),
    [
        ("import time", 1),
        ("def f() -> None:\n    import asyncio.streams", 1),
        ("from os import path", 1),
        ("from random import choice", 1),
        ("import random\nrandom.random()", 1),
        ("import random\ndef f(r: random.Random) -> float:\n    return r.random()", 0),
        ("from random import Random", 0),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio", 0),
        ("from . import time", 0),
    ],
)
def test_the_import_check_names_each_fault(source: str, fault_count: int) -> None:
    assert len(core_faults(source)) == fault_count


def is_core(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    if SHELL_FOLDERS & set(path.relative_to(ROOT).parts):
        return A_CORE.search(text) is not None
    return NOT_A_CORE.search(text) is None


def test_cores_do_no_input_or_output() -> None:
    faults = [
        f"{path.relative_to(ROOT)} {fault}"
        for path in sources(*CORE_PACKAGES)
        if is_core(path)
        for fault in core_faults(path.read_text())
    ]
    assert faults == [], "move it to a shell, or say in the module: # not a core: why"


def test_modules_that_are_no_cores_have_a_reason() -> None:
    """The line goes when the reason is gone."""
    idle = [
        str(path.relative_to(ROOT))
        for path in sources(*CORE_PACKAGES)
        if NOT_A_CORE.search(path.read_text()) and not core_faults(path.read_text())
    ]
    assert idle == []


def test_compiled_modules_import_compiled_modules() -> None:
    """A class of a module that is not compiled is used through the interpreter: slow on the way of a message."""
    paths = [path for path in sources(*CORE_PACKAGES) if path.name != "__init__.py"]
    modules = {module_name(path, ROOT): path for path in paths}
    graph = module_graph({name: path.read_text() for name, path in modules.items()}, set())
    hot = {name for name, path in modules.items() if COMPILED.search(path.read_text())}
    assert len(hot) > 100
    cold = {name for module in hot for name in graph[module] if name not in hot}
    excused = {name for name in cold if NOT_COMPILED.search(modules[name].read_text())}
    assert cold - excused == set(), "compile it, or say in the module: # not compiled: why"
    said = {name for name, path in modules.items() if NOT_COMPILED.search(path.read_text())}
    assert said == excused, "no compiled module imports these: take the line out"


# The format of the log and the generated code of its service. A Spark worker loads no shell of the broker.
PIPELINE_MAY_IMPORT: Final = (
    "broker.errors",
    "broker.codec",
    "broker.routing",
    "broker.event_log.block",
    "broker.event_log.lineage",
    "broker.api.pb",
    "broker.event_log.pb",
    "broker.event_log.records",
    "broker.event_log.selection",
    "broker.event_log.staged_rows",
    "broker.config.durations",
)


def test_the_pipeline_knows_cores_and_the_wire_of_the_broker() -> None:
    faults = [
        f"{path.relative_to(ROOT)} line {line}: imports {module}"
        for path in sources("pipeline")
        for line, module, name in imports(path.read_text())
        if module.split(".")[0] in ("broker", "federation")
        if not f"{module}.{name}".startswith(PIPELINE_MAY_IMPORT)
    ]
    assert faults == []


# What a user writes and reads: keys, roles, the claim of a token. A link of a tree or of a chain is another thing.
LINKS_ELSEWHERE: Final = ("broker/auth/", "broker/api/docs_page.py", "broker/routing/trie.py", "broker/wrappers.py")
LINK_LINES_MAX: Final = 60


def test_the_broker_does_not_know_links() -> None:
    """What it knows is broker/bridging.py, broker/bridge_end.py and broker/origin.py."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources("broker")
        if not str(path.relative_to(ROOT)).startswith(LINKS_ELSEWHERE)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"(?<!un)(?<!sym)(?<!is_)(?<!os\.)link", line, re.IGNORECASE)
    ]
    assert len(found) <= LINK_LINES_MAX, found
    named = [path.name for path in sources("broker") if re.search("link|job|lend|duplicates|deletions", path.name)]
    assert named == []


def test_modules_have_one_idea() -> None:
    long = {
        name: lines
        for name in tracked_files()
        if name.endswith(".py") and not is_generated(Path(name))
        if (lines := len((ROOT / name).read_text().splitlines())) > LINES_MAX
    }
    assert long == {}, f"more than {LINES_MAX} lines: two ideas in one?"


# Written so that this file does not hold what it looks for.
FOREIGN: Final = re.compile(
    "|".join(
        (
            r"/(?:work|farm|home/\w+|root)/",
            r"/tmp/[a-z]+lab",
            r"\.\./" + "shared",
            "pypi" + r"\.org",
            "python" + "hosted",
            r"registry\.npm" + "js",
            "deb" + r"\.debian\.org",
            "proxy" + r"\.golang",
            r"repo1?\.ma" + "ven",
        )
    )
)


def test_nothing_names_this_machine_or_a_registry() -> None:
    faults = []
    for name in tracked_files():
        data = (ROOT / name).read_bytes()
        if b"\0" in data[:8192]:
            continue
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            if FOREIGN.search(line):
                faults.append(f"{name}:{number}: {line.strip()[:100]}")
    assert faults == []
