"""Texts that are no YAML: each gets its line, its column, and a sentence without words of the parser."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from broker.config.yaml_faults import OTHERWISE, yaml_fault

PARSER_WORDS = re.compile(r"token|scalar|flow|block|stream|node|while (scanning|parsing)|<\w+|expected")


def fault(text: str) -> tuple[int, str] | None:
    try:
        yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        return yaml_fault(error)
    return None


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ("log:\n\tlevel: info\n", 2, 1, "tab"),
        ("a: @x\n", 1, 4, '"@..."'),
        ("a: *nobody\n", 1, 4, '"&nobody"'),
        ("a: & x\n", 1, 5, '"&"'),
        ("a: &x 1\nb: &x 2\n", 2, 4, '"&x"'),
        ("a: !foo!bar x\n", 1, 4, '"!"'),
        ("%a: b\n", 1, 3, '"%"'),
        ("a: |x\n b\n", 1, 5, "next line"),
        ('a: "\\q"\n', 1, 6, '"\\q"'),
        ('a: "\\xzz"\n', 1, 7, "digits"),
        ('a: "b\n', 2, 1, "not closed"),
        ('a: "b" c\n', 1, 8, "quotes"),
        ("mqtt\nlog: 1\n", 2, 4, "colon"),
        ("a: b: c\n", 1, 5, "quotes"),
        ("a: 1\n  b: 2\n", 2, 4, "indent"),
        ("a: - b\n", 1, 4, '"-"'),
        ("a: [1, 2\nb: 3\n", 2, 2, 'nor "]"'),
        ("a: {b: 1\nc: 2\n", 2, 2, 'nor "}"'),
        ("- a\nb: 1\n", 2, 1, "list of line 1"),
        ("a:\n  b: 1\n c: 2\n", 3, 2, "indented"),
        ("a: [,]\n", 1, 5, "missing"),
        ("a: 1\n---\nb: 1\n", 2, 1, "second document"),
    ],
)
def test_a_fault_names_line_column_and_remedy(text: str, line: int, column: int, part: str) -> None:
    found = fault(text)
    assert found is not None
    assert found[0] == line
    assert found[1].startswith(f"this is not YAML: column {column}: ")
    assert part in found[1]


@given(st.text(alphabet="ab:-[]{}\"'\\,&*!|>%@`#?\t\n ", max_size=30))
def test_no_words_of_the_parser_reach_the_operator(text: str) -> None:
    found = fault(text)
    if found is not None:
        line, sentence = found
        assert 1 <= line <= text.count("\n") + 1
        assert not PARSER_WORDS.search(sentence), sentence
        assert OTHERWISE not in sentence, "a fault without a sentence of its own"
