"""Logins with SCRAM-SHA-256 are checked against the keys of the accounts."""

# not a core: random salts of the system
from __future__ import annotations

import hashlib
import secrets
from typing import Final

from broker.auth.accounts import write_accounts
from broker.auth.attempt import WRONG_PASSWORD, Attempt, Verdict, denied
from broker.auth.passwords import Passwords
from broker.auth.scram import METHOD, Credentials, ScramFault, ServerExchange, parse_client_first, unknown_credentials

NONCE_BYTES: Final = 18


class ScramLogins:
    """The exchange of a login is kept in `request.exchange`."""

    methods: Final = (METHOD,)

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords
        self._secret = b""

    def _of_unknown(self, username: str) -> Credentials:
        """Return the credentials of a user that does not exist. A salt that another process draws anew would tell them from
        users that do: the secret follows from the accounts, as they are at the first login."""
        passwords = self._passwords
        if not self._secret:
            accounts = passwords.accounts.values()
            self._secret = hashlib.sha256(write_accounts(accounts)).digest() if accounts else secrets.token_bytes(32)
        return unknown_credentials(self._secret, username, passwords.scram_kinds)

    def begin(self, attempt: Attempt) -> bytes | Verdict:
        """Return the challenge, which tells nothing about whether the user exists; or a refusal. Sets the user name."""
        try:
            first = parse_client_first(attempt.request.data)
        except ScramFault as fault:
            return denied(str(fault))
        account = self._passwords.accounts.get(first.username)
        credentials = account.scram if account is not None else None
        if credentials is None:
            credentials = self._of_unknown(first.username)
        exchange = ServerExchange(first, credentials, secrets.token_urlsafe(NONCE_BYTES))
        attempt.username = attempt.login_name = first.username
        attempt.request.exchange = first.username, exchange, account
        return exchange.challenge

    def resume(self, attempt: Attempt) -> None:
        """Set the user name of the exchange that has begun."""
        exchange = attempt.request.exchange
        if exchange is not None:
            assert isinstance(exchange, tuple)
            attempt.username = attempt.login_name = exchange[0]

    def finish(self, attempt: Attempt) -> bytes | Verdict:
        """Return the last message of the server, for a client that knows the password; or a refusal."""
        exchange = attempt.request.exchange
        attempt.request.exchange = None
        if exchange is None:
            return denied("the login has not begun")
        assert isinstance(exchange, tuple)
        if self._passwords.accounts.get(attempt.username) != exchange[2]:
            return WRONG_PASSWORD  # by the keys that the account has now
        try:
            message: bytes = exchange[1].finish(attempt.request.data)
        except ScramFault as fault:
            return denied(str(fault))
        return message
