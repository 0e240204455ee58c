"""The commands `gmqttctl list_members` and `set_tags`."""

# not a core: commands
from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Final

import click
from google.protobuf.empty_pb2 import Empty

from broker.api.transcoding import as_values
from federation.pb.federation_pb2 import Member, SetTagsRequest, Status
from federation.pb.federation_pb2_grpc import MembershipStub
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import CommandError
from gmqttctl.node_calls import NodeCalls
from gmqttctl.text import aligned, duration, printable

MISSING: Final = "it is in no federation; turn its plugin federation on"
HEAD: Final = ("node", "address", "status", "since", "round trip", "zone", "tags")


@click.command()
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_members(connection: dict[str, str], as_json: bool) -> None:
    """List the members of the federation, as one node sees them."""
    with NodeCalls(read_connection(connection), MISSING) as calls:
        found = calls.call(MembershipStub, "ListMembers", Empty())
    if as_json:
        click.echo(json.dumps(as_values(found), indent=2, ensure_ascii=False))
        return
    for line in member_lines(found.members, time.time()):
        click.echo(line)


@click.command()
@connection_options
@click.option("--delete", "names", multiple=True, metavar="NAME", help="A tag to delete first; may be repeated.")
@click.argument("tags", nargs=-1, metavar="[NAME=VALUE]...")
def set_tags(connection: dict[str, str], names: tuple[str, ...], tags: tuple[str, ...]) -> None:
    """Change tags of one node, which keeps them until its process ends, and show all of them."""
    request = SetTagsRequest(delete=names)
    for text in tags:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{text!r} is no NAME=VALUE")
        request.tags[name] = value
    servers = read_connection(connection)
    if len(servers.servers) != 1:
        raise CommandError(f"--servers names {len(servers.servers)} nodes; give the address of the one that is meant")
    with NodeCalls(servers, MISSING) as calls:
        found = calls.call(MembershipStub, "SetTags", request)
    for name, value in sorted(found.tags.items()):
        click.echo(f"{printable(name)}={printable(value)}")


def member_lines(members: Iterable[Member], unix_time: float) -> list[str]:
    """The members for people."""
    rows: list[Sequence[str]] = [HEAD]
    rows += [[printable(cell) for cell in _row(member, unix_time)] for member in members]
    return aligned(rows)


def _row(member: Member, unix_time: float) -> Sequence[str]:
    status = Status.Name(member.status).removeprefix("STATUS_").lower()
    has_estimate = member.HasField("round_trip_seconds")
    return (
        member.name,
        member.addr,
        "suspected" if member.suspected else status,
        duration(unix_time - member.since.seconds),
        f"{member.round_trip_seconds * 1000:.1f} ms" if has_estimate else "-",
        member.zone or "-",
        " ".join(f"{name}={value}" for name, value in sorted(member.tags.items())),
    )
