"""Words: docstrings are there and their first paragraph is a sentence, unless it is a list of fields; names of tests state
something about a subject."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from repository import ROOT, is_generated, tracked_files

ENDS: Final = (".", ":", "?", "!", ")", "`", '"')
# A name of a test begins with its subject, not with a condition or a word that stands for the subject.
NO_SUBJECT: Final = re.compile(
    r"test_(after|and|as|before|but|how|if|it|none|of|one_that|past|so|that|there|they|those|when|where|which|while|why"
    r"|with|without)_"
)
RIDDLES: Final = re.compile(r"_(nobody|what|whatever|who|whoever|whom)(_|$)")


def docstring_faults(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    if tree.body and ast.get_docstring(tree) is None:
        yield "no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            paragraph = (ast.get_docstring(node) or ".").split("\n\n")[0]
            if "  " not in paragraph and not paragraph.endswith(ENDS):
                yield f"line {getattr(node, 'lineno', 1)}: a docstring ends with {paragraph[-40:]!r}"


def names_of_tests(source: str) -> list[str]:
    return re.findall(r"^(?:async )?def (test_\w+)", source, re.MULTILINE)


def is_riddle(name: str) -> bool:
    return NO_SUBJECT.match(name) is not None or RIDDLES.search(name) is not None


@pytest.mark.parametrize(
    ("source", "count"),
    [("", 0), ("x = 1", 1), ('"""Text."""', 0), ('"""Text"""', 1), ('"""A."""\nclass B:\n    """b   a field"""', 0)],
)
def test_docstring_faults_are_counted(source: str, count: int) -> None:
    assert len(list(docstring_faults(source))) == count


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_a_printed_size_is_read_as_the_same_one", False),
        ("test_what_is_printed_is_read", True),
        ("test_a_client_that_waits_holds_nobody", True),
        ("test_the_table_has_whole_rows", False),
        ("test_itself", False),
        ("test_while_receivers_are_full_the_client_waits", True),
    ],
)
def test_riddles_are_found(name: str, expected: bool) -> None:
    assert is_riddle(name) is expected


def test_docstrings() -> None:
    names = [name for name in tracked_files() if name.endswith(".py") and not is_generated(Path(name))]
    found = [f"{name}: {fault}" for name in names for fault in docstring_faults((ROOT / name).read_text())]
    assert not found, "\n".join(found)


def test_names_of_tests_state_something_about_a_subject() -> None:
    files = [name for name in tracked_files() if name.startswith("tests/") and name.endswith(".py")]
    found = [
        f"{file}: {name}" for file in files for name in names_of_tests((ROOT / file).read_text()) if is_riddle(name)
    ]
    assert not found, "\n".join(found)
