"""The file of tokens, and the command that writes it."""

from __future__ import annotations

import os
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from broker.api.tokens import Role, Token, hash_token, read_tokens, write_tokens
from broker.config.yaml_entries import EntriesFault
from broker.server.cli import main

HASH = hash_token("t")


def test_tokens_that_are_written_are_read_again() -> None:
    end = datetime(2027, 1, 31, 12, 30, 5, tzinfo=UTC)
    tokens = [
        Token("a", Role.READ, "2026-11-22", hash_token("1")),
        Token("b.c_d@e-1", Role.ADMIN, "", hash_token("2"), end),
    ]
    assert list(read_tokens(write_tokens(tokens)).values()) == tokens
    assert read_tokens(write_tokens([])) == {}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"tokens", "line 1: this is not a list of tokens"),
        (b"- secret", "line 1: this is not an entry of one token"),
        (f"- {{role: read, hash: '{HASH}'}}".encode(), "line 1: the name"),
        (f"- {{name: 'a b', role: read, hash: '{HASH}'}}".encode(), "line 1: the name"),
        (f"- {{name: a, role: root, hash: '{HASH}'}}".encode(), "line 1: the role is not one of read, write, admin"),
        (f"- {{name: a, hash: '{HASH}'}}".encode(), "the role is not one of"),
        (b"- {name: a, role: read, hash: secret}", "line 1: the hash"),
        (b"- {name: a, role: read}", "line 1: the hash"),
        (f"- {{name: a, role: read, hash: '{HASH}'}}\n".encode() * 2, 'line 2: a second token of "a"'),
        (b"- {name: [secret]}", "line 1: name is not a text"),
        (f"- {{name: a, role: read, hash: '{HASH}', expires: soon}}".encode(), "line 1: expires is not an instant"),
        (f"- {{name: a, role: read, hash: '{HASH}', expires: '2027-01-31'}}".encode(), "with its time zone"),
        (f"- {{name: a, role: read, hash: '{HASH}', expires: ''}}".encode(), "such as 2027-01-31T00:00:00Z"),
    ],
)
def test_a_damaged_file_is_a_fault(data: bytes, words: str) -> None:
    with pytest.raises(EntriesFault, match=re.escape(words)) as caught:
        read_tokens(data)
    assert "secret" not in str(caught.value)


# --- the command


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gmqtt.yml"
    path.write_text("api: {token_file: tokens.yml}\n")
    return path


def call(config: Path, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["token", command, "-c", str(config), *arguments])


def test_a_token_is_printed_once(config: Path) -> None:
    """The file has its hash, and is for its owner only."""
    result = call(config, "create", "--role", "write")
    assert result.exit_code == 0, result.output
    text = result.stdout.strip()
    assert re.fullmatch(r"gmqttd_[A-Za-z0-9_-]{43}", text)
    file = config.parent / "tokens.yml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert text not in file.read_text()
    (token,) = read_tokens(file.read_bytes()).values()
    assert (token.name, token.role, token.hash) == ("write1", Role.WRITE, hash_token(text))
    assert yaml.safe_load(file.read_text())[0]["role"] == "write"


def test_tokens_are_listed_and_deleted_by_name(config: Path) -> None:
    for arguments in (["--role", "read"], ["--role", "read"], ["--role", "admin", "--name", "ops"]):
        assert call(config, "create", *arguments).exit_code == 0
    lines = call(config, "list").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["read1", "read"], ["read2", "read"], ["ops", "admin"]]
    assert call(config, "delete", "read1").exit_code == 0
    assert call(config, "create", "--role", "read").exit_code == 0
    assert [line.split()[0] for line in call(config, "list").stdout.splitlines()] == ["read2", "ops", "read1"]


@pytest.mark.parametrize(("text", "seconds"), [("90d", 90 * 86_400), ("12h", 43_200), ("1h30m", 5_400), ("1s", 1)])
def test_a_token_that_expires(config: Path, text: str, seconds: int) -> None:
    before = datetime.now(UTC)
    assert call(config, "create", "--role", "read", "--expires", text).exit_code == 0
    after = datetime.now(UTC)
    (token,) = read_tokens((config.parent / "tokens.yml").read_bytes()).values()
    assert token.expires is not None
    begun = token.expires - timedelta(seconds=seconds)
    assert before - timedelta(seconds=1) <= begun <= after
    assert call(config, "list").stdout.split()[-2:] == ["expires", token.expires.isoformat()]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("create",), 2, "--role"),
        (("create", "--role", "root"), 2, "root"),
        (("create", "--role", "read", "--name", "a b"), 1, "letters, digits"),
        (("create", "--role", "read", "--name", "there"), 1, 'a token "there" already'),
        (("create", "--role", "read", "--expires", "90"), 1, "for example 90d or 12h"),
        (("create", "--role", "read", "--expires", "-1h"), 1, "between a second and a hundred years"),
        (("create", "--role", "read", "--expires", "0d"), 1, "between a second and a hundred years"),
        (("create", "--role", "read", "--expires", "99999d"), 1, "between a second and a hundred years"),
        (("delete", "nobody"), 1, 'no token "nobody"'),
    ],
)
def test_faults_of_the_command(config: Path, arguments: tuple[str, ...], exit_code: int, words: str) -> None:
    call(config, "create", "--role", "read", "--name", "there")
    before = (config.parent / "tokens.yml").read_bytes()
    result = call(config, *arguments)
    assert result.exit_code == exit_code
    assert words in result.stderr
    assert (config.parent / "tokens.yml").read_bytes() == before
    assert sorted(os.listdir(config.parent)) == ["gmqtt.yml", "tokens.yml"]


def test_the_command_needs_the_name_of_the_file(config: Path) -> None:
    config.write_text("log: {level: info}\n")
    result = call(config, "create", "--role", "read")
    assert result.exit_code == 1
    assert "api.token_file is not set" in result.stderr


def test_a_damaged_file_stays_untouched(config: Path) -> None:
    file = config.parent / "tokens.yml"
    file.write_text("damaged")
    for arguments in (("create", "--role", "read"), ("list",), ("delete", "a")):
        result = call(config, *arguments)
        assert result.exit_code == 1
        assert "tokens.yml: line 1" in result.stderr
    assert file.read_text() == "damaged"
