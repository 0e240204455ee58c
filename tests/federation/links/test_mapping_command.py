"""`gmqttctl mapping preview`."""

import json

from click.testing import CliRunner

from gmqttctl.cli import main


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["mapping", "preview", *arguments])
    return result.exit_code, result.output


def test_a_preview_shows_topics_both_ways_and_filters() -> None:
    status, output = run(
        "a/+/b/# -> x/{1}/{#}", "--topic", "a/1/b/c", "--topic", "other", "--local-topic", "x/2", "--filter", "#"
    )
    assert status == 0
    assert [line.split() for line in output.splitlines()] == [
        ["upstream", "local"],
        ["rule", "a/+/b/#", "x/+/#"],
        ["topic", "a/1/b/c", "x/1/c"],
        ["topic", "other", "-"],
        ["topic", "a/2/b", "x/2"],
        ["filter", "a/+/b/#", "#"],
    ]


def test_a_preview_as_json() -> None:
    status, output = run("a/# -> x/{#}", "--filter", "y/#", "--json")
    assert status == 0
    assert json.loads(output) == [
        {"kind": "rule", "upstream": "a/#", "local": "x/#"},
        {"kind": "filter", "upstream": "-", "local": "y/#"},
    ]


def test_a_fault_is_one_line() -> None:
    assert run("a/+ -> x") == (
        1,
        'Error: mapping "a/+ -> x": two topics would become one: {1} is missing in x, for the + in it\n',
    )
    assert run("a -> x", "--topic", "a/#") == (1, "Error: topic name 'a/#' has a wildcard [MQTT-3.3.2-2]\n")
