"""The commands `gmqttctl log …`. They need no Spark."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from gmqttctl.command import Group
from gmqttctl.connection_options import connection_options
from gmqttctl.output import Output, format_options, output_options
from gmqttctl.text import printable

POLL_SECONDS: Final = 0.5  # between two looks for new records
WHERE_HELP: Final = (
    "earliest, latest, an instant (ISO 8601 with zone, or Unix milliseconds), or offsets by node as JSON."
)


@click.group(cls=Group, default="describe")
def log() -> None:
    """Look at event logs, follow and export them."""


@log.command(example="gmqttctl log describe")
@connection_options
@output_options
def describe(connection: dict[str, str], output: Output) -> None:
    """Describe the log of each node: its contents, its holds, and its faults."""
    from pipeline.log_text import describe_logs, description_lines

    output.repeat(lambda: output.show_text(describe_logs(connection), description_lines))


topics_option = click.option(
    "--topics", multiple=True, metavar="FILTER", help="Only topics that match this filter. May be given more than once."
)
node_option = click.option(
    "--node", "nodes", multiple=True, metavar="NAME", help="Only this node. May be given more than once."
)


@log.command(example="gmqttctl log tail --topics 'sensors/#' --node node1")
@connection_options
@topics_option
@node_option
@click.option(
    "-n",
    "--records",
    "count",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Look first at this number of records of each node, the newest.",
)
@click.option("-f/-F", "--follow/--no-follow", default=True, show_default=True, help="Go on until Ctrl-C.")
@format_options
def tail(
    connection: dict[str, str],
    topics: tuple[str, ...],
    nodes: tuple[str, ...],
    count: int,
    follow: bool,
    output: Output,
) -> None:
    """Print the newest records of all nodes, and those that come."""
    from pipeline.log_tail import Tail
    from pipeline.log_text import record_fields, record_line

    tail = Tail(connection, topics, nodes, count)
    try:
        while True:
            for node, log_id, record in tail.look():
                if output.is_for_people:
                    output.line(record_line(node, record))
                elif output.format == "name":
                    output.line(printable(record.topic))
                else:
                    output.document(record_fields(node, log_id, record))
            for notice in tail.take_notices():
                click.echo(f"gmqttctl: {notice}", err=True)
            if not tail.is_behind:
                if not follow:
                    break
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        pass
    finally:
        tail.close()


@log.command(example="gmqttctl log export day.jsonl --from 2026-11-22T00:00:00Z --to 2026-11-23T00:00:00Z")
@connection_options
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@topics_option
@click.option("--from", "start", default="earliest", show_default=True, metavar="WHERE", help=WHERE_HELP)
@click.option(
    "--to", "end", default="latest", show_default=True, metavar="WHERE", help="As --from; that record is left out."
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["jsonl", "parquet"]),
    help="JSON lines or Parquet.  [default: by the name of FILE]",
)
@click.option("--allow-partial", is_flag=True, help="Export the other nodes where one is away or keeps no log.")
def export(
    connection: dict[str, str],
    file: Path,
    topics: tuple[str, ...],
    start: str,
    end: str,
    file_format: str | None,
    allow_partial: bool,
) -> None:
    """Write the records of all nodes to FILE, by node and offset. Run again after a stop, it goes on."""
    from pipeline.log_export import Export
    from pipeline.options import read_batch_options

    file_format = file_format or file.suffix.removeprefix(".")
    if file_format not in ("jsonl", "parquet"):
        raise click.BadParameter(f'"{file}" ends in neither .jsonl nor .parquet; give --format', param_hint="FILE")
    request = {"topics": ",".join(topics), **_position("starting", start), **_position("ending", end)}
    options = read_batch_options({**connection, **request, "allowPartial": str(allow_partial).lower()})
    with closing(Export(file, file_format, request, options)) as export:
        if export.done:
            click.echo(f"going on after {export.done:,} of {export.records:,} records", err=True)
        with click.progressbar(
            length=export.records, label=file.name, file=sys.stderr, show_pos=True, update_min_steps=1_000
        ) as bar:
            bar.update(export.done)
            export.run(bar.update)
        click.echo(f"{file}: {export.records:,} records of {len(export.ranges)} logs were read", err=True)


def _position(which: str, text: str) -> dict[str, str]:
    """--from or --to as an option of the data source."""
    is_offsets = text in ("earliest", "latest") or text.startswith("{")
    return {f"{which}{'Offsets' if is_offsets else 'Timestamp'}": text}
