"""The command gmqttctl: where its commands come from, what is imported for them, what all of them have."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gmqttctl.cli import Commands, installed, lists, main
from gmqttctl.command import Command
from gmqttctl.errors import EXIT_FAILED, EXIT_NO_ANSWER

# The modules of all commands lack a package.
MISSING = """
from gmqttctl import cli
from gmqttctl.cli import main
def lacks(name):
    raise ModuleNotFoundError("No module named 'missing_package'", name="missing_package")
cli.importlib.import_module = lacks
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment or None,
    )


def test_the_help_names_the_commands_of_all_packages_and_imports_none() -> None:
    done = run(
        "import sys\n"
        "from gmqttctl.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'grpc', 'pyspark', 'google', 'aiohttp', 'rich', 'yaml'}))"
    )
    *lines, imported = done.stdout.splitlines()
    named = {line.split()[0] for line in lines if line.startswith("  ")}
    assert {"links", "clients", "log", "pipeline", "policies"} <= named
    assert "set_parameter" not in named
    assert imported == "[]"


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """(words, command) of all that do something."""
    group = Commands()
    todo = [(name, group.get_command(click.Context(group), name)) for name in installed()]
    while todo:
        words, command = todo.pop()
        assert command is not None, words
        if isinstance(command, click.Group):
            todo += [(f"{words} {name}", inner) for name, inner in command.commands.items()]
        else:
            yield words, command


def parsed(words: list[str]) -> str:
    """The words of the command that a command line is for. Raises click.ClickException where it does not take the rest."""
    context = click.Context(main, info_name="gmqttctl")
    command: click.Command = main
    named = []
    while isinstance(command, click.Group):
        if command is not main:
            command.parse_args(context, words)
            words = [*context._protected_args, *context.args]
        name, inner, words = command.resolve_command(context, words)
        assert inner is not None
        assert name is not None
        named.append(name)
        command, context = inner, click.Context(inner, context, name)
    with context:  # closes the files that options name
        command.parse_args(context, list(words))
    return " ".join(named)


@pytest.mark.parametrize(("words", "command"), [pytest.param(*each, id=each[0]) for each in all_commands()])
def test_each_command_has_a_sentence_and_examples_that_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, command: click.Command
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "message.bin").touch()  # files that options name are opened
    assert command.help
    assert command.help.rstrip().endswith(".")
    assert isinstance(command, Command), f"{words} is not a command with an example"
    lines = [line.strip() for line in command.example.splitlines()]
    assert lines
    for line in lines:
        own = [part for part in line.removeprefix('eval "$(').split(" && ") if part.startswith("gmqttctl ")]
        assert len(own) == 1, line
        line_words = shlex.split(re.split(r" [<|] |\)", own[0])[0], comments=True)[1:]
        assert parsed(line_words) == words
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{words} {parameter.opts[0]} has no help"
    shown = CliRunner().invoke(main, [*words.split(), "--help"]).output
    assert lines[0] in shown


def test_aliases_lead_to_commands() -> None:
    known = {words for words, _ in all_commands()} | set(installed())
    for each in lists():
        for name, words in each.aliases.items():
            assert name not in known
            assert words.removesuffix(" --yes") in known


@pytest.mark.parametrize(("command", "hint"), [("log", True), ("list_clients", False)])
def test_the_extra_is_named_by_the_commands_of_pipelines_only(command: str, hint: bool) -> None:
    done = run(f"{MISSING}main(['{command}', '--help'])")
    assert done.returncode == 1
    assert ("gmqttd[pipeline]" in done.stderr) == hint
    assert "missing_package" in done.stderr


def test_a_stale_installation_is_named() -> None:
    done = run("from gmqttctl import cli\ncli.entry_points = lambda group: ()\ncli.main(['log'])")
    assert done.returncode == 1
    assert "gmqttctl.commands" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_for_each_shell(shell: str) -> None:
    shown = CliRunner().invoke(main, ["completion", shell]).output
    assert "_GMQTTCTL_COMPLETE" in shown
    done = CliRunner().invoke(
        main,
        prog_name="gmqttctl",
        env={
            "_GMQTTCTL_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": "gmqttctl clients k",
            "COMP_CWORD": "2" if shell != "fish" else "k",
        },
    )
    assert "kick" in done.output


@pytest.mark.parametrize(
    "arguments",
    [("clients", "kick", "c"), ("clients", "release", "c"), ("drain",), ("drain", "n1"), ("keys", "remove", "-")],
)
def test_what_is_destructive_asks_and_needs_a_terminal(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*arguments, "--server", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert "--yes" in result.output
    result = CliRunner().invoke(main, [*arguments, "--yes", "--server", "127.0.0.1:1"])
    assert result.exit_code in (EXIT_NO_ANSWER, EXIT_FAILED)
    assert "127.0.0.1:1" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain", "a\udcff"], "topic_name"),  # an argument that is not UTF-8
        (["clients", "lst"], "Did you mean"),
        (["-o", "json", "status"], "come behind it"),
        (["status", "-o", "xml"], "'table', 'wide', 'json', 'yaml', 'name'"),
        (["topics", "--seconds", "11"], "1<=x<=10"),
        (["upgrade", "--yes"], "--restart"),
        (["nothing"], "No such command"),
        (["statsu"], "'status'"),
        (["client"], "'clients'"),
        (["status", "--server", "http://127.0.0.1:8083"], "HOST:PORT"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, words in result.output) == (2, True), result.output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_output_that_finds_no_space_is_one_line() -> None:
    command = [sys.executable, "-m", "gmqttctl.cli", "completion", "bash"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (EXIT_FAILED, 1), done.stderr
    assert "output: No space left" in done.stderr


def test_a_time_that_is_none_is_a_wrong_command_line() -> None:
    result = CliRunner().invoke(main, ["tokens", "create", "--role", "read", "--expires", "nonsense"])
    assert result.exit_code == 2
    assert "nonsense" in result.output
    assert "--expires" in result.output
