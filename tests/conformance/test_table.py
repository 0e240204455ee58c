"""The tables of this folder are whole: each statement of MQTT 3.1.1 and 5.0 has its row, in order, and each test exists.

statements.json has the numbers of the statements in each section: the first and the last one. A row names the tests that show
its statement, or says why there is none.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
TESTS: Final = HERE.parent
STATEMENTS: Final[dict[str, dict[str, list[int]]]] = json.loads((HERE / "statements.json").read_text())
ROW: Final = re.compile(r"\| MQTT-(\S+) \| (.+?) \| (.+?) \|")
NO_TEST: Final = "no test: "
# Why there is no test, with the number of such rows. A number that rises is a statement that lost its test.
REASONS: Final = {
    "3.1.1": {
        "a statement about clients": 6,
        "nodes reach each other by their own streams, not as MQTT clients": 1,
    },
    "5.0": {
        "a statement about clients": 8,
    },
}


def rows(version: str) -> list[tuple[str, str, str]]:
    """(statement, summary, proof) of each row."""
    text = (HERE / f"mqtt-{version}.md").read_text(encoding="utf-8")
    return [found for line in text.splitlines() if line.startswith("| MQTT-") for found in ROW.findall(line)]


def statements(version: str) -> Iterator[str]:
    for section, (first, last) in STATEMENTS[version].items():
        for number in range(first, last + 1):
            yield f"{section}-{number}"


def proofs(version: str) -> Iterator[tuple[str, str, str]]:
    """(statement, file, test)."""
    for statement, _, proof in rows(version):
        if not proof.startswith(NO_TEST):
            for item in proof.split("<br>"):
                file, _, test = item.partition("::")
                yield statement, file, test


def names_in(file: str) -> set[str]:
    path = TESTS / file
    if not path.is_file():
        return set()
    return {
        node.name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("version", STATEMENTS)
def test_each_statement_has_its_row(version: str) -> None:
    assert [statement for statement, _, _ in rows(version)] == list(statements(version))


@pytest.mark.parametrize(("version", "count"), [("3.1.1", 141), ("5.0", 251)])
def test_the_number_of_statements(version: str, count: int) -> None:
    """As many as the specifications number, those for clients included."""
    assert len(list(statements(version))) == count


@pytest.mark.parametrize("version", STATEMENTS)
def test_each_proof_is_a_test(version: str) -> None:
    known = {file: names_in(file) for file in {file for _, file, _ in proofs(version)}}
    assert [(statement, file, test) for statement, file, test in proofs(version) if test not in known[file]] == []


@pytest.mark.parametrize("version", STATEMENTS)
def test_statements_without_a_test_have_a_known_reason(version: str) -> None:
    found: dict[str, int] = {}
    for _, _, proof in rows(version):
        if proof.startswith(NO_TEST):
            reason = proof.removeprefix(NO_TEST)
            found[reason] = found.get(reason, 0) + 1
    assert found == REASONS[version]


@pytest.mark.parametrize("version", STATEMENTS)
def test_a_server_is_excused_from_no_statement_as_a_client(version: str) -> None:
    """The summary of such a statement begins with its subject."""
    for statement, summary, proof in rows(version):
        if proof == f"{NO_TEST}a statement about clients":
            assert summary.startswith("client: "), statement
