"""The command `gmqttctl keys`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from broker.api.transcoding import as_values
from federation.pb.keys_pb2 import KeysResponse
from federation.services import KEYS
from gmqttctl.command import Group
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import CommandError
from gmqttctl.listing import confirm, yes_option
from gmqttctl.node_calls import NodeCalls
from gmqttctl.output import Column, Output, output_options
from gmqttctl.text import printable

KEY_COLUMNS: Final = (
    Column("key"),
    Column("members", lambda item: f"{item['have']} of {item['of']}"),
    Column("encrypt with it", "use"),
)
KEY_HELP: Final = "KEY is base64, as `gmqttd keygen` prints it; - reads it from standard input."


@click.group(cls=Group)
def keys() -> None:
    """The keys that encrypt the gossip, on all members: nodes and Serf's agents."""


@keys.command("list", example="gmqttctl keys list")
@connection_options
@output_options
def list_keys(connection: dict[str, str], output: Output) -> None:
    """Print all keys, with the number of members that have each of them. Exit status 1 when a member has not answered."""
    with NodeCalls(read_connection(connection)) as calls:
        output.repeat(lambda: _show_keys(calls.call(KEYS, "ListKeys"), output))


def _show_keys(found: KeysResponse, output: Output) -> None:
    """The keys, those that most members have first."""
    order = sorted(found.keys.items(), key=lambda item: (-found.primary_keys.get(item[0], 0), -item[1], item[0]))
    items = [
        {"key": key, "have": count, "of": found.num_nodes, "use": found.primary_keys.get(key, 0)}
        for key, count in order
    ]
    if output.is_for_people or output.format == "name":
        output.show({"keys": items}, "keys", KEY_COLUMNS, "no keys", message_lines(found))
    else:
        output.document(as_values(found))
    _end(found, "have answered", says=output.is_for_people)


@keys.command(
    example="gmqttd keygen > new.key && gmqttctl keys install - < new.key",
    help=f"Add KEY to the keyrings of all members. {KEY_HELP}",
)
@connection_options
@click.argument("key")
def install(connection: dict[str, str], key: str) -> None:
    _change(connection, "InstallKey", key, "have the key")


@keys.command(
    example="gmqttctl keys use - < new.key",
    help=f"Encrypt with KEY, which is installed on all members, from now on. {KEY_HELP}",
)
@connection_options
@click.option(
    "--force", is_flag=True, help="Also when a member does not have KEY, or does not answer: it is lost to the others."
)
@click.argument("key")
def use(connection: dict[str, str], force: bool, key: str) -> None:
    key = _read(key)
    if not force:
        with NodeCalls(read_connection(connection)) as calls:
            found = calls.call(KEYS, "ListKeys")
        count = found.keys.get(key, 0)
        if count < found.num_nodes:
            raise CommandError(
                f"{count} of {found.num_nodes} members have the key, and the others would be lost: install it first, or --force"
            )
    _change(connection, "UseKey", key, "encrypt with the key")


@keys.command(
    example="gmqttctl keys remove - --yes < old.key",
    help=f"Remove KEY from the keyrings of all members. {KEY_HELP}",
)
@connection_options
@yes_option
@click.argument("key")
def remove(connection: dict[str, str], is_sure: bool, key: str) -> None:
    confirm("Remove the key from all members? One that still encrypts with it is lost to the others.", is_sure)
    _change(connection, "RemoveKey", key, "are without the key")


def _read(key: str) -> str:
    return sys.stdin.readline().strip() if key == "-" else key


def _change(connection: dict[str, str], method: str, key: str, done: str) -> None:
    with NodeCalls(read_connection(connection)) as calls:
        found = calls.call(KEYS, method, {"key": _read(key)})
    for line in message_lines(found):
        click.echo(line)
    _end(found, done)


def _end(found: KeysResponse, done: str, says: bool = True) -> None:
    """Print how many members have done it. Raises CommandError when not all have."""
    count = found.num_responses - found.num_errors
    text = f"{count} of {found.num_nodes} members {done}"
    if count < found.num_nodes:
        raise CommandError(f"{text}; repeat it when the others are back")
    if says:
        click.echo(text)


def message_lines(found: Any) -> Iterator[str]:
    for name, text in sorted(found.messages.items()):
        yield f"{printable(name)}: {printable(text)}"
