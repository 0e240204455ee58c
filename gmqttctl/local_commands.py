"""The commands of `gmqttd` that gmqttctl has too, as they are: certificates, which are files of one machine; and
the configuration, of a file and of a node."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping

import click

from broker.server import cli as node_cli
from gmqttctl.command import Command, Group
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import EXIT_FAILED, CommandError
from gmqttctl.output import Output, output_options
from gmqttctl.service import NODE
from gmqttctl.text import printable


def with_examples(name: str, group: click.Group, examples: Mapping[str, str]) -> Group:
    """A group of gmqttd with an example for each command."""
    made = Group(name, help=group.help)
    for each in group.commands.values():
        command = Command(
            each.name, params=each.params, callback=each.callback, help=each.help, example=examples[each.name or ""]
        )
        made.add_command(command)
    return made


cert = with_examples(
    "cert",
    node_cli.cert,
    {
        "create-ca": "gmqttctl cert create-ca",
        "create-node": "gmqttctl cert create-node node1",
        "show": "gmqttctl cert show node1.pem",
    },
)


@click.group(cls=Group, default="show")
def config() -> None:
    """The configuration of a node, and of a file."""


def node_yaml(connection: dict[str, str]) -> str:
    from gmqttctl.node_calls import NodeCalls

    with NodeCalls(read_connection(connection)) as calls:
        return str(calls.call(NODE, "GetConfiguration").yaml)


def file_yaml(file: str) -> str:
    """The effective configuration of a file. Raises CommandError with all its faults."""
    from broker.config.loader import load
    from broker.config.printer import effective_yaml

    found = load(file)
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    if found.settings is None:
        *others, last = found.faults
        for fault in others:
            click.echo(f"gmqttctl: {printable(str(fault))}", err=True)
        raise CommandError(str(last))
    return effective_yaml(found.settings)


@config.command(example="gmqttctl config show --server 10.0.0.1:8084")
@connection_options
@output_options
def show(connection: dict[str, str], output: Output) -> None:
    """Show the configuration that a node runs with, secrets hidden."""
    text = node_yaml(connection)
    if output.is_for_people or output.format == "yaml":
        output.line(text.rstrip("\n"))
    else:
        import yaml

        output.document(yaml.safe_load(text))


@config.command(example="gmqttctl config check gmqttd.yml")
@click.argument("file", metavar="FILE")
def check(file: str) -> None:
    """Check a configuration file, and name each fault with its line. Other files that it names are not read: gmqttd check does
    that, on the machine of the node."""
    file_yaml(file)
    click.echo(f"{file}: no fault")


@config.command(example="gmqttctl config diff gmqttd.yml")
@connection_options
@click.argument("file", metavar="FILE")
def diff(connection: dict[str, str], file: str) -> None:
    """Show what would change if the node ran with FILE. Secrets are not compared. Exit status 1 where they differ."""
    before, after = node_yaml(connection), file_yaml(file)
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), "node", file, lineterm=""))
    for line in lines:
        color = "red" if line.startswith("-") else "green" if line.startswith("+") else None
        click.echo(click.style(line, fg=color))
    if lines:
        sys.exit(EXIT_FAILED)
