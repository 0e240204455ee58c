"""One direction for imports: no module imports itself, by whatever way round.

All imports count: those of types only (TYPE_CHECKING) and those inside functions too.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from repository import ROOT

PACKAGES: Final = ("broker", "federation", "pipeline", "bench")

# Circles that stay, each with its reason: all its modules are one package that is one idea, or a figure of the bench says
# what it costs to break the circle.
EXCEPTIONS: Final[dict[frozenset[str], str]] = {}

Graph = dict[str, set[str]]


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(source: str, package: str) -> list[str]:
    """Full names that a module of `package` imports, wherever in the source the import is."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [f"{module}.{alias.name}" for alias in node.names]
    return found


def module_graph(sources: dict[str, str], packages: set[str]) -> Graph:
    """Module -> modules that it imports. `packages`: those of `sources` that are an __init__."""
    graph: Graph = {}
    for name, source in sources.items():
        graph[name] = set()
        package = name if name in packages else name.rpartition(".")[0]
        for imported in imported_names(source, package):
            module = imported
            while module and module not in sources:  # a name inside of a module
                module = module.rpartition(".")[0]
            if module and module != name:
                graph[name].add(module)
    return graph


def circles(graph: Graph) -> list[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(frozenset(stack[at:]))
            del stack[at:]

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return found


def product_circles() -> list[frozenset[str]]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    sources = {module_name(path, ROOT): path.read_text(encoding="utf-8") for path in paths}
    assert {"broker.broker", "federation.node", "bench.rows"} <= set(sources)
    packages = {module_name(path, ROOT) for path in paths if path.name == "__init__.py"}
    return circles(module_graph(sources, packages))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("import p.b", "import p.a"),
        ("from p import b", "from p.a import name"),
        ("from p.b import name", "def f():\n    from p.a import name"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import name", "import p.a"),
        ("from . import b", "from .a import name"),
        ("from p.b import name", "from p.c import name"),
    ],
)
def test_the_check_sees_a_circle(a: str, b: str) -> None:
    sources = {"p": "", "p.a": a, "p.b": b, "p.c": "from p.a import name"}
    (circle,) = circles(module_graph(sources, {"p"}))
    assert {"p.a", "p.b"} <= circle <= {"p.a", "p.b", "p.c"}


def test_the_check_sees_none_where_none_is() -> None:
    sources = {"p": "", "p.a": "from p import b\nfrom p.c import x", "p.b": "import p.c\nimport os", "p.c": "import re"}
    assert circles(module_graph(sources, {"p"})) == []


def test_imports_have_one_direction() -> None:
    new = [sorted(circle) for circle in product_circles() if circle not in EXCEPTIONS]
    assert new == [], "circles of modules: move what both need to a module that both may import"


def test_exceptions_exist_and_have_a_reason() -> None:
    present = product_circles()
    for entry in EXCEPTIONS:
        assert entry in present, f"this circle is gone; take its entry out: {sorted(entry)}"
    assert all(len(reason) > 20 for reason in EXCEPTIONS.values())
