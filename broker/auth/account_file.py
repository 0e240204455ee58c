"""The file of accounts."""

from __future__ import annotations

from collections.abc import Callable

from broker.auth.accounts import Account, read_accounts, write_accounts
from broker.config.yaml_entries import FILE_BYTES_MAX
from broker.server.private_file import PrivateFile

Accounts = dict[str, Account]


class AccountFile:
    """`bare` is the hash of passwords that do not name theirs. The methods do input and output: a node calls them in a
    thread."""

    def __init__(self, path: str, bare: str) -> None:
        self.path = path
        self._file = PrivateFile(path)
        self._bare = bare

    def read(self, may_be_missing: bool = True) -> Accounts:
        """Return the accounts; none for a file that is missing and may be. Raises EntriesFault and OSError."""
        return read_accounts(self._file.read(FILE_BYTES_MAX + 1, may_be_missing), self._bare)

    def change(self, change: Callable[[Accounts], None], may_be_missing: bool = True) -> Accounts:
        """Read the file, apply a change and replace the file, while nobody else changes it. Returns the new accounts. Raises
        EntriesFault and OSError; the file is then as before."""
        accounts: Accounts = {}

        def make() -> bytes:
            accounts.update(self.read(may_be_missing))
            change(accounts)
            return write_accounts(accounts.values())

        self._file.change(make)
        return accounts

    def is_readable_by_others(self) -> bool:
        return self._file.is_readable_by_others()
