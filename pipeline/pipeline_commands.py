"""The commands `gmqttctl pipeline …`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from gmqttctl.command import Group
from gmqttctl.connection_options import connection_options
from gmqttctl.output import Output, output_options

DIR_DEFAULT: Final = "pipeline-data"


@click.group(cls=Group)
def pipeline() -> None:
    """Run jobs over the event logs: archive, rollup, alerts and others."""


dir_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=DIR_DEFAULT,
    show_default=True,
    envvar="GMQTTCTL_DIR",
    help="Holds tables, checkpoints and pictures.",
)


@pipeline.command("list", example="gmqttctl pipeline list")
@output_options
def list_(output: Output) -> None:
    """List the pipelines and their options."""
    from pipeline.registry import pipelines

    shown = {
        name: {
            "summary": each.summary,
            "options": {option: {"default": default, "meaning": doc} for option, default, doc in each.documentation()},
        }
        for name, each in pipelines().items()
    }
    output.show_text(shown, pipeline_lines)


def pipeline_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    """The pipelines for people."""
    for name, each in shown.items():
        yield f"{name}: {each['summary']}"
        for option, about in each["options"].items():
            yield f"    {option}={about['default']}  {about['meaning']}"


@pipeline.command(example="gmqttctl pipeline run archive --every 10s")
@click.argument("name")
@connection_options
@dir_option
@click.option("--once", is_flag=True, help="Read what there is now, and end. The default.")
@click.option("--every", metavar="DURATION", help="Go on until Ctrl-C, with a batch in each such time, as 10s.")
@click.option("--master", metavar="URL", help="Spark master; local[2] when it is not given, or that of spark-submit.")
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the pipeline (see `list`), or of the data source, such as topics=a/#.",
)
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Setting of Spark, such as spark.driver.memory=2g.")
def run(
    name: str,
    connection: dict[str, str],
    folder: Path,
    once: bool,
    every: str | None,
    master: str | None,
    options: tuple[str, ...],
    conf: tuple[str, ...],
) -> None:
    """Run the pipeline NAME. Each message counts once, also after a crash: a run goes on where the last one ended."""
    from pipeline.errors import OptionError
    from pipeline.options import read_duration
    from pipeline.runner import Run, read_assignments
    from pipeline.runner import run as run_pipeline

    if once and every is not None:
        raise OptionError("--every", every, "is given beside --once; give one of them")
    wanted = Run(
        name,
        folder,
        {**connection, **read_assignments("-o", options)},
        0.0 if every is None else read_duration("--every", every, "10s"),
        master,
        read_assignments("--conf", conf),
    )
    run_pipeline(wanted, stop_signals(), click.echo)


def stop_signals() -> threading.Event:
    """Set by SIGINT and SIGTERM; a second one ends the process as usual."""
    stop = threading.Event()

    def set_stop(number: int, _frame: Any) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, set_stop)
    return stop


@pipeline.command(example="gmqttctl pipeline status")
@connection_options
@dir_option
@output_options
def status(connection: dict[str, str], folder: Path, output: Output) -> None:
    """Show how far each query has read at each node."""
    from pipeline.status import status as find_status
    from pipeline.status import status_lines

    output.repeat(lambda: output.show_text(find_status(folder, connection), status_lines))


@pipeline.command(example="gmqttctl pipeline schemas plant.yml --topic plant/a/climate --payload - < message.bin")
@click.argument("file")
@click.option("--topic", default="", help="Only schemas whose filter has this topic; needs --payload.")
@click.option("--payload", type=click.File("rb"), help="Decode the content of this file; - for standard input.")
@output_options
def schemas(file: str, topic: str, payload: BinaryIO | None, output: Output) -> None:
    """Check the schemas of job decode in FILE, and show their tables; or try a payload."""
    from pipeline.errors import OptionError
    from pipeline.schema_file import load_schemas, schema_lines, shown

    if (payload is None) != (not topic):
        raise OptionError("--topic", topic, "belongs to --payload; give both or none")
    found = load_schemas(file)
    output.show_text(shown(found, topic, None if payload is None else payload.read()), schema_lines)


@pipeline.command(example="gmqttctl pipeline undecoded decoded-climate")
@click.argument("table")
@dir_option
@output_options
def undecoded(table: str, folder: Path, output: Output) -> None:
    """Show why payloads of TABLE did not decode, the most frequent reasons first."""
    from pipeline.undecoded import undecoded as find_undecoded
    from pipeline.undecoded import undecoded_lines

    output.show_text(find_undecoded(folder / table), undecoded_lines)


@pipeline.command(example="gmqttctl pipeline plot --window 1m")
@dir_option
@click.option("--levels", type=click.IntRange(1), default=1, show_default=True, help="Levels of the topics.")
@click.option("--window", default="1m", show_default=True, help="Length of a window.")
@click.argument("table", required=False)
def plot(folder: Path, levels: int, window: str, table: str | None) -> None:
    """Draw a rollup as rollup.png and rollup.svg. TABLE is its folder, where --dir has more than one."""
    from pipeline.plot import plot_rollup

    for path in plot_rollup(folder, table, levels, window):
        click.echo(f"written: {path}")
