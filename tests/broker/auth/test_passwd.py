"""`gmqttd passwd`: its options, its faults, and what it never prints."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.auth.accounts import read_accounts
from broker.auth.password_hash import PLAIN, password_fits
from broker.auth.scram import derive_credentials
from broker.server.cli import main

GO_FILE = "- username: root\n  password: 5ebe2294ecd0e0f08eab7690d2a6ee69\n"


def call(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["passwd", *arguments], input=stdin)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "accounts.yml"


def fits(file: Path, username: str, password: bytes) -> bool:
    return password_fits(read_accounts(file.read_bytes(), PLAIN)[username].password, PLAIN, password)


def test_a_new_file(file: Path) -> None:
    result = call("-c", "-b", str(file), "alice", "secret")
    assert (result.exit_code, result.stdout) == (0, "added alice\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "argon2id" in file.read_text()
    assert fits(file, "alice", b"secret")


@pytest.mark.parametrize("line", ["secret\n", "secret", "secret\r\n", "secret\nnext line\n"])
def test_the_password_is_the_first_line_of_standard_input(file: Path, line: str) -> None:
    assert call("-c", str(file), "alice", stdin=line).exit_code == 0
    assert fits(file, "alice", b"secret")


def test_accounts_are_added_to_a_file_of_the_go_broker(file: Path) -> None:
    """Those that are there stay as they are."""
    file.write_text(GO_FILE)
    assert call("-b", "-H", "bcrypt", str(file), "alice", "secret").exit_code == 0
    accounts = read_accounts(file.read_bytes(), PLAIN)
    assert accounts["root"].password == "5ebe2294ecd0e0f08eab7690d2a6ee69"
    assert accounts["alice"].password.startswith("$2b$")
    assert call("-b", str(file), "root", "other").stdout == "changed the password of root\n"
    assert fits(file, "root", b"other")
    assert call("-D", str(file), "alice").stdout == "deleted alice\n"
    assert list(read_accounts(file.read_bytes(), PLAIN)) == ["root"]


def test_the_role_of_an_account_stays_until_another_one_is_given(file: Path) -> None:
    for arguments, role in (
        (("--role", "link"), "link"),
        ((), "link"),
        (("--role", "none"), ""),
        (("--role", "link:berlin"), "link:berlin"),
    ):
        create = () if file.exists() else ("-c",)
        assert call(*create, "-b", *arguments, str(file), "berlin", "secret").exit_code == 0
        assert read_accounts(file.read_bytes(), PLAIN)["berlin"].role == role


def test_the_keys_of_scram_are_kept_on_request(file: Path) -> None:
    call("-c", "-b", "--scram", str(file), "alice", "secret")
    found = read_accounts(file.read_bytes(), PLAIN)["alice"].scram
    assert found is not None
    assert found == derive_credentials("secret", found.salt, found.iterations)
    call("-b", str(file), "alice", "secret")
    assert read_accounts(file.read_bytes(), PLAIN)["alice"].scram is None, "no keys of a former password"


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (("-b", "FILE", "alice", "secret"), "", "-c makes it"),
        (("-D", "FILE", "alice"), "", "there is no"),
        (("-c", "FILE", "alice"), "", "the password is empty"),
        (("-c", "FILE", "alice"), "\n", "the password is empty"),
        (("-c", "-b", "FILE", "", "secret"), "", "the user name is empty"),
        (("-c", "-b", "FILE", "a\nb", "secret"), "", "control character"),
        (("-c", "-b", "-H", "bcrypt", "FILE", "a", "secret" * 20), "", "bcrypt takes at most 72"),
        (("-c", "-b", "--scram", "FILE", "a", "secret\x01"), "", "not allowed in user names and passwords"),
        (("-c", "-b", "FILE/accounts.yml", "a", "secret"), "", "cannot be written"),
    ],
)
def test_faults_leave_no_file(file: Path, arguments: tuple[str, ...], stdin: str, words: str) -> None:
    result = call(*[word.replace("FILE", str(file)) for word in arguments], stdin=stdin)
    assert result.exit_code == 1
    assert words in result.stderr
    assert "secret" not in result.stderr
    assert not file.exists()


def test_a_file_that_is_there_is_not_made_anew(file: Path) -> None:
    file.write_text(GO_FILE)
    result = call("-c", "-b", str(file), "alice", "secret")
    assert result.exit_code == 1
    assert "leave -c away" in result.stderr
    assert file.read_text() == GO_FILE


def test_an_unknown_user_cannot_be_deleted(file: Path) -> None:
    file.write_text(GO_FILE)
    result = call("-D", str(file), "alice")
    assert (result.exit_code, file.read_text()) == (1, GO_FILE)
    assert 'no user "alice"' in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("FILE", "alice", "secret"),
        ("-b", "FILE", "alice"),
        ("-D", "-c", "FILE", "alice"),
        ("-D", "-b", "FILE", "alice", "secret"),
        ("-H", "md5", "FILE", "alice"),
        ("--role", "king", "FILE", "alice"),
        ("-D", "--role", "link", "FILE", "alice"),
    ],
)
def test_options_that_do_not_go_together(file: Path, arguments: tuple[str, ...]) -> None:
    result = call(*[word.replace("FILE", str(file)) for word in arguments])
    assert result.exit_code == 2
    assert not file.exists()
