"""Docstrings: every module has one, and its first paragraph is a sentence, unless it is a list of fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from repository import ROOT, is_generated, tracked_files

ENDS: Final = (".", ":", "?", "!", ")", "`", '"')


def faults(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    if tree.body and ast.get_docstring(tree) is None:
        yield "no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            paragraph = (ast.get_docstring(node) or ".").split("\n\n")[0]
            if "  " not in paragraph and not paragraph.endswith(ENDS):
                yield f"line {getattr(node, 'lineno', 1)}: a docstring ends with {paragraph[-40:]!r}"


@pytest.mark.parametrize(
    ("source", "count"),
    [("", 0), ("x = 1", 1), ('"""Text."""', 0), ('"""Text"""', 1), ('"""A."""\nclass B:\n    """b   a field"""', 0)],
)
def test_the_check_sees_what_it_must(source: str, count: int) -> None:
    assert len(list(faults(source))) == count


def test_docstrings() -> None:
    names = [name for name in tracked_files() if name.endswith(".py") and not is_generated(Path(name))]
    assert [f"{name}: {fault}" for name in names for fault in faults((ROOT / name).read_text())] == []
