"""The guard of the API: the one place where the token of a request is judged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

import grpc

from broker.api.errors import ApiError
from broker.api.tokens import Role, Token, hash_token, read_token_file

SCHEME: Final = "bearer "
WALL_CLOCK: Final = partial(datetime.now, UTC)


class ApiGuard:
    """Without a path whoever reaches the API may call everything. `refused` counts calls without a token that suffices."""

    def __init__(self, path: str = "", clock: Callable[[], datetime] = WALL_CLOCK) -> None:
        self.path = path
        self.refused = 0
        self._clock = clock
        self._tokens: dict[str, Token] = {}
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

    def _found(self, authorizations: Sequence[str]) -> Token | None:
        if len(authorizations) != 1 or authorizations[0][: len(SCHEME)].lower() != SCHEME:
            return None
        return self._tokens.get(hash_token(authorizations[0][len(SCHEME) :].strip()))
