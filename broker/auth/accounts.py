"""Accounts as the Go broker's file has them: a YAML list of `{username, password}`, and the keys of SCRAM beside them.

The Go broker ignores the key `scram`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import yaml

from broker.auth.password_hash import fault_of
from broker.auth.scram import ITERATIONS_MIN, METHOD, Credentials
from broker.config.yaml_faults import yaml_fault

FILE_BYTES_MAX: Final = 64 * 2**20
ACCOUNTS_MAX: Final = 100_000
NAME_BYTES_MAX: Final = 65_535  # of a UTF-8 string in a packet [MQTT5 1.5.4]
ITERATIONS_MAX: Final = 10_000_000
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SCRAM_TEXT: Final = re.compile(
    re.escape(METHOD) + r"\$([0-9]{1,8}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)"
)
KEY_BYTES: Final = 32  # of SHA-256

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class AccountsFault(Exception):
    """The file cannot be used. `line` counts from 1, 0 for the whole file. The text has nothing of a password."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}" if line else text)
        self.line = line


@dataclass(frozen=True, slots=True)
class Account:
    """One user. `password` is what is stored of it; `scram` is None for a user who cannot log in with SCRAM."""

    username: str
    password: str = field(repr=False)
    scram: Credentials | None = field(default=None, repr=False)


def name_fault(username: str) -> str:
    """Why a user may not have this name; empty when one may."""
    if not username:
        return "the user name is empty"
    if CONTROL.search(username):
        return "the user name has a control character"
    if any("\ud800" <= character <= "\udfff" for character in username):
        return "the user name is not UTF-8"
    if len(username.encode()) > NAME_BYTES_MAX:
        return f"the user name has more than {NAME_BYTES_MAX} bytes"
    return ""


def read_accounts(data: bytes, bare: str) -> dict[str, Account]:
    """The accounts of a file by user name. `bare` is the hash of passwords that do not name theirs. Raises AccountsFault."""
    if len(data) > FILE_BYTES_MAX:
        raise AccountsFault(0, f"the file has more than {FILE_BYTES_MAX} bytes")
    try:
        root = yaml.compose(data.decode("utf-8-sig"), Loader=_Loader)
    except UnicodeDecodeError as error:
        raise AccountsFault(data.count(b"\n", 0, error.start) + 1, "this is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line, what = yaml_fault(error)
        raise AccountsFault(line, what) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise AccountsFault(0, "this is not YAML") from None
    accounts: dict[str, Account] = {}
    if root is None or root.tag == "tag:yaml.org,2002:null":
        return accounts
    if not isinstance(root, yaml.SequenceNode):
        raise AccountsFault(1, "this is not a list of accounts: a line is missing that begins with `- username:`")
    if len(root.value) > ACCOUNTS_MAX:
        raise AccountsFault(0, f"the file has more than {ACCOUNTS_MAX} accounts")
    for node in root.value:
        account = _read_account(node, bare)
        if account.username in accounts:
            raise AccountsFault(node.start_mark.line + 1, f'a second account of "{account.username[:100]}"')
        accounts[account.username] = account
    return accounts


def _read_account(node: yaml.Node, bare: str) -> Account:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        raise AccountsFault(line, "this is not an account, which has `username` and `password`")
    texts: dict[str, str] = {}
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in ("username", "password", "scram"):
            if not isinstance(value, yaml.ScalarNode):
                raise AccountsFault(key.start_mark.line + 1, f"{key.value} is not a text")
            if key.value in texts:
                raise AccountsFault(key.start_mark.line + 1, f"a second {key.value} in one account")
            texts[key.value] = value.value
    username = texts.get("username", "")
    fault = name_fault(username) or fault_of(texts.get("password", ""), bare)
    if fault:
        raise AccountsFault(line, fault)
    return Account(username, texts["password"], _read_scram(line, texts["scram"]) if "scram" in texts else None)


def _read_scram(line: int, text: str) -> Credentials:
    match = SCRAM_TEXT.fullmatch(text)
    try:
        if match is not None:
            iterations = int(match[1])
            salt, stored_key, server_key = (base64.b64decode(match[at], validate=True) for at in (2, 3, 4))
            if ITERATIONS_MIN <= iterations <= ITERATIONS_MAX and len(stored_key) == len(server_key) == KEY_BYTES:
                return Credentials(salt, iterations, stored_key, server_key)
    except binascii.Error:
        pass
    raise AccountsFault(line, f"scram is not the keys of {METHOD}: set the password again with `gmqttd passwd --scram`")


def write_accounts(accounts: Iterable[Account]) -> bytes:
    """The file, which `read_accounts` and the Go broker read."""
    lines: list[str] = []
    for account in accounts:
        lines.append(f"- username: {_quoted(account.username)}\n  password: {_quoted(account.password)}\n")
        if account.scram is not None:
            salt, stored_key, server_key = (
                base64.b64encode(part).decode()
                for part in (account.scram.salt, account.scram.stored_key, account.scram.server_key)
            )
            lines.append(f'  scram: "{METHOD}${account.scram.iterations}:{salt}${stored_key}:{server_key}"\n')
    return "".join(lines).encode() or b"[]\n"


def _quoted(text: str) -> str:
    """The text as a double-quoted scalar of ASCII characters."""
    parts = []
    for character in text:
        if character in '"\\':
            parts.append(f"\\{character}")
        elif " " <= character <= "~":
            parts.append(character)
        else:
            parts.append(f"\\U{ord(character):08X}")
    return f'"{"".join(parts)}"'
