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
        ("log:\n\tlevel: info\n", 2, 1, "a tab stands where YAML takes only spaces; indent with spaces"),
        ("a: @x\n", 1, 4, 'a value cannot begin with @; put it in quotes, as "@..."'),
        ("a: *nobody\n", 1, 4, 'nothing in the file has the anchor "&nobody"'),
        ("a: & x\n", 1, 5, 'a value that begins with "*" or "&" belongs in quotes'),
        ("a: &x 1\nb: &x 2\n", 2, 4, 'the anchor "&x" is there twice'),
        ("a: !foo!bar x\n", 1, 4, 'a value that begins with "!" belongs in quotes'),
        ("%a: b\n", 1, 3, 'a line cannot begin with "%"'),
        ("a: |x\n b\n", 1, 5, 'after "|" or ">" the text begins in the next line'),
        ('a: "\\q"\n', 1, 6, '"\\q" means nothing in double quotes'),
        ('a: "\\xzz"\n', 1, 7, "is not followed by its digits"),
        ('a: "b\n', 2, 1, "the quote that begins in line 1 is not closed"),
        ('a: "b" c\n', 1, 8, "text follows a value in quotes"),
        ("mqtt\nlog: 1\n", 2, 4, "end the line before with a colon if it is a key"),
        ("a: b: c\n", 1, 5, 'put a value that has ": " in it in quotes'),
        ("a: 1\n  b: 2\n", 2, 4, "indent the line as the other keys of its section"),
        ("a: - b\n", 1, 4, 'a "-" stands where no list can begin; each item of a list stands in a line of its own'),
        ("a: [1, 2\nb: 3\n", 2, 2, 'the list that begins with "[" in line 1 goes on with neither "," nor "]"'),
        ("a: {b: 1\nc: 2\n", 2, 2, 'the mapping that begins with "{" in line 1 goes on with neither "," nor "}"'),
        ("- a\nb: 1\n", 2, 1, "the line does not go on with the list of line 1"),
        ("a:\n  b: 1\n c: 2\n", 3, 2, "not indented as the keys that begin in line 1"),
        ("a: [,]\n", 1, 5, "a value is missing here"),
        ("a: 1\n---\nb: 1\n", 2, 1, "a second document begins here"),
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
