"""Accounts as the Go broker's file has them: a YAML list of `{username, password}`, and the keys of SCRAM beside them.

The Go broker ignores the keys `scram` and `role`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from broker.auth.password_hash import fault_of
from broker.auth.scram import ITERATIONS_MIN, METHOD, Credentials
from broker.config.yaml_entries import EntriesFault, quoted, read_entries

NAME_BYTES_MAX: Final = 65_535  # of a UTF-8 string in a packet [MQTT5 1.5.4]
ITERATIONS_MAX: Final = 10_000_000
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SCRAM_TEXT: Final = re.compile(
    re.escape(METHOD) + r"\$([0-9]{1,8}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)"
)
KEY_BYTES: Final = 32  # of SHA-256
LINK: Final = "link"  # the role of accounts whose clients may be links of other domains
LINK_OF: Final = "link:"  # and of those of one domain, whose name follows


@dataclass(frozen=True, slots=True)
class Account:
    """One user. `password` is what is stored of it; `scram` is None for a user who cannot log in with SCRAM. `role` is
    LINK, LINK_OF with the name of a domain, or ""."""

    username: str
    password: str = field(repr=False)
    scram: Credentials | None = field(default=None, repr=False)
    role: str = ""


def link_domain_of(role: object) -> str | None:
    """Return the domain that the clients of a role may be links of: "" for any one, None for none."""
    if role == LINK:
        return ""
    return (
        role.removeprefix(LINK_OF) if isinstance(role, str) and role.startswith(LINK_OF) and role != LINK_OF else None
    )


def name_fault(username: str) -> str:
    """Return why a user may not have this name; empty when one may."""
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
    """Return the accounts of a file by user name. `bare` is the hash of passwords that do not name theirs. Raises
    EntriesFault."""
    accounts: dict[str, Account] = {}
    for line, texts in read_entries(data, ("username", "password", "scram", "role"), "account"):
        username = texts.get("username", "")
        fault = name_fault(username) or fault_of(texts.get("password", ""), bare)
        if fault:
            raise EntriesFault(line, fault)
        if username in accounts:
            raise EntriesFault(line, f'a second account of "{username[:100]}"')
        scram = _read_scram(line, texts["scram"]) if "scram" in texts else None
        role = texts.get("role", "")
        if role and link_domain_of(role) is None:
            raise EntriesFault(line, f"the role may be {LINK} or {LINK_OF}DOMAIN, or is left away")
        accounts[username] = Account(username, texts["password"], scram, role)
    return accounts


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
    raise EntriesFault(line, f"scram is not the keys of {METHOD}: set the password again with `gmqttd passwd --scram`")


def write_accounts(accounts: Iterable[Account]) -> bytes:
    """Return the file, which `read_accounts` and the Go broker read."""
    lines: list[str] = []
    for account in accounts:
        lines.append(f"- username: {quoted(account.username)}\n  password: {quoted(account.password)}\n")
        if account.scram is not None:
            salt, stored_key, server_key = (
                base64.b64encode(part).decode()
                for part in (account.scram.salt, account.scram.stored_key, account.scram.server_key)
            )
            lines.append(f'  scram: "{METHOD}${account.scram.iterations}:{salt}${stored_key}:{server_key}"\n')
        if account.role:
            lines.append(f"  role: {quoted(account.role)}\n")
    return "".join(lines).encode() or b"[]\n"
