"""The files that the plugin reads, each with the fault that keeps a node from starting. The functions do input."""

# not a core: reads files
from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.auth.accounts import Account, read_accounts, write_accounts
from broker.auth.acl_file import ACL_BYTES_MAX, AclFault, AclFile, parse_acl_file
from broker.config.yaml_entries import FILE_BYTES_MAX, EntriesFault
from broker.server.private_file import PrivateFile
from broker.server.start_error import StartError, file_error

if TYPE_CHECKING:
    from broker.auth.settings_jwt import JwtSettings
    from broker.auth.tokens import TokenKey

KEY_FILE_BYTES_MAX: Final = 2**20

Accounts = dict[str, Account]
PathOf = Callable[[str], str]  # as Host.path_of


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


def read_account_file(file: AccountFile, key: str, may_be_missing: bool = True) -> Accounts:
    """Return the accounts; none for a file that is missing and may be. Raises StartError."""
    try:
        return file.read(may_be_missing)
    except (EntriesFault, OSError) as error:
        raise file_error(key, file.path, error) from None


def read_acl_file(path: str, key: str) -> AclFile:
    """Raises StartError."""
    try:
        return parse_acl_file(_read(path, ACL_BYTES_MAX + 1))
    except (AclFault, OSError) as error:
        raise file_error(key, path, error) from None


def read_token_keys(settings: JwtSettings, key: str, path_of: PathOf) -> tuple[TokenKey, ...]:
    """Return the keys of all algorithms of the settings; `key` is that of the section. Raises StartError."""
    from broker.auth.tokens import KeyFault, jwks_keys, pem_keys, secret_keys

    keys: list[TokenKey] = []
    if settings.secret:
        try:
            keys += secret_keys(settings.secret.encode())
        except KeyFault as fault:
            raise StartError(f"{key}.secret: {fault}") from None
    files = (("public_key_file", settings.public_key_file, pem_keys), ("jwks_file", settings.jwks_file, jwks_keys))
    for name, file, parse in files:
        if file:
            path = path_of(file)
            try:
                keys += parse(_read(path, KEY_FILE_BYTES_MAX))
            except (KeyFault, OSError) as error:
                raise file_error(f"{key}.{name}", path, error) from None
    for algorithm in settings.algorithms:
        if not any(found.algorithm == algorithm for found in keys):
            raise StartError(f"{key}.algorithms: there is no key for {algorithm}")
    return tuple(found for found in keys if found.algorithm in settings.algorithms)


def webhook_context(path: str, key: str) -> ssl.SSLContext:
    """Return the context of a file with certificates of authorities. Raises StartError."""
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise StartError(f"{key}: {path} is not a PEM file of certificates") from None
    except OSError as error:
        raise file_error(key, path, error) from None


def _read(path: str, bytes_max: int) -> bytes:
    with open(path, "rb") as stream:
        return stream.read(bytes_max)
