"""The command `gmqttctl list_queues`, with the name of rabbitmqctl."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import click

from broker.api.transcoding import as_values
from federation.links.pb import link_status_pb2 as pb
from federation.links.pb.link_status_pb2_grpc import GroupQueuesStub
from federation.links.status_commands import MISSING
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.node_calls import NodeCalls
from gmqttctl.text import aligned, printable

HEAD: Final = ("group", "policy", "messages", "bytes", "oldest", "members", "borrowers", "upstreams", "dropped")


@click.command()
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_queues(connection: dict[str, str], as_json: bool) -> None:
    """List the queues of shared groups on one node."""
    with NodeCalls(read_connection(connection), MISSING) as calls:
        found = calls.call(GroupQueuesStub, "List", pb.ListGroupQueuesRequest())
    if as_json:
        click.echo(json.dumps(as_values(found), indent=2, ensure_ascii=False))
        return
    for line in queue_lines(found):
        click.echo(line)


def queue_lines(found: pb.ListGroupQueuesResponse) -> list[str]:
    """The answer of a node for people."""
    if not found.queues:
        return ["no queues: a policy with apply-to queues makes them"]
    rows: list[Sequence[str]] = [HEAD]
    for queue in found.queues:
        cells = (
            queue.group,
            queue.policy or "-",
            str(queue.messages),
            str(queue.bytes),
            f"{queue.oldest_seconds:.0f} s" if queue.HasField("oldest_seconds") else "-",
            str(queue.members),
            str(queue.borrowers),
            str(queue.upstreams),
            str(queue.dropped),
        )
        rows.append([printable(cell) for cell in cells])
    return aligned(rows)
