"""The keys of tokens: from the settings and from files, which are read again at a reload."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.auth.tokens import KeyFault, TokenKey, TokenRules, Tokens, jwks_keys, pem_keys, secret_keys
from broker.server.start_error import StartError

if TYPE_CHECKING:
    from broker.auth.settings import JwtSettings
    from broker.server.host import Host

FILE_BYTES_MAX: Final = 2**20


class TokenFiles:
    """`key` is the path of the settings, for faults."""

    def __init__(self, server: Host, settings: JwtSettings, key: str) -> None:
        self._server = server
        self._settings = settings
        self._key = key
        rules = TokenRules(
            settings.algorithms,
            settings.issuer,
            settings.audience,
            settings.username_claim,
            settings.acl_claim,
            settings.leeway,
        )
        self._tokens = Tokens(rules, (), time.time, server.now)

    async def open(self) -> Tokens:
        """The source of users with the keys. Raises StartError."""
        await self.load()
        return self._tokens

    async def load(self) -> None:
        """Read the keys. Raises StartError; the former keys then stay."""
        settings = self._settings
        keys: list[TokenKey] = []
        if settings.secret:
            try:
                keys += secret_keys(settings.secret.encode())
            except KeyFault as fault:
                raise StartError(f"{self._key}.secret: {fault}") from None
        if settings.public_key_file:
            keys += await self._read("public_key_file", settings.public_key_file, pem_keys)
        if settings.jwks_file:
            keys += await self._read("jwks_file", settings.jwks_file, jwks_keys)
        for algorithm in settings.algorithms:
            if not any(key.algorithm == algorithm for key in keys):
                raise StartError(f"{self._key}.algorithms: there is no key for {algorithm}")
        self._tokens.keys = tuple(key for key in keys if key.algorithm in settings.algorithms)

    async def _read(self, name: str, file: str, parse: Callable[[bytes], list[TokenKey]]) -> list[TokenKey]:
        path = self._server.path_of(file)

        def read() -> bytes:
            with open(path, "rb") as stream:
                return stream.read(FILE_BYTES_MAX)

        try:
            return parse(await asyncio.to_thread(read))
        except KeyFault as fault:
            raise StartError(f"{self._key}.{name}: {path}: {fault}") from None
        except OSError as error:
            raise StartError(f"{self._key}.{name}: {path} cannot be read: {error.strerror or error}") from error
