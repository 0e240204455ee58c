"""Each command line of gmqttctl and gmqttd in the documentation is one that the commands take."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Final

import click
import pytest

from broker.server.cli import main as gmqttd
from documented_lines import lines_of
from gmqttctl.cli import main as gmqttctl
from repository import ROOT

PROGRAMS: Final = {"gmqttd": gmqttd, "gmqttctl": gmqttctl}
# cli.md is made from the examples of the commands, which test_cli.py tries.
PAGES: Final = sorted({ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")} - {ROOT / "docs/cli.md"})


def refusal(line: str) -> str:
    """Why the command does not take its words, "" when it does."""
    program, *words = shlex.split(line)
    command: click.Command = PROGRAMS[program]
    context = click.Context(command, info_name=program)
    try:
        while isinstance(command, click.Group):
            command.parse_args(context, words)
            words = [*context._protected_args, *context.args]
            if not words:
                return ""
            name, inner, words = command.resolve_command(context, words)
            assert inner is not None
            command, context = inner, click.Context(inner, context, name)
        with context:
            command.parse_args(context, list(words))
    except click.exceptions.Exit:
        return ""
    except click.ClickException as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize("page", [pytest.param(path, id=path.name) for path in PAGES])
def test_the_commands_of_a_page_are_taken(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Files need not be there.
    monkeypatch.setattr(click.File, "convert", lambda *_: io.BytesIO())
    monkeypatch.setattr(click.Path, "convert", lambda _, value, *__: value)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "gmqtt.yml").touch()
    refused = {line: text for line in lines_of(page.read_text(encoding="utf-8")) if (text := refusal(line))}
    assert refused == {}


def test_what_stands_behind_a_command_is_none_of_its_words() -> None:
    text = (
        "    gmqttctl log describe      each log\n    $ gmqttd keygen > k\n    gmqttctl upstreams set north - < n.json   # x\n"
        "    gmqttctl definitions from-rabbitmq d.json | gmqttctl definitions import -\n"
        "    gmqttctl replay \\\n        --from 1\n"
        "       A=1 B= .venv/bin/gmqttd keygen   # or: gmqttctl x | gmqttctl y\n"
        "    kubectl exec pod -- gmqttctl status\n    nohup gmqttd start -c $1.yml >>$1.log 2>&1 &\n"
        '    echo "[\\"$(gmqttd keygen)\\"]" > k\n    key=$(gmqttd keygen)\n'
        "Text gmqttctl x\n    node1  gmqttd 0.1.0\n   gmqttctl x\n"
    )
    assert list(lines_of(text)) == [
        "gmqttctl log describe",
        "gmqttd keygen",
        "gmqttctl upstreams set north -",
        "gmqttctl definitions from-rabbitmq d.json",
        "gmqttctl definitions import -",
        "gmqttctl replay",
        "gmqttd keygen",
        "gmqttctl status",
        "gmqttd start -c $1.yml",
        "gmqttd keygen",
        "gmqttd keygen",
    ]


@pytest.mark.parametrize("line", ["gmqttctl bogus", "gmqttd start --bogus", "gmqttctl drain --rate many"])
def test_what_no_command_takes_is_refused(line: str) -> None:
    assert refusal(line)
