"""The commands `gmqttctl definitions from-rabbitmq` and `from-mosquitto`: read a file, print warnings, write definitions."""

# not a core: a command
from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from broker.server.private_file import PrivateFile
from federation.definitions.imports.imported import Imported, ImportFault
from federation.definitions.imports.mosquitto_bridges import import_bridges
from federation.definitions.imports.rabbitmq_config import import_config
from federation.definitions.imports.rabbitmq_definitions import APPLY_TO, import_definitions
from federation.definitions.upstream import ALL
from gmqttctl.command import Command

FILE_BYTES_MAX: Final = 64 * 2**20
STANDARD_INPUT: Final = "-"
_JSON: Final = re.compile(r'\s*\{\s*["}]')  # an Erlang tuple of such a file begins with an atom

output_option = click.option(
    "-f",
    "--file",
    "-o",
    "--output",
    "output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write here instead of to standard output. The file is readable by its owner only: it has passwords.",
)


@click.command(
    "from-rabbitmq", cls=Command, example="gmqttctl definitions from-rabbitmq - --file links.json < definitions.json"
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--apply-to",
    type=click.Choice(APPLY_TO),
    default=ALL,
    help="exchanges: no warnings of policies for queues.",
)
@output_option
def from_rabbitmq(file: str, apply_to: str, output: Path | None) -> None:
    """Make definitions of links from RabbitMQ's federation.

    FILE (- for standard input) is a definitions file (JSON, rabbitmqctl export_definitions) or an old rabbitmq.config with
    the section rabbitmq_federation (Erlang terms). Warnings on standard error say what has another meaning here, or none.
    """
    text = _read(file)
    _run(file, output, lambda: import_definitions(text, apply_to) if _JSON.match(text) else import_config(text))


@click.command(
    "from-mosquitto",
    cls=Command,
    example="gmqttctl definitions from-mosquitto - --file links.json < mosquitto.conf",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@output_option
def from_mosquitto(file: str, output: Path | None) -> None:
    """Make definitions of links from the bridges (connection …) of FILE, a mosquitto.conf (- for standard input).

    Warnings on standard error say what has another meaning here, or none.
    """
    text = _read(file)
    _run(file, output, lambda: import_bridges(text))


def _read(file: str) -> str:
    try:
        with click.open_file(file, "rb") as opened:
            data: bytes = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise click.ClickException(f"{_shown(file)}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise click.ClickException(f"{_shown(file)}: more than {FILE_BYTES_MAX} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{_shown(file)}: byte {error.start} is not UTF-8; save the file as UTF-8") from None


def _shown(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


def _printable(text: str) -> str:
    """Words of the file may have characters that would change a terminal."""
    return text if text.isprintable() else ascii(text)[1:-1]


def _run(file: str, output: Path | None, translate: Callable[[], Imported]) -> None:
    try:
        found = translate()
    except ImportFault as error:
        raise click.ClickException(f"{_shown(file)}: {_printable(str(error))}") from None
    for warning in found.warnings:
        click.echo(f"{_shown(file)}: {_printable(warning)}", err=True)
    text = json.dumps(found.document(), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        if found.has_passwords() and sys.stdout.isatty():
            raise click.ClickException("the definitions have passwords: write them into a file with --file FILE")
        click.echo(text, nl=False)
        return
    write_private(output, text)
    counts = f"{len(found.upstreams)} upstreams, {len(found.sets)} sets, {len(found.policies)} policies"
    click.echo(f"{output}: {counts}; {len(found.warnings)} warnings", err=True)


def write_private(output: Path, text: str) -> None:
    try:
        PrivateFile(str(output)).change(text.encode)
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror or error}") from None
