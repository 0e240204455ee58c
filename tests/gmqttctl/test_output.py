"""What commands show: names of anybody as text, formats, terminals, pipes and locales."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gmqttctl.output import CELL_CHARACTERS_MAX, FORMATS, Column, Output
from gmqttctl.text import aligned, printable, width
from gmqttctl.traffic_tree import tree_rows

COLUMNS = (Column("name"), Column("state"), Column("count"), Column("more", is_wide=True))

PROGRAM = """
from gmqttctl.cli import escape_what_the_locale_lacks
from gmqttctl.output import Column, Output
escape_what_the_locale_lacks()
items = [{"name": "é\\u202e\\x1b[31m"}]
Output(FORMAT, False, None).show({"items": items}, "items", (Column("name"),), "none")
"""


def shown(output_format: str, items: Sequence[Any], watches: bool = False) -> str:
    import click

    @click.command()
    def command() -> None:
        Output(output_format, watches, None).show({"items": items}, "items", COLUMNS, "nothing")

    return CliRunner().invoke(command, catch_exceptions=False).output


@given(st.text(max_size=40))
def test_any_name_is_one_line_of_printable_text(name: str) -> None:
    """Escape codes, markup, line ends and marks of direction cannot do anything."""
    items = [{"name": name, "state": "x", "count": 3}]
    lines = shown("table", items).splitlines()
    assert len(lines) == 2
    assert lines[1].isprintable()
    assert not any(unicodedata.bidirectional(each) in ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI") for each in lines[1])
    assert len(shown("name", items).splitlines()) == 1
    if not any(0xD800 <= ord(each) < 0xE000 for each in name):
        assert json.loads(shown("json", items))["items"] == items


@pytest.mark.parametrize("output_format", FORMATS)
def test_formats_have_what_they_are_for(output_format: str) -> None:
    items = [{"name": "a", "state": "running", "count": "12", "more": {"x": 1}}, {"name": "b", "count": 7}]
    text = shown(output_format, items)
    if output_format in ("json", "yaml"):
        assert (json.loads(text) if output_format == "json" else yaml.safe_load(text)) == {"items": items}
    elif output_format == "name":
        assert text == "a\nb\n"
    else:
        head, first, second = text.splitlines()
        assert ("more" in head) == (output_format == "wide")
        assert first.split()[:3] == ["a", "running", "12"]
        assert second.split()[:3] == ["b", "-", "7"]
        assert head.index("count") + len("count") == len(second[: second.index("7") + 1])


def test_nothing_is_said_in_words_and_is_an_empty_list_for_programs() -> None:
    assert shown("table", []) == "nothing\n"
    assert json.loads(shown("json", [])) == {"items": []}
    assert shown("name", []) == ""


def test_wide_characters_take_two_places() -> None:
    assert [width(text) for text in ("ab", "日本", "e\u0301")] == [2, 4, 1]
    lines = aligned([["name", "x"], ["日本", "1"], ["abcd", "2"]])
    assert len({width(line) for line in lines[1:]}) == 1


def test_what_is_no_text_of_a_terminal_is_escaped() -> None:
    assert printable("a\x1b[2J\r\n\u202e\u200f\ud800") == r"a\x1b[2J\r\n\u202e\u200f\ud800"


@pytest.mark.parametrize("output_format", ["table", "json"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_locale_that_lacks_a_character(output_format: str, encoding: str) -> None:
    program = f"FORMAT = {output_format!r}\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode("utf-8" if encoding == "ascii" else encoding)  # click takes ASCII for no choice
    if output_format == "json":
        assert json.loads(text)["items"][0]["name"] == "é\u202e\x1b[31m"
    else:
        assert "é" in text
        assert r"\u202e\x1b[31m" in text


def test_a_pipe_that_is_closed_ends_a_command_without_a_traceback() -> None:
    """As of `gmqttctl clients list | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "gmqttctl.cli", "completion", "bash"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_tree_of_traffic_sums_up() -> None:
    topics = [
        {"topic_name": "a/b/1", "messages": "3", "bytes": "30"},
        {"topic_name": "a/c", "messages": "1", "bytes": "5"},
        {"topic_name": "z", "messages": "9", "bytes": "1"},
        {"topic_name": "a/b/2", "messages": "2", "bytes": "2"},
    ]
    rows = [(row["level"], row["name"], row["messages"], row["bytes"], row["topics"]) for row in tree_rows(topics, 2)]
    assert rows == [(0, "z", 9, 1, 1), (0, "a", 6, 37, 3), (1, "b", 5, 32, 2), (1, "c", 1, 5, 1)]
    assert [row["name"] for row in tree_rows(topics, 1)] == ["z", "a"]


def test_colors_are_for_terminals_and_the_word_stays() -> None:
    import click

    output = Output("table", False, None)
    assert click.unstyle(output.painted("failed ")) == "failed "
    assert output.painted("failed ") != "failed "
    assert "\x1b" not in shown("table", [{"name": "a", "state": "failed", "count": 1}])


def test_a_name_of_64_kilobytes_does_not_make_all_rows_long() -> None:
    name = "x" * 65_535
    items = [{"name": name, "state": "y", "count": 1}, {"name": "a", "state": "y", "count": 2}]
    assert max(map(len, shown("table", items).splitlines())) <= CELL_CHARACTERS_MAX + 20
    assert name in shown("wide", items)
    assert shown("name", items).splitlines()[0] == name
