"""No structure of the product is emptied from its front where that costs what it holds: such a bound is reached at the square.

A list moves all of its entries. A dict walks over the entries that were deleted before: taking the first of n one by one costs
n * n / 2. A deque and an OrderedDict take their first entry at once.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent

ALLOWED: Final = {
    "broker/codec/reader.py: del self._pending[:pos]",  # once a chunk, and a bytearray only notes its new start
    "federation/stream/outbox.py: del self.on_way[:blocks]",  # no more than WINDOW_BLOCKS_MAX entries
    "federation/stream/outbox.py: self.on_way.pop(0)",
}


def is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0 and node.value is not False


def is_first_key(node: ast.expr) -> bool:
    """next(iter(...))"""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "next" or not node.args:
        return False
    inner = node.args[0]
    return isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "iter"


def from_the_front(source: str) -> list[str]:
    """Statements and calls that take from the front, or put there."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    key = target.slice
                    is_head = isinstance(key, ast.Slice) and key.lower is None
                    if is_head or is_zero(key) or is_first_key(key):
                        found.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            first = node.args[0]
            if (node.func.attr in ("pop", "insert") and is_zero(first)) or (
                node.func.attr == "pop" and is_first_key(first)
            ):
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("del a.b[next(iter(a.b))]", 1),
        ("a.pop(next(iter(a)), None)", 1),
        ("a.pop(0)", 1),
        ("a.insert(0, b)", 1),
        ("del a[:n]", 1),
        ("del a[0]", 1),
        ("a.popitem(last=False)", 0),
        ("a.popleft()", 0),
        ("del a[n:]", 0),
        ("a.pop()", 0),
        ("b = next(iter(a))", 0),
    ],
)
def test_the_check_names_each_fault(source: str, count: int) -> None:
    assert len(from_the_front(source)) == count


def test_nothing_is_emptied_from_its_front() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {statement}"
        for package in ("broker", "federation", "pipeline")
        for path in sorted((ROOT / package).rglob("*.py"))
        for statement in from_the_front(path.read_text())
    }
    assert found - ALLOWED == set(), "quadratic: use a deque or an OrderedDict, or name the bound in ALLOWED"
    assert ALLOWED - found == set(), "allowed, but not there any more"
