"""The command `gmqttctl list_clients`."""

# not a core: a command
from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from broker.api.pb.admin_pb2 import Client, ListClientRequest
from broker.api.pb.admin_pb2_grpc import ClientServiceStub
from broker.api.transcoding import as_values
from broker.routing.subscriber import GROUP_QUEUE_PREFIX
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.node_calls import NodeCalls
from gmqttctl.text import aligned, duration, printable

MISSING: Final = "it does not show its clients; turn its plugin admin on"
PAGE_SIZE: Final = 1000
HEAD: Final = ("client", "user", "address", "mqtt", "state", "since", "in flight", "queued", "dropped", "link of")
PROTOCOLS: Final = {3: "3.1", 4: "3.1.1", 5: "5.0"}


@click.command()
@connection_options
@click.option("--link", is_flag=True, help="Only links: those of other domains, and those of the node itself.")
@click.option("--connected", is_flag=True, help="Only clients that are connected.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("prefix", default="")
def list_clients(connection: dict[str, str], link: bool, connected: bool, as_json: bool, prefix: str) -> None:
    """List the clients with a session on one node, whose client id begins with PREFIX."""
    request = ListClientRequest(page_size=PAGE_SIZE, client_id=prefix)
    if link:
        request.link = True
    if connected:
        request.connected = True
    found: dict[str, Client] = {}
    with NodeCalls(read_connection(connection), MISSING) as calls:
        while True:
            request.page += 1
            page = calls.call(ClientServiceStub, "List", request)
            # Between two pages clients come and go: one may move to the next page.
            found.update((client.client_id, client) for client in page.clients)
            if len(page.clients) < PAGE_SIZE:
                break
    if as_json:
        values = {"clients": [as_values(client) for client in found.values()]}
        click.echo(json.dumps(values, indent=2, ensure_ascii=False))
        return
    for line in client_lines(found.values(), time.time()):
        click.echo(line)


def client_lines(clients: Iterable[Client], unix_time: float) -> list[str]:
    """The clients for people."""
    rows: list[Sequence[str]] = [HEAD]
    rows += [[printable(cell) for cell in _row(client, unix_time)] for client in clients]
    return aligned(rows) if len(rows) > 1 else ["no clients"]


def _row(client: Any, unix_time: float) -> Sequence[str]:
    is_away = client.HasField("disconnected_at")
    state = "queue" if client.client_id.startswith(GROUP_QUEUE_PREFIX) else "away" if is_away else "connected"
    since = client.disconnected_at if is_away else client.connected_at
    return (
        client.client_id,
        client.username or "-",
        client.remote_addr or "-",
        PROTOCOLS.get(client.version, "-"),
        state,
        duration(unix_time - since.seconds),
        str(client.inflight_len),
        str(client.queue_len),
        str(client.message_dropped),
        client.link_domain,
    )
