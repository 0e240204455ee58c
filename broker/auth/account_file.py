"""The file of accounts: read whole, replaced whole, with mode 0600."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker.auth.accounts import FILE_BYTES_MAX, Account, read_accounts, write_accounts

Accounts = dict[str, Account]


class AccountFile:
    """`path` may be a symbolic link; the file that it names is replaced. `bare` is the hash of passwords that do not name
    theirs. The methods do input and output: a node calls them in a thread."""

    def __init__(self, path: str, bare: str) -> None:
        self.path = path
        self._bare = bare

    def read(self) -> Accounts:
        """The accounts; none where there is no file. Raises AccountsFault and OSError."""
        try:
            with open(self.path, "rb") as stream:
                return read_accounts(stream.read(FILE_BYTES_MAX + 1), self._bare)
        except FileNotFoundError:
            return {}

    def change(self, change: Callable[[Accounts], None]) -> Accounts:
        """Read the file, apply a change and replace the file, while nobody else changes it. Returns the new accounts. Raises
        AccountsFault and OSError; the file is then as before."""
        with self._locked():
            accounts = self.read()
            change(accounts)
            self._replace(write_accounts(accounts.values()))
        return accounts

    def is_readable_by_others(self) -> bool:
        try:
            return bool(stat.S_IMODE(os.stat(self.path).st_mode) & 0o077)
        except OSError:
            return False

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude others that change a file of the folder in this way."""
        descriptor = os.open(self._folder(), os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _folder(self) -> str:
        return os.path.dirname(os.path.realpath(self.path))

    def _replace(self, data: bytes) -> None:
        target = os.path.realpath(self.path)
        descriptor, temporary = tempfile.mkstemp(prefix=".gmqttd-accounts-", dir=self._folder())  # mode 0600
        try:
            with open(descriptor, "wb") as stream:
                stream.write(data)
                if os.path.exists(target):
                    former = os.stat(target)
                    if (former.st_uid, former.st_gid) != (os.geteuid(), os.getegid()):
                        os.fchown(
                            stream.fileno(), former.st_uid, former.st_gid
                        )  # root changes it for the broker's user
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        folder = os.open(self._folder(), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
