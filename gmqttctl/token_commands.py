"""The commands `gmqttctl tokens`."""

from __future__ import annotations

import click

from gmqttctl.command import Group
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.listing import changing, listing, request_of
from gmqttctl.output import Column
from gmqttctl.service import TOKENS


@click.group(cls=Group)
def tokens() -> None:
    """Tokens of the API of one node. Each node has a file of its own; the first token is made by gmqttd token create."""


tokens.add_command(
    listing(
        "list",
        "List the tokens by their names.",
        TOKENS,
        "List",
        "tokens",
        (Column("name"), Column("role"), Column("created"), Column("expires", "expires_at")),
        "gmqttctl tokens list",
        empty="no tokens",
    )
)


def expires_in(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Raises click.BadParameter."""
    from broker.api.token_command import parse_expiry
    from broker.server.command_fault import CommandFault

    try:
        return None if text is None else round(parse_expiry(text).total_seconds())
    except CommandFault as fault:
        raise click.BadParameter(fault.message) from None


@tokens.command(example="gmqttctl tokens create --role read --name grafana --expires 90d")
@connection_options
@click.option("--role", type=click.Choice(("read", "write", "admin")), required=True, help="What the token may do.")
@click.option("--name", help="Name of the token.  [default: the role and a number]")
@click.option(
    "--expires",
    "expires_seconds",
    metavar="TIME",
    callback=expires_in,
    help="When it expires, from now: 90d or 12h.  [default: never]",
)
def create(connection: dict[str, str], **given: object) -> None:
    """Make a token and print it. It is shown this once: the node has its hash. It counts at once."""
    from gmqttctl.node_calls import NodeCalls

    with NodeCalls(read_connection(connection)) as calls:
        click.echo(calls.call(TOKENS, "Create", request_of(given)).token)


tokens.add_command(
    changing(
        "delete",
        "Delete a token by its name. It counts at once.",
        TOKENS,
        "Delete",
        "gmqttctl tokens delete grafana --yes",
        (click.Argument(["name"]),),
        done="{name} is deleted",
        asks="Delete the token {name}?",
    )
)
