"""The guard of the API: the one place where the token of a request is judged."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

import grpc

from broker.api.errors import ApiError
from broker.api.tokens import Role, Token, hash_token, read_token_file

BEARER: Final = "bearer"
LOGIN: Final = "login"  # the scheme of a login of the page
LOGIN_SECONDS: Final = 24 * 3600
WALL_CLOCK: Final = partial(datetime.now, UTC)


class ApiGuard:
    """Without a path whoever reaches the API may call everything. `refused` counts calls without a token that suffices."""

    def __init__(self, path: str = "", clock: Callable[[], datetime] = WALL_CLOCK) -> None:
        self.path = path
        self.refused = 0
        self._clock = clock
        self._tokens: dict[str, Token] = {}
        self._login_key = secrets.token_bytes(32)
        self._lock = threading.Lock()  # an older state of the file must not come after a newer one

    @property
    def is_on(self) -> bool:
        return bool(self.path)

    @property
    def token_count(self) -> int:
        return len(self._tokens)

    def load(self) -> None:
        """Read the file, for the first time or again. Does input. Raises StartError; the former tokens then stay."""
        if self.path:
            with self._lock:
                self._tokens = read_token_file(self.path)

    def check(self, authorizations: Sequence[str], role: Role) -> Role:
        """Return the caller's role. Raises ApiError unless the token has the role that is needed. The argument is all values
        of the header `Authorization`."""
        if not self.path:
            return Role.ADMIN
        if role is Role.OPEN:
            return role
        token = self._found(authorizations)
        if token is None:
            self.refused += 1
            what = "the token is not known" if authorizations else "a token is needed: Authorization: Bearer TOKEN"
            raise ApiError(grpc.StatusCode.UNAUTHENTICATED, what)
        if token.expires is not None and token.expires <= self._clock():
            self.refused += 1
            text = f'the token "{token.name}" has expired at {token.expires.isoformat()}; make another one'
            raise ApiError(grpc.StatusCode.UNAUTHENTICATED, text)
        if token.role < role:
            self.refused += 1
            text = f'the token "{token.name}" has the role {token.role.name.lower()}, this needs {role.name.lower()}'
            raise ApiError(grpc.StatusCode.PERMISSION_DENIED, text)
        return token.role

    def token_of(self, authorizations: Sequence[str]) -> Token | None:
        """The token that a request has, if it is known and has not expired."""
        token = self._found(authorizations)
        return None if token is None or (token.expires is not None and token.expires <= self._clock()) else token

    def login_of(self, token: Token) -> str:
        """What stands for a token in the browser that gave it, for LOGIN_SECONDS and until this process ends. A browser sends
        its cookies to all ports of a host (RFC 6265, section 8.5), so they do not have the token."""
        ends = str(int(self._clock().timestamp()) + LOGIN_SECONDS)
        return f"{token.name}.{ends}.{self._proof(token, ends)}"

    def _proof(self, token: Token, ends: str) -> str:
        return hmac.new(self._login_key, f"{token.hash} {ends}".encode(), hashlib.sha256).hexdigest()

    def _found(self, authorizations: Sequence[str]) -> Token | None:
        scheme, _, value = authorizations[0].partition(" ") if len(authorizations) == 1 else ("", "", "")
        if scheme.lower() == BEARER:
            return self._tokens.get(hash_token(value.strip()))
        name, _, proof = value.rpartition(".")
        name, _, ends = name.rpartition(".")
        token = next((each for each in self._tokens.values() if each.name == name), None)
        if scheme.lower() != LOGIN or token is None or not value.isascii():
            return None
        if not hmac.compare_digest(proof, self._proof(token, ends)):
            return None
        return token if int(ends) > self._clock().timestamp() else None
