"""`gmqttctl import-rabbitmq` and `import-mosquitto`: files, warnings, and who may read the result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gmqttctl.cli import main

BRIDGE = "connection cloud\naddress h\nremote_username u\nremote_password secret\ntopic a in 2\n"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_a_bridge_is_printed_and_warnings_are_apart(tmp_path: Path) -> None:
    file = tmp_path / "mosquitto.conf"
    file.write_text(BRIDGE)
    result = run("import-mosquitto", file)
    assert result.exit_code == 0
    (parameter,) = json.loads(result.stdout)["parameters"]
    assert parameter["value"] == {"uri": "mqtt://u:secret@h:1883"}
    assert result.stderr.startswith(f"{file}: line 5")
    assert "secret" not in result.stderr


def test_standard_input_is_read_as_a_file() -> None:
    result = CliRunner().invoke(main, ["import-mosquitto", "-"], input=BRIDGE)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["policies"][0]["name"] == "cloud"
    assert result.stderr.startswith("standard input: line 5")
    result = CliRunner().invoke(main, ["import-rabbitmq", "-"], input="[{rabbit, [}].")
    assert result.stderr.startswith("Error: standard input: line 1: ")


def test_an_output_file_is_for_its_owner_only(tmp_path: Path) -> None:
    file, output = tmp_path / "mosquitto.conf", tmp_path / "definitions.json"
    file.write_text(BRIDGE)
    output.write_text("old")
    output.chmod(0o644)
    result = run("import-mosquitto", file, "--output", output)
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1] == f"{output}: 1 upstreams, 0 sets, 1 policies; 1 warnings"
    assert output.stat().st_mode & 0o777 == 0o600
    assert json.loads(output.read_text())["policies"][0]["name"] == "cloud"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"parameters": [{"component": "federation-upstream", "name": "a", "value": {"uri": "amqp://h"}}]}', "a"),
        ('\ufeff{rabbitmq_federation, [{connections, [{"b", [{host, "h"}, {username, "u"}]}]}]}', "b"),
    ],
)
def test_both_kinds_of_files_of_rabbitmq_are_read(tmp_path: Path, text: str, name: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    result = run("import-rabbitmq", file)
    assert [parameter["name"] for parameter in json.loads(result.stdout)["parameters"]] == [name]


def test_apply_to_exchanges_is_silent_about_queues(tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    definition = {"federation-upstream-pattern": "^a"}
    upstream = {"component": "federation-upstream", "name": "a", "value": {"uri": "amqp://h"}}
    policy = {"name": "p", "pattern": r"^a\.", "definition": definition}
    file.write_text(json.dumps({"parameters": [upstream], "policies": [policy]}))
    assert "and not to queues" in run("import-rabbitmq", file).stderr
    result = run("import-rabbitmq", file, "--apply-to", "exchanges")
    assert result.stderr == ""
    assert [policy["pattern"] for policy in json.loads(result.stdout)["policies"]] == ["a/#"]


@pytest.mark.parametrize(
    ("data", "fault"),
    [(b"[{rabbit, [}].", "line 1: } stands where a term is expected"), (b'["\xff"].', "byte 2 is not UTF-8")],
)
def test_a_fault_is_one_line_with_the_file(tmp_path: Path, data: bytes, fault: str) -> None:
    file = tmp_path / "rabbitmq.config"
    file.write_bytes(data)
    result = run("import-rabbitmq", file)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {file}: {fault}")
    assert result.stdout == ""


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mosquitto.conf"
    file.write_text(BRIDGE)
    result = run("import-mosquitto", file, "--output", tmp_path / "absent" / "file")
    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr


def test_words_of_a_file_change_no_terminal() -> None:
    result = CliRunner().invoke(main, ["import-mosquitto", "-"], input=BRIDGE + "odd\x1b[2J 1\n")
    assert result.exit_code == 0
    assert "odd\\x1b[2J" in result.stderr
    assert "\x1b" not in result.stderr
