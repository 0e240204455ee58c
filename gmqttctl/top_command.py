"""The command `gmqttctl top`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import click

from gmqttctl.command import Command
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import CommandError
from gmqttctl.node_calls import NodeCalls
from gmqttctl.output import Column, Item, Output, format_options
from gmqttctl.service import CLIENTS, NODE, TOPICS
from gmqttctl.text import duration, printable, size
from gmqttctl.topic_commands import seconds_option

QUEUES_LOOKED_AT: Final = 1000  # clients of which the fullest queues are shown


@click.command(cls=Command, example="gmqttctl top --rows 5")
@connection_options
@format_options
@seconds_option
@click.option("--rows", type=click.IntRange(1, 100), default=10, show_default=True, help="Rows of each table.")
@click.option("-n", "--count", type=click.IntRange(1), help="Look so often, and end.  [default: until Ctrl-C]")
def top(connection: dict[str, str], output: Output, seconds: int, rows: int, count: int | None) -> None:
    """Show rates, what waits, and the busiest topics and clients of one node, again and again."""
    with NodeCalls(read_connection(connection)) as calls, suppress(KeyboardInterrupt):
        before = calls.values(NODE, "Get")
        while count is None or count > 0:
            try:
                found = calls.values(TOPICS, "Traffic", {"seconds": seconds, "limit": rows})
                clients = calls.values(CLIENTS, "List", {"page_size": QUEUES_LOOKED_AT})["clients"]
                node = calls.values(NODE, "Get")
            except CommandError as error:
                if count is not None:
                    raise
                click.echo(f"gmqttctl: {printable(str(error))}", err=True)
                continue
            fullest = sorted(clients, key=lambda client: -client["queue_len"] - client["inflight_len"])[:rows]
            values = {**rates(before, node), "traffic": found, "queues": [each for each in fullest if waits(each)]}
            if output.is_for_people:
                if sys.stdout.isatty():
                    click.clear()
                _show(output, values)
            else:
                output.document(values)
            before = node
            count = None if count is None else count - 1


def waits(client: Item) -> bool:
    return bool(client["queue_len"] or client["inflight_len"])


def rates(before: Item, after: Item) -> dict[str, Any]:
    """Return what happened each second between two answers of NodeService.Get, and what is now."""
    seconds = max(after["uptime_seconds"] - before["uptime_seconds"], 1e-3)

    def total(node: Item, name: str) -> int:
        found = node[name]
        values: Sequence[object] = (
            list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else [found]
        )
        return sum(int(str(value)) for value in values)

    names = ("messages_received", "messages_sent", "bytes_received", "bytes_sent", "dropped")
    found = {f"{name}_each_second": (total(after, name) - total(before, name)) / seconds for name in names}
    kept = ("node_name", "uptime_seconds", "clients_connected", "sessions", "messages_waiting", "not_ready")
    return {**{name: after[name] for name in kept}, **found}


def _show(output: Output, values: Item) -> None:
    found = values["traffic"]
    seconds = found["seconds"]
    name = printable(values["node_name"]) or "the node"
    output.line(
        f"{name}  up {duration(values['uptime_seconds'])}  clients {values['clients_connected']}  "
        f"sessions {values['sessions']}  waiting {values['messages_waiting']}"
    )
    output.line(
        f"messages/s in {values['messages_received_each_second']:.1f} out {values['messages_sent_each_second']:.1f} "
        f"dropped {values['dropped_each_second']:.1f}  bytes/s in {size(round(values['bytes_received_each_second']))} "
        f"out {size(round(values['bytes_sent_each_second']))}"
    )
    rate_columns = (
        Column("messages/s", lambda item: f"{int(item['messages']) / seconds:.1f}"),
        Column("bytes/s", lambda item: size(round(int(item["bytes"]) / seconds))),
    )
    for head, items, columns in (
        ("topic", found["topics"], (*rate_columns, Column("topic", "topic_name"))),
        ("publisher", found["clients"], (*rate_columns, Column("client", "client_id"))),
        (
            "queue",
            values["queues"],
            (Column("queued", "queue_len"), Column("in flight", "inflight_len"), Column("client", "client_id")),
        ),
    ):
        if items:
            output.line("")
            output.line(f"busiest: {head}")
            for line in output.table(items, columns):
                output.line(line)
