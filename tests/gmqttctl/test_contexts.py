"""Contexts: which servers and which token a command uses."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gmqttctl.cli import main
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import EXIT_FAILED, EXIT_USAGE


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("SERVERS", "TOKEN", "CONTEXT", "OUTPUT"):
        monkeypatch.delenv(f"GMQTTCTL_{name}", raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def chosen(*arguments: str, **environment: str) -> dict[str, str]:
    """The connection that a command gets."""
    import click

    found: dict[str, str] = {}

    @click.command()
    @connection_options
    def command(connection: dict[str, str]) -> None:
        found.update(connection)

    result = CliRunner().invoke(command, arguments, env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found


@pytest.fixture
def two(tmp_path: Path) -> None:
    """prod, which is the current one, and test."""
    (tmp_path / "token").write_text("secret\nanother line\n")
    result = run("context", "add", "prod", "--server", "p1:1,p2:1", "--token-file", str(tmp_path / "token"), "--tls")
    assert (result.exit_code, "prod is the current one" in result.output) == (0, True), result.output
    assert run("context", "add", "test", "--server", "t:1").exit_code == 0


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ((), {}, {"servers": "p1:1,p2:1", "token": "secret", "tls": "true"}),
        (("--context", "test"), {}, {"servers": "t:1"}),
        ((), {"GMQTTCTL_CONTEXT": "test"}, {"servers": "t:1"}),
        (("--context", "prod", "--server", "p2:1"), {}, {"servers": "p2:1", "token": "secret", "tls": "true"}),
        (("--token", "other"), {}, {"servers": "p1:1,p2:1", "token": "other", "tls": "true"}),
        (("--server", "x:1"), {}, {"servers": "x:1"}),  # the token is not for them
        ((), {"GMQTTCTL_SERVERS": "x:1"}, {"servers": "x:1"}),
        # a cluster that the command line names does not mix with one of the environment
        (("--context", "test"), {"GMQTTCTL_SERVERS": "x:1", "GMQTTCTL_TOKEN": "other"}, {"servers": "t:1"}),
        (
            ("--context", "prod"),
            {"GMQTTCTL_TOKEN": "other"},
            {"servers": "p1:1,p2:1", "token": "secret", "tls": "true"},
        ),
        (("--context", "test"), {"GMQTTCTL_CONTEXT": "prod"}, {"servers": "t:1"}),
        (("--context", "test", "--token", "t"), {"GMQTTCTL_SERVERS": "x:1"}, {"servers": "t:1", "token": "t"}),
        (("--server", "x:1"), {"GMQTTCTL_CONTEXT": "prod"}, {"servers": "x:1"}),
        (("--server", "x:1"), {"GMQTTCTL_TOKEN": "other"}, {"servers": "x:1", "token": "other"}),
        (
            (),
            {"GMQTTCTL_CONTEXT": "prod", "GMQTTCTL_SERVERS": "p2:1", "GMQTTCTL_TOKEN": "other"},
            {"servers": "p2:1", "token": "other", "tls": "true"},
        ),
    ],
)
def test_what_is_given_goes_before_the_context(
    arguments: tuple[str, ...], environment: dict[str, str], expected: dict[str, str]
) -> None:
    assert chosen(*arguments, **environment) == expected


def test_without_a_context_the_node_of_this_machine_is_asked() -> None:
    assert chosen() == {"servers": "127.0.0.1:8084"}


@pytest.mark.usefixtures("two")
def test_contexts_are_listed_used_and_deleted(tmp_path: Path) -> None:
    lines = run("context").output.splitlines()
    assert [line.split()[:2] for line in lines] == [["name", "current"], ["prod", "*"], ["test", "-"]]
    assert run("context", "use", "test").exit_code == 0
    assert chosen() == {"servers": "t:1"}
    assert run("context", "delete", "test").exit_code == 0
    assert chosen() == {"servers": "127.0.0.1:8084"}
    assert run("context", "-o", "name").output == "prod\n"
    folder = tmp_path / "gmqttctl"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "secret" not in (folder / "contexts.yml").read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("context", "use", "absent"), EXIT_FAILED, ('"absent"', "context add")),
        (("context", "add", "x", "--server", "nowhere"), EXIT_USAGE, ("--server", '"nowhere"', "HOST:PORT")),
        (("context", "add", "x", "--server", "a:1", "--tls-ca-file", "f"), EXIT_USAGE, ("--tls-ca-file", "tls")),
        (("clients", "--token-file", "/absent"), EXIT_USAGE, ("--token-file", "/absent")),
        (("clients", "--context", "absent"), EXIT_FAILED, ('"absent"', "context add")),
    ],
)
def test_faults_name_what_is_wrong(arguments: tuple[str, ...], status: int, words: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == status, result.output
    assert all(word in result.output for word in words), result.output


@pytest.mark.parametrize("text", ["a: [", "- 1\n", "contexts: {a: {server: x}}\n", "contexts: 3\n", "\x00"])
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gmqttctl" / "contexts.yml"
    file.parent.mkdir()
    file.write_text(text)
    result = run("context", "list")
    assert result.exit_code == EXIT_FAILED, result.output
    assert str(file) in result.output
