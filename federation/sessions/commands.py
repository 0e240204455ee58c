"""The commands `gmqttctl drain`, `undrain` and `sessions`."""

# not a core: commands
from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

import click

from broker.api.transcoding import as_values
from federation.services import SESSIONS
from federation.sessions.drain import DRAINED, RATE_DEFAULT, RATE_MAX, SERVING
from federation.sessions.pb.sessions_pb2 import DrainStatus
from gmqttctl.command import Command, Group
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import CommandError, NodeError
from gmqttctl.listing import confirm, listing, showing, yes_option
from gmqttctl.node_calls import NodeCalls
from gmqttctl.node_commands import client_argument, client_since, client_state, expiry
from gmqttctl.output import Column, Output, output_options
from gmqttctl.service import CLIENTS
from gmqttctl.text import duration, printable

LOOK_SECONDS: Final = 1.0
UNKNOWN: Final = "unknown"  # the state of a session that a node has not heard of


@click.command(cls=Command, example="gmqttctl drain node1 --wait --yes")
@connection_options
@yes_option
@click.option(
    "--rate",
    type=click.IntRange(1, RATE_MAX),
    default=RATE_DEFAULT,
    show_default=True,
    help="Clients and sessions a second; workers of a node share it, and it is no less than their number.",
)
@click.option("--wait", is_flag=True, help="Wait until the node is drained, and show how far it is each second.")
@click.option("--status", is_flag=True, help="Show how far the drain is; begin none.")
@output_options
@click.argument("node", default="")
def drain(
    connection: dict[str, str], output: Output, is_sure: bool, rate: int, wait: bool, status: bool, node: str
) -> None:
    """Give the clients and sessions of NODE to other nodes, before it is stopped. Without NODE, --server names it alone."""
    if not status:
        place = printable(node or connection["servers"])
        confirm(f"Disconnect the clients of {place}, and give their sessions to other nodes?", is_sure)
    with _calls(connection, node) as calls:
        if status:
            found = calls.call(SESSIONS, "GetDrain")
        else:
            found = calls.call(SESSIONS, "Drain", {"rate": rate})
        _show(output, found)
        while wait and found.state != DRAINED:
            time.sleep(LOOK_SECONDS)
            found = calls.call(SESSIONS, "GetDrain")
            _show(output, found)
            if found.state == SERVING:
                raise CommandError("the drain was ended meanwhile")


@click.command(cls=Command, example="gmqttctl undrain node1")
@connection_options
@output_options
@click.argument("node", default="")
def undrain(connection: dict[str, str], output: Output, node: str) -> None:
    """Let NODE take clients again. Without NODE, --server names it alone."""
    with _calls(connection, node) as calls:
        _show(output, calls.call(SESSIONS, "Undrain"))


@click.command(cls=Command, example="gmqttctl sessions move sensor-17 --to node2 --yes")
@connection_options
@yes_option
@click.option("--to", "node_name", default="", metavar="NODE", help="The node that gets it.  [default: by a hash]")
@click.argument("client_id")
def move(connection: dict[str, str], is_sure: bool, node_name: str, client_id: str) -> None:
    """Give the session of CLIENT_ID to another node, with all that waits in it, and close its connection. A client of MQTT 5 is
    told to use another server."""
    confirm(f"Disconnect {printable(client_id)} and move its session?", is_sure)
    with NodeCalls(read_connection(connection)) as calls:
        found = calls.call(SESSIONS, "Move", {"client_id": client_id, "node_name": node_name})
    click.echo(f"the session of {printable(client_id)} goes to {printable(found.node_name)}")


SESSION_COLUMNS: Final = (
    Column("client", "client_id"),
    Column("state", lambda item: "short" if item["short"] else item["state"]),
    Column("home"),
    Column("copies", lambda item: [keeper["node_name"] for keeper in item["keepers"] if keeper["whole"]]),
    Column("not whole", lambda item: [keeper["node_name"] for keeper in item["keepers"] if not keeper["whole"]]),
    Column("waits for"),
    Column("epoch", lambda item: "" if item["counter"] == "0" else f"{item['counter']} {item['store_id']}"),
)


@click.group(cls=Group)
def sessions() -> None:
    """The sessions of clients among the nodes."""


sessions.add_command(move)
sessions.add_command(
    showing(
        "show",
        "Show where the session of a client is, and who has copies of it, as far as one node knows; of several servers, the "
        "first that knows it. Its state is short where there are fewer whole copies than there should be.",
        SESSIONS,
        "GetSession",
        SESSION_COLUMNS,
        "gmqttctl sessions show sensor-17",
        (client_argument(),),
        is_known=lambda values: values["state"] != UNKNOWN,
    )
)
sessions.add_command(
    listing(
        "list",
        "List the sessions of one node: what waits in each, and how long it stays.",
        CLIENTS,
        "List",
        "clients",
        (
            Column("client", "client_id"),
            Column("state", client_state),
            Column("since", client_since),
            Column("expiry", expiry),
            Column("subscriptions", "subscriptions_current"),
            Column("queued", "queue_len"),
            Column("at most", "max_queue"),
            Column("in flight", "inflight_len"),
            Column("dropped", "message_dropped"),
        ),
        "gmqttctl sessions list --away",
        (
            click.Argument(["client_id"], default="", metavar="[PREFIX]"),
            click.Option(
                ["--connected/--away", "connected"], default=None, help="Only of clients that are connected, or away."
            ),
        ),
        empty="no sessions",
        key=("client_id",),
    )
)


def _calls(connection: dict[str, str], node: str) -> NodeCalls:
    """Of one node, by its name where it is given. Of several addresses, the first that answers would be drained."""
    servers = read_connection(connection)
    if not node and len(servers.servers) != 1:
        raise CommandError(
            f"--server names {len(servers.servers)} nodes; say which one is meant: its name, or one address"
        )
    faults: list[str] = []
    for server in servers.servers:
        calls = NodeCalls(replace(servers, servers=(server,)))
        if not node:
            return calls
        try:
            name = calls.call(SESSIONS, "GetDrain").node_name
        except NodeError as error:
            faults.append(str(error))
        else:
            if name == node:
                return calls
            faults.append(f"{server} is {printable(name)}")
        calls.close()
    raise CommandError(f"--server has no address of the node {printable(node)}: {'; '.join(faults)}")


def _show(output: Output, status: DrainStatus) -> None:
    output.show_text(as_values(status), lambda _: [status_line(status, time.time())])


def status_line(status: DrainStatus, unix_time: float) -> str:
    text = f"{printable(status.node_name)}: {status.state} for {duration(unix_time - status.since.seconds)}"
    if status.state != SERVING:  # then they stay
        text += f", {status.clients_left} clients and {status.sessions_left} sessions are left"
    return text + (f"; waits for {printable(status.waits_for)}" if status.waits_for else "")
