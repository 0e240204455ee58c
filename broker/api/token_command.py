"""`gmqttd token`: makes, lists and deletes the tokens of the API."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from broker.api.tokens import NAME, PREFIX, ROLES, SECRET_BYTES, Token, hash_token, read_tokens, write_tokens
from broker.config.durations import DurationError, parse_duration
from broker.config.yaml_entries import FILE_BYTES_MAX, EntriesFault
from broker.server.command_fault import CommandFault
from broker.server.private_file import PrivateFile

DAYS: Final = re.compile(r"[0-9]{1,5}d", re.ASCII)
SECONDS_MIN, SECONDS_MAX = 1.0, 100 * 366 * 86_400.0


def parse_expiry(text: str) -> timedelta:
    """Return how long a token is good: 90d, or a duration as 12h or 1h30m. Raises CommandFault."""
    try:
        seconds = int(text[:-1]) * 86_400.0 if DAYS.fullmatch(text) else parse_duration(text)
    except DurationError:
        raise CommandFault(f'"{text}" is not a time from now; for example 90d or 12h') from None
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise CommandFault(
            f'"{text}" is not between a second and a hundred years; leave --expires away for a token for ever'
        )
    return timedelta(seconds=seconds)


class TokenFile:
    """The file of the tokens. Each method raises CommandFault; the file is then as before."""

    def __init__(self, path: str) -> None:
        self._file = PrivateFile(path)

    def tokens(self) -> list[Token]:
        try:
            return list(read_tokens(self._file.read(FILE_BYTES_MAX + 1)).values())
        except EntriesFault as fault:
            raise CommandFault(f"{self._file.path}: {fault}") from None
        except OSError as error:
            raise CommandFault(f"{self._file.path} cannot be read: {error.strerror or error}") from None

    def create(self, name: str, role: str, expires_in: timedelta | None = None) -> str:
        """A new token, which is kept nowhere. `name` is "" for a free one; without `expires_in` it does not expire."""
        if name and not NAME.fullmatch(name):
            raise CommandFault("a name has 1 to 64 letters, digits and . _ @ -")
        text = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        now = datetime.now(UTC).replace(microsecond=0)
        expires = None if expires_in is None else now + expires_in

        def make() -> bytes:
            tokens = self.tokens()
            names = {token.name for token in tokens}
            if name in names:
                raise CommandFault(f'there is a token "{name}" already; delete it, or choose another name')
            chosen = name or next(
                f"{role}{number}" for number in range(1, len(names) + 2) if f"{role}{number}" not in names
            )
            return write_tokens(
                [*tokens, Token(chosen, ROLES[role], now.date().isoformat(), hash_token(text), expires)]
            )

        self._change(make)
        return text

    def delete(self, name: str) -> None:
        def make() -> bytes:
            tokens = self.tokens()
            rest = [token for token in tokens if token.name != name]
            if len(rest) == len(tokens):
                raise CommandFault(f'there is no token "{name}"')
            return write_tokens(rest)

        self._change(make)

    def _change(self, make: Callable[[], bytes]) -> None:
        try:
            self._file.change(make)
        except OSError as error:
            raise CommandFault(f"{self._file.path} cannot be written: {error.strerror or error}") from None
