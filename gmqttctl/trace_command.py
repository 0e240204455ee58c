"""The command `gmqttctl trace`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import click

from broker.api.trace_command import left_out, line_text
from gmqttctl.command import Command
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import CommandError
from gmqttctl.node_calls import NodeCalls
from gmqttctl.service import TRACES

WAIT_SECONDS: Final = 5


@click.command(cls=Command, example="gmqttctl trace --client sensor-17 --seconds 300")
@connection_options
@click.option("--client", "client_id", metavar="ID", help="The client with this client id, now or when it connects.")
@click.option("--topic", "topic_filter", metavar="FILTER", help="Messages whose topic matches.")
@click.option("--addr", "remote_addr", metavar="ADDR", help="Clients at this IP address or IP:PORT.")
@click.option(
    "--seconds", type=click.IntRange(1, 3600), default=60, show_default=True, help="When the trace ends by itself."
)
def trace(connection: dict[str, str], seconds: int, **wanted: str | None) -> None:
    """Print the packets of a client, a topic filter or an address as they pass one node. Ctrl-C ends it."""
    selection = {name: value for name, value in wanted.items() if value}
    if len(selection) != 1:
        raise click.UsageError("one of --client, --topic and --addr is needed")
    with NodeCalls(read_connection(connection)) as calls, suppress(KeyboardInterrupt):
        trace_id = calls.call(TRACES, "Start", {**selection, "seconds": seconds, "log": False}).id
        try:
            for line in lines_of(calls, trace_id):
                click.echo(line)
        finally:
            with suppress(CommandError):
                calls.call(TRACES, "Delete", {"id": trace_id})


def lines_of(calls: NodeCalls, trace_id: str) -> Iterator[str]:
    last = 0
    while True:
        page = calls.values(TRACES, "Lines", {"id": trace_id, "after": str(last), "wait_seconds": WAIT_SECONDS})
        for line in page["lines"]:
            number = int(line["number"])
            yield from left_out(number - last - 1)
            yield line_text(line)
            last = number
        if page["ended"]:
            yield from left_out(int(page["packets"]) - last)
            return
