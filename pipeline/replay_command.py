"""The command `gmqttctl replay`."""

from __future__ import annotations

from typing import Any

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from gmqttctl.command import Command
from gmqttctl.connection_options import connection_options
from gmqttctl.text import instant
from pipeline.options import instant_ns
from pipeline.pipeline_commands import dir_option, stop_signals


@click.command(
    cls=Command,
    example="gmqttctl replay --from 2026-11-22T10:00:00Z --to 2026-11-22T11:00:00Z --topic-map 'a/#=replay/a/#'",
)
@connection_options
@dir_option
@click.option("--from", "start", required=True, metavar="INSTANT", help="ISO 8601 with zone, or Unix milliseconds.")
@click.option("--to", "end", required=True, metavar="INSTANT", help="The first instant that is not wanted.")
@click.option(
    "--speed", type=click.FloatRange(0), default=1.0, show_default=True, help="10: ten times as fast; 0: no pauses."
)
@click.option(
    "--topic-map", multiple=True, metavar="OLD=NEW", help="house/#=replay/house/#. The first that fits counts."
)
@click.option("--topics", multiple=True, metavar="FILTER", help="Only topics that match this filter, of the log.")
@click.option("--source", type=click.Choice(["log", "archive"]), default="log", show_default=True, help="Where from.")
@click.option("--job", default="replay", show_default=True, help="Name of this replay. The same name goes on with it.")
@click.option("--node", default="", help="The node that publishes; any when it is not given.")
@click.option(
    "--master", default="local[2]", show_default=True, metavar="URL", help="Spark master, which sorts the messages."
)
def replay(start: str, end: str, job: str, **asked: Any) -> None:
    """Publish messages of the logs or of the archive again, in the order of their times. Each is published once: a run that
    was stopped or killed goes on when the same command is given again."""
    from pipeline.replay_run import Replay
    from pipeline.replay_run import replay as run_replay

    wanted = Replay(job, start_ns=instant_ns("--from", start), end_ns=instant_ns("--to", end), **asked)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("reading", total=max(1, wanted.end_ns - wanted.start_ns))

        def show(time_ns: int, count: int) -> None:
            text = f"{count} messages, at {instant(time_ns)}"
            bar.update(task, completed=time_ns - wanted.start_ns, description=text)

        state = run_replay(wanted, stop_signals(), show)
        if state.done:
            bar.update(task, completed=max(1, wanted.end_ns - wanted.start_ns))
    how = "done" if state.done else "stopped; the same command goes on"
    click.echo(f"replay {job}: {state.rows} messages published by node {state.node}; {how}")
