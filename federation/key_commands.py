"""The command `gmqttctl keys`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import click
from google.protobuf.empty_pb2 import Empty

from broker.api.transcoding import as_values
from federation.pb.keys_pb2 import KeyRequest, KeysResponse
from federation.pb.keys_pb2_grpc import KeysStub
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import CommandError
from gmqttctl.node_calls import NodeCalls
from gmqttctl.text import aligned, printable

MISSING: Final = "it is in no federation; turn its plugin federation on"
KEY_HELP: Final = "KEY is base64, as `gmqttd keygen` prints it; - reads it from standard input."


@click.group()
def keys() -> None:
    """The keys that encrypt the gossip, on all members: nodes and Serf's agents."""


@keys.command("list")
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_keys(connection: dict[str, str], as_json: bool) -> None:
    """Print all keys, with the number of members that have each of them. Exit status 1 when a member has not answered."""
    with NodeCalls(read_connection(connection), MISSING) as calls:
        found = calls.call(KeysStub, "ListKeys", Empty())
    if as_json:
        click.echo(json.dumps(as_values(found), indent=2, ensure_ascii=False))
    else:
        for line in [*key_lines(found), *message_lines(found)]:
            click.echo(line)
    _end(found, "have answered")


@keys.command(help=f"Add KEY to the keyrings of all members. {KEY_HELP}")
@connection_options
@click.argument("key")
def install(connection: dict[str, str], key: str) -> None:
    _change(connection, "InstallKey", key, "have the key")


@keys.command(help=f"Encrypt with KEY, which is installed on all members, from now on. {KEY_HELP}")
@connection_options
@click.option(
    "--force", is_flag=True, help="Also when a member does not have KEY, or does not answer: it is lost to the others."
)
@click.argument("key")
def use(connection: dict[str, str], force: bool, key: str) -> None:
    key = _read(key)
    if not force:
        with NodeCalls(read_connection(connection), MISSING) as calls:
            found = calls.call(KeysStub, "ListKeys", Empty())
        count = found.keys.get(key, 0)
        if count < found.num_nodes:
            raise CommandError(
                f"{count} of {found.num_nodes} members have the key, and the others would be lost: install it first, or --force"
            )
    _change(connection, "UseKey", key, "encrypt with the key")


@keys.command(help=f"Remove KEY from the keyrings of all members. {KEY_HELP}")
@connection_options
@click.argument("key")
def remove(connection: dict[str, str], key: str) -> None:
    _change(connection, "RemoveKey", key, "are without the key")


def _read(key: str) -> str:
    return sys.stdin.readline().strip() if key == "-" else key


def _change(connection: dict[str, str], method: str, key: str, done: str) -> None:
    with NodeCalls(read_connection(connection), MISSING) as calls:
        found = calls.call(KeysStub, method, KeyRequest(key=_read(key)))
    for line in message_lines(found):
        click.echo(line)
    _end(found, done)


def _end(found: KeysResponse, done: str) -> None:
    """Print how many members have done it. Raises CommandError when not all have."""
    count = found.num_responses - found.num_errors
    text = f"{count} of {found.num_nodes} members {done}"
    if count < found.num_nodes:
        raise CommandError(f"{text}; repeat it when the others are back")
    click.echo(text)


def key_lines(found: KeysResponse) -> list[str]:
    """The keys for people, those that most members have first."""
    rows: list[list[str]] = [["key", "members", "encrypt with it"]]
    for key, count in sorted(
        found.keys.items(), key=lambda item: (-found.primary_keys.get(item[0], 0), -item[1], item[0])
    ):
        rows.append([printable(key), f"{count} of {found.num_nodes}", str(found.primary_keys.get(key, 0))])
    return aligned(rows)


def message_lines(found: Any) -> Iterator[str]:
    for name, text in sorted(found.messages.items()):
        yield f"{printable(name)}: {printable(text)}"
