"""Users with passwords have accounts in a file, which is kept in memory to check their logins."""

# not a core: waits for threads
from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Set
from dataclasses import replace
from functools import partial

from broker.auth.accounts import Account
from broker.auth.attempt import ALLOWED, NO_OPINION, WRONG_PASSWORD, Attempt, Check, Source, Verdict
from broker.auth.check_queue import CheckPool
from broker.auth.failed_logins import Start
from broker.auth.files import AccountFile, Accounts, read_account_file
from broker.auth.password_hash import cost_of, hash_password, password_fits
from broker.auth.scram import SALT_BYTES, Credentials, ScramFault, derive_credentials


class AccountFault(Exception):
    """A new password cannot be kept. The text says why."""


def new_account(username: str, password: bytes, kind: str, scram: bool) -> Account:
    """Return an account with a new password. Takes milliseconds of CPU. Raises AccountFault."""
    try:
        stored = hash_password(kind, password)
        credentials = derive_credentials(password.decode(), secrets.token_bytes(SALT_BYTES)) if scram else None
    except UnicodeDecodeError:
        raise AccountFault("the password is not UTF-8, which SCRAM needs") from None
    except (ValueError, ScramFault) as fault:
        raise AccountFault(str(fault)) from None
    return Account(username, stored, credentials)


def put_account(accounts: Accounts, account: Account, role: str | None) -> None:
    """Add or replace an account. Its role stays as it was where the new one is None."""
    if role is None:
        former = accounts.get(account.username)
        role = "" if former is None else former.role
    accounts[account.username] = replace(account, role=role)


def _fits_in_the_same_time(stored: str, costs: dict[str, str], bare: str, password: bytes) -> bool:
    """Compare with the stored password, "" for an unknown user. If it does not fit, each of the costs is spent once."""
    if password_fits(stored, bare, password):
        return True
    own = cost_of(stored, bare)
    for cost, other in costs.items():
        if cost != own:
            password_fits(other, bare, password)
    return False


class Passwords(Source):
    """The accounts of the file.

    A wrong password and an unknown user take the same time: one check of each cost that a password of the file has. Otherwise
    the time would tell which users exist.

    accounts  as the file had them when it was read or changed last; never changed in place
    withdrawn called with the names of accounts that have changed or are gone
    """

    def __init__(
        self,
        file: AccountFile,
        bare: str,
        pool: CheckPool,
        withdrawn: Callable[[Set[str]], Awaitable[None]],
    ) -> None:
        self.accounts: Accounts = {}
        self.file = file
        self._bare = bare
        self._pool = pool
        self.queue = pool.queue
        self._withdrawn = withdrawn
        self._changes = asyncio.Lock()  # the order of the file is that of the memory
        self.scram_kinds: list[Credentials] = []  # one for each length of the salt and number of iterations in the file
        self._costs: dict[str, str] = {}  # cost -> what is stored of one password

    async def load(self, key: str) -> None:
        """Read the file. Raises StartError that names the configuration key. A file that had accounts may not be missing."""
        async with self._changes:
            await self._take(await asyncio.to_thread(read_account_file, self.file, key, not self.accounts))

    async def change(self, change: Callable[[Accounts], None]) -> None:
        """Change the file and then the memory. Raises EntriesFault and OSError; both are then as before."""
        async with self._changes:
            await self._take(await asyncio.to_thread(self.file.change, change, not self.accounts))

    async def add(self, username: str, password: bytes, kind: str, scram: bool, role: str | None = None) -> None:
        """Make an account, or set its password, and its role unless that is None. Raises AccountFault, EntriesFault, OSError
        and NotChecked."""
        async with self._pool.queue.turn("", lambda: Start.NOW):
            account = await self._pool.run(partial(new_account, username, password, kind, scram))
        await self.change(lambda accounts: put_account(accounts, account, role))

    async def set_role(self, username: str, role: str) -> None:
        """Set the role of an account. Raises EntriesFault and OSError."""

        def change(accounts: Accounts) -> None:
            if username in accounts:
                accounts[username] = replace(accounts[username], role=role)

        await self.change(change)

    def role_of(self, username: str) -> str:
        """Return the role of an account, "" where there is none of this name."""
        account = self.accounts.get(username)
        return "" if account is None else account.role

    def check(self, attempt: Attempt) -> Verdict | Check:
        password = attempt.password
        if attempt.is_proven or password is None or not attempt.username:
            return NO_OPINION
        account = self.accounts.get(attempt.username)
        if self._costs:
            return partial(self._check_in_thread, account, self._costs, password)
        fits = account is not None and password_fits(account.password, self._bare, password)
        return self._verdict(account, fits)

    async def _check_in_thread(self, account: Account | None, costs: dict[str, str], password: bytes) -> Verdict:
        stored = "" if account is None else account.password
        fits = await self._pool.run(partial(_fits_in_the_same_time, stored, costs, self._bare, password))
        return self._verdict(account, fits)

    def _verdict(self, account: Account | None, fits: bool) -> Verdict:
        if account is None:
            return NO_OPINION
        return ALLOWED if fits else WRONG_PASSWORD

    async def _take(self, accounts: Accounts) -> None:
        withdrawn = {name for name, account in self.accounts.items() if accounts.get(name) != account}
        self.accounts = accounts
        self._costs = {
            cost: account.password for account in accounts.values() if (cost := cost_of(account.password, self._bare))
        }
        credentials = [account.scram for account in accounts.values() if account.scram is not None]
        self.scram_kinds = list({(len(one.salt), one.iterations): one for one in credentials}.values())
        if withdrawn:
            await self._withdrawn(withdrawn)
