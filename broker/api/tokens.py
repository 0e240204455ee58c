"""Tokens of the API and their roles. The file has only their hashes: a token is a secret of 256 bits, so a fast hash does."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from datetime import datetime
from enum import IntEnum
from typing import Final, NamedTuple

from broker.config.yaml_entries import FILE_BYTES_MAX, EntriesFault, quoted, read_entries
from broker.server.private_file import PrivateFile
from broker.server.start_error import file_error

KEY: Final = "api.token_file"
PREFIX: Final = "gmqttd_"  # of each token, so that scanners for leaked secrets find it
SECRET_BYTES: Final = 32
HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")


class Role(IntEnum):
    """A token's role says what it may do; each role may do what the ones below it may. Calls that are OPEN need no
    token."""

    OPEN = 0  # health
    READ = 1  # see clients, subscriptions, members, logs' descriptions, metrics
    WRITE = 2  # publish, subscribe, disconnect; read and hold event logs, whose records have payloads
    ADMIN = 3  # accounts, the membership


ROLES: Final = {role.name.lower(): role for role in Role if role is not Role.OPEN}


class Token(NamedTuple):
    """created  the day, as text
    expires  None for a token that does not
    """

    name: str
    role: Role
    created: str
    hash: str
    expires: datetime | None = None


def hash_token(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()}"


def read_tokens(data: bytes) -> dict[str, Token]:
    """The tokens of a file by their hashes. Raises EntriesFault."""
    tokens: dict[str, Token] = {}
    names: set[str] = set()
    for line, texts in read_entries(data, ("name", "role", "created", "hash", "expires"), "token"):
        name, hash_text = texts.get("name", ""), texts.get("hash", "")
        role = ROLES.get(texts.get("role", ""))
        if not NAME.fullmatch(name):
            raise EntriesFault(line, "the name is not one of 1 to 64 letters, digits and . _ @ -")
        if role is None:
            raise EntriesFault(line, f"the role is not one of {', '.join(ROLES)}")
        if not HASH.fullmatch(hash_text):
            raise EntriesFault(
                line, "the hash is not sha256: and 64 hexadecimal digits; make tokens with `gmqttd token create`"
            )
        expires = _read_instant(line, texts["expires"]) if "expires" in texts else None
        if name in names or hash_text in tokens:
            raise EntriesFault(line, f'a second token of "{name}"')
        names.add(name)
        tokens[hash_text] = Token(name, role, texts.get("created", ""), hash_text, expires)
    return tokens


def _read_instant(line: int, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise EntriesFault(line, "expires is not an instant with its time zone, such as 2027-01-31T00:00:00Z")
    return found


def read_token_file(path: str) -> dict[str, Token]:
    """The tokens of a file by their hashes; none where there is no file. Does input. Raises StartError."""
    try:
        return read_tokens(PrivateFile(path).read(FILE_BYTES_MAX + 1))
    except (EntriesFault, OSError) as error:
        raise file_error(KEY, path, error) from None


def write_tokens(tokens: Iterable[Token]) -> bytes:
    """The file, which `read_tokens` reads."""
    lines = [
        f"- name: {quoted(token.name)}\n  role: {token.role.name.lower()}\n"
        f"  created: {quoted(token.created)}\n  hash: {quoted(token.hash)}\n"
        + (f"  expires: {quoted(token.expires.isoformat())}\n" if token.expires is not None else "")
        for token in tokens
    ]
    return "".join(lines).encode() or b"[]\n"
