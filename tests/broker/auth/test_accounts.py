"""The file of accounts as text: those of the Go broker, our own, and damaged ones."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.auth.accounts import CONTROL, Account, read_accounts, write_accounts
from broker.auth.password_hash import MD5, PLAIN
from broker.auth.scram import derive_credentials
from broker.config.yaml_entries import EntriesFault
from effort import effort

GO_FILE = b"""# This is a sample plain password file for the auth plugin.
- username: root
  password: rootpassword
- username: 007
  password: 12345
- {username: "m\xc3\xbcller", password: 'it''s', comment: kept by nobody}
"""
SCRAM = derive_credentials("p", b"0123456789abcdef", 4096)


def test_a_file_of_the_go_broker_is_read() -> None:
    """A number is the text that is written there."""
    accounts = read_accounts(GO_FILE, PLAIN)
    assert {name: account.password for name, account in accounts.items()} == {
        "root": "rootpassword",
        "007": "12345",
        "müller": "it's",
    }


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b"[]\n", b"null\n", b"~"])
def test_a_file_without_accounts(data: bytes) -> None:
    assert read_accounts(data, PLAIN) == {}


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"root: secret", 1, "not a list of accounts"),
        (b"secret", 1, "not a list of accounts"),
        (b"- secret", 1, "not an entry of one account"),
        (b"- [secret]", 1, "not an entry of one account"),
        (b"- username: a\n  password: [secret]", 2, "password is not a text"),
        (b"- username: {secret: 1}\n  password: secret", 1, "username is not a text"),
        (b"- username: a\n  password: secret\n- username: a\n  password: x", 3, 'second account of "a"'),
        (b"- username: a\n  username: b\n  password: x", 2, "second username"),
        (b"- password: secret", 1, "user name is empty"),
        (b"- username: ''\n  password: secret", 1, "user name is empty"),
        (b'- username: "a\\nb"\n  password: secret', 1, "control character"),
        (b"- username: a", 1, "password is empty"),
        (b"- username: a\n  password:", 1, "password is empty"),
        (b"- username: a\n  password: secret\n  scram: secret", 1, "not the keys of SCRAM-SHA-256"),
        (b"- username: a\n  password: x\n  scram: SCRAM-SHA-256$1:YQ==$YQ==:YQ==", 1, "not the keys"),
        (b"- username: a\n  password: secret\n  role: king", 1, "the role may be link"),
        (b"- username: a\n  password: secret\n  role: 'link:'", 1, "link:DOMAIN"),
        (b"- username: a\n  password: \xff", 2, "not UTF-8"),
        (b"- username: a\n  password: 'secret", 2, ""),
        (b"\0", 0, "not YAML"),
        (b"[" * 3000, 0, ""),
        (b"- username: a" + b" " * (64 * 2**20), 0, "more than 67108864 bytes"),
    ],
)
def test_a_damaged_file_is_a_fault_with_its_line(data: bytes, line: int, words: str) -> None:
    with pytest.raises(EntriesFault) as caught:
        read_accounts(data, PLAIN)
    assert words in str(caught.value)
    if line:
        assert caught.value.line == line
    assert "secret" not in str(caught.value)


def test_a_password_must_be_of_the_hash_of_the_settings() -> None:
    with pytest.raises(EntriesFault, match="line 2: the password is not a md5 hash") as caught:
        read_accounts(GO_FILE, MD5)
    assert "rootpassword" not in str(caught.value)


names = st.text(min_size=1, max_size=20).filter(
    lambda text: not CONTROL.search(text) and text.isprintable() and not any("\ud800" <= c <= "\udfff" for c in text)
)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@settings(max_examples=effort(200))
@given(
    st.dictionaries(
        names,
        st.tuples(texts, st.sampled_from([None, SCRAM]), st.sampled_from(["", "link", "link:berlin"])),
        max_size=5,
    )
)
def test_accounts_that_are_written_are_read_again(table: dict[str, tuple[str, None, str]]) -> None:
    """By any reader of YAML, also one that knows no key of SCRAM."""
    accounts = {name: Account(name, password, scram, role) for name, (password, scram, role) in table.items()}
    data = write_accounts(accounts.values())
    assert data.isascii()
    assert read_accounts(data, PLAIN) == accounts
    foreign = yaml.safe_load(data) or []
    assert [(entry["username"], entry["password"]) for entry in foreign] == [
        (account.username, account.password) for account in accounts.values()
    ]


def test_the_text_of_an_account_has_no_secret() -> None:
    account = Account("a", "hash of a password", SCRAM)
    assert "hash" not in repr(account)
    assert "key" not in repr(account)
