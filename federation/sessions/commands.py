"""The commands `gmqttctl drain`, `undrain` and `session`."""

# not a core: commands
from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any, Final

import click
from google.protobuf.empty_pb2 import Empty

from broker.api.transcoding import as_values
from federation.sessions.drain import DRAINED, RATE_DEFAULT, RATE_MAX, SERVING
from federation.sessions.pb.sessions_pb2 import DrainRequest, DrainStatus, GetSessionRequest, Session
from federation.sessions.pb.sessions_pb2_grpc import SessionsStub
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import CommandError, NodeError
from gmqttctl.node_calls import NodeCalls
from gmqttctl.text import duration, printable

MISSING: Final = "it is in no federation; turn its plugin federation on"
LOOK_SECONDS: Final = 1.0


@click.command()
@connection_options
@click.option(
    "--rate",
    type=click.IntRange(1, RATE_MAX),
    default=RATE_DEFAULT,
    show_default=True,
    help="Clients and sessions a second.",
)
@click.option("--wait", is_flag=True, help="Wait until the node is drained, and show how far it is each second.")
@click.option("--status", is_flag=True, help="Show how far the drain is; begin none.")
@click.argument("node", default="")
def drain(connection: dict[str, str], rate: int, wait: bool, status: bool, node: str) -> None:
    """Give the clients and sessions of NODE to other nodes, before it is stopped. Without NODE, --servers names it alone."""
    with _calls(connection, node) as calls:
        if status:
            found = calls.call(SessionsStub, "GetDrain", Empty())
        else:
            found = calls.call(SessionsStub, "Drain", DrainRequest(rate=rate))
        click.echo(status_line(found, time.time()))
        while wait and found.state != DRAINED:
            time.sleep(LOOK_SECONDS)
            found = calls.call(SessionsStub, "GetDrain", Empty())
            click.echo(status_line(found, time.time()))
            if found.state == SERVING:
                raise CommandError("the drain was ended meanwhile")


@click.command()
@connection_options
@click.argument("node", default="")
def undrain(connection: dict[str, str], node: str) -> None:
    """Let NODE take clients again. Without NODE, --servers names it alone."""
    with _calls(connection, node) as calls:
        click.echo(status_line(calls.call(SessionsStub, "Undrain", Empty()), time.time()))


@click.command()
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("client_id")
def session(connection: dict[str, str], as_json: bool, client_id: str) -> None:
    """Show where the session of CLIENT_ID is, as far as one node knows."""
    with NodeCalls(read_connection(connection), MISSING) as calls:
        found = calls.call(SessionsStub, "GetSession", GetSessionRequest(client_id=client_id))
    if as_json:
        click.echo(json.dumps(as_values(found), indent=2, ensure_ascii=False))
    else:
        click.echo(session_line(found))


def _calls(connection: dict[str, str], node: str) -> NodeCalls:
    """Of one node, by its name where it is given. Of several addresses, the first that answers would be drained."""
    servers = read_connection(connection)
    if not node and len(servers.servers) != 1:
        raise CommandError(
            f"--servers names {len(servers.servers)} nodes; say which one is meant: its name, or one address"
        )
    faults: list[str] = []
    for server in servers.servers:
        calls = NodeCalls(replace(servers, servers=(server,)), MISSING)
        if not node:
            return calls
        try:
            name = calls.call(SessionsStub, "GetDrain", Empty()).node_name
        except NodeError as error:
            faults.append(str(error))
        else:
            if name == node:
                return calls
            faults.append(f"{server} is {printable(name)}")
        calls.close()
    raise CommandError(f"--servers has no address of the node {printable(node)}: {'; '.join(faults)}")


def status_line(status: DrainStatus, unix_time: float) -> str:
    text = f"{printable(status.node_name)}: {status.state} for {duration(unix_time - status.since.seconds)}"
    text += f", {status.clients_left} clients and {status.sessions_left} sessions are left"
    return text + (f"; waits for {printable(status.waits_for)}" if status.waits_for else "")


def session_line(found: Any) -> str:
    """The session of a client for people."""
    assert isinstance(found, Session)
    parts = [f"{printable(found.client_id)}: {found.state}"]
    if found.home:
        parts.append(f"home {printable(found.home)}")
    if found.counter:
        parts.append(f"epoch {found.counter} {printable(found.store_id)}")
    if found.waits_for:
        parts.append(f"waits for {', '.join(map(printable, found.waits_for))}")
    parts += [
        f"copy at {printable(keeper.node_name)}, {'whole' if keeper.whole else 'not whole'}" for keeper in found.keepers
    ]
    if found.short:
        parts.append("fewer whole copies than there should be")
    return "; ".join(parts)
