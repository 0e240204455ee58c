"""One direction for imports: no module imports itself, by whatever way round.

All imports count: those of types only (TYPE_CHECKING) and those inside functions too. Between packages texts that name a
module count as well: it is imported later.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from module_graph import circles, imported_names, module_graph, module_name, packages_of
from repository import ROOT

PACKAGES: Final = ("broker", "federation", "gmqttctl", "pipeline", "bench")

# Circles that stay, each with its reason: all its modules are one package that is one idea, or a figure of the bench says
# what it costs to break the circle.
EXCEPTIONS: Final[dict[frozenset[str], str]] = {}


@cache
def product_circles() -> list[frozenset[str]]:
    paths = {module_name(path, ROOT): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}
    assert {"broker.broker", "federation.node", "bench.rows"} <= set(paths)
    sources = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    return circles(module_graph(sources, packages_of(paths)))


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


# What each package of the wheel may know.
KNOWN_PACKAGES: Final = {
    "broker": set(),
    "gmqttctl": {"broker"},
    "federation": {"broker", "gmqttctl"},
    "pipeline": {"broker", "gmqttctl"},
}
MODULE_TEXT: Final = re.compile(r"(\w+(?:\.\w+)+)(?::\w+)?")


def texts_of_modules(source: str, modules: set[str]) -> list[str]:
    """The modules that texts name, alone or as `module:name`."""
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    found = [MODULE_TEXT.fullmatch(text) for text in texts if isinstance(text, str)]
    return [match[1] for match in found if match is not None and match[1] in modules]


def test_a_text_that_names_a_module_is_seen() -> None:
    source = 'X = {"log": ("p.a:log", "Look at p.b"), "p.b": 1}\nimport_module("p.c")'
    assert sorted(texts_of_modules(source, {"p.a", "p.b"})) == ["p.a", "p.b"]


@cache
def known_modules() -> dict[str, set[str]]:
    """Module of the wheel -> modules that it imports or names in a text."""
    paths = {module_name(path, ROOT): path for package in KNOWN_PACKAGES for path in (ROOT / package).rglob("*.py")}
    sources = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    graph = module_graph(sources, packages_of(paths))
    return {name: graph[name] | set(texts_of_modules(source, set(sources))) for name, source in sources.items()}


def test_packages_know_those_below_them() -> None:
    faults = []
    for name, known in known_modules().items():
        package = name.split(".")[0]
        others = {other.split(".")[0] for other in known}
        faults += [f"{name}: {other}" for other in others - {package} - KNOWN_PACKAGES[package]]
    assert faults == []


def test_definitions_do_not_know_the_links_that_are_made_of_them() -> None:
    faults = [
        f"{name}: {other}"
        for name, known in known_modules().items()
        for other in known
        if name.startswith("federation.definitions.") and other.startswith("federation.links")
    ]
    assert faults == []


def test_the_source_needs_no_package_that_the_extras_do_not_have() -> None:
    """The Pythons of a Spark cluster have those of `pipeline-workers` alone, beside Spark."""
    reached: set[str] = set()
    todo = ["pipeline.source"]
    while todo:
        if (name := todo.pop()) not in reached:
            reached.add(name)
            todo += known_modules()[name]
    imported: set[str] = set()
    for name in reached:
        place = ROOT / name.replace(".", "/")
        path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        imported |= {full.split(".")[0] for full in imported_names(path.read_text(encoding="utf-8"), name)}
    imported -= sys.stdlib_module_names | KNOWN_PACKAGES.keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [project["optional-dependencies"][name] for name in ("pipeline-workers", "pipeline", "tables", "java")]
    needed = {canonicalize_name(Requirement(text).name) for extra in extras for text in extra}
    assert {"pyspark", "grpc", "librt"} <= imported
    names = packages_distributions()
    assert [
        name for name in imported if not needed & {canonicalize_name(each) for each in names.get(name, [name])}
    ] == []


def test_entry_points_name_modules() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"scripts": project["scripts"], **project["entry-points"]}
    for places in groups.values():
        for place in places.values():
            module, name = place.split(":")
            assert hasattr(importlib.import_module(module), name), place
    assert set(project["entry-points"]["gmqttctl.commands"]) <= set(KNOWN_PACKAGES)
    for package, place in project["entry-points"]["gmqttctl.commands"].items():
        assert place.split(".")[0] == package
