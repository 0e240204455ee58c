"""`gmqttd passwd`: accounts in the file of the plugin `auth`, with the options of mosquitto_passwd."""

# not a core: a command
from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

import click

from broker.auth.accounts import name_fault
from broker.auth.files import AccountFile, Accounts
from broker.auth.password_hash import PLAIN
from broker.auth.passwords import AccountFault, new_account, put_account
from broker.config.yaml_entries import EntriesFault
from broker.server.command_fault import CommandFault

PASSWORD_BYTES_MAX: Final = 65_535  # of binary data in a packet [MQTT5 1.5.6]


def set_password(
    path: str, username: str, password: bytes, kind: str, scram: bool, create: bool, role: str | None = None
) -> bool:
    """Make an account or set its password, and its role unless that is None; True for a new one. Raises CommandFault; the file
    is then as before."""
    fault = name_fault(username)
    if fault:
        raise CommandFault(fault)
    if create and os.path.exists(path):
        raise CommandFault(f"{path} exists already; leave -c away to add a user to it")
    if not create and not os.path.exists(path):
        raise CommandFault(f"there is no {path}; -c makes it")
    try:
        account = new_account(username, password, kind, scram)
    except AccountFault as error:
        raise CommandFault(str(error)) from None
    is_new = False

    def put(accounts: Accounts) -> None:
        nonlocal is_new
        is_new = username not in accounts
        put_account(accounts, account, role)

    _change(path, put)
    return is_new


def delete_account(path: str, username: str) -> None:
    """Delete an account. Raises CommandFault, also when there is no such account."""

    def remove(accounts: Accounts) -> None:
        if accounts.pop(username, None) is None:
            raise CommandFault(f'{path} has no user "{username}"')

    if not os.path.exists(path):
        raise CommandFault(f"there is no {path}")
    _change(path, remove)


def _change(path: str, change: Callable[[Accounts], None]) -> None:
    # What passwords without a name of their hash are does not matter: they stay as they are.
    try:
        AccountFile(path, PLAIN).change(change)
    except EntriesFault as fault:
        raise CommandFault(f"{path}: {fault}") from None
    except OSError as error:
        raise CommandFault(f"{path} cannot be written: {error.strerror or error}") from None


def read_password(on_command_line: str | None) -> bytes:
    """Return the password of -b, of a prompt without echo, or the first line of standard input when that is no terminal."""
    if on_command_line is not None:
        return on_command_line.encode(errors="surrogateescape")
    if sys.stdin.isatty():
        prompted: str = click.prompt("Password", hide_input=True, confirmation_prompt="Reenter password")
        return prompted.encode()
    line = sys.stdin.buffer.readline(PASSWORD_BYTES_MAX + 2)
    return line.rstrip(b"\r\n")
