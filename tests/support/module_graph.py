"""Modules and what they import, wherever in the source and for whatever the import is."""

from __future__ import annotations

import ast
from pathlib import Path

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


def packages_of(modules: dict[str, Path]) -> set[str]:
    """The modules that are an __init__."""
    return {name for name, path in modules.items() if path.name == "__init__.py"}
