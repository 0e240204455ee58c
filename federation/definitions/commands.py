"""The commands of `gmqttctl` for definitions of links, with the names and arguments of rabbitmqctl."""

# not a core: a command
from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Final

import click
from google.protobuf import json_format
from google.protobuf.empty_pb2 import Empty

from broker.api.errors import ApiError
from broker.api.strict_json import check_object
from broker.api.transcoding import as_values
from federation.definitions.entry import PARAMETERS
from federation.definitions.imports.commands import output_option, write_private
from federation.definitions.pb import definitions_pb2 as pb
from federation.definitions.pb.definitions_pb2_grpc import (
    DefinitionsServiceStub,
    ParameterServiceStub,
    PolicyServiceStub,
)
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.node_calls import NodeCalls
from gmqttctl.text import aligned, printable

MISSING: Final = "it has no definitions of links; turn its plugin links on"
FILE_BYTES_MAX: Final = 4 * 2**20
"""A node takes requests of this size."""

STANDARD_INPUT: Final = "-"

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
component_argument = click.argument("component", metavar="COMPONENT", type=click.Choice(PARAMETERS))


@click.command()
@connection_options
@component_argument
@click.argument("name")
@click.argument("value", metavar="JSON")
def set_parameter(connection: dict[str, str], component: str, name: str, value: str) -> None:
    """Create or replace an upstream or an upstream set. With - for JSON it is read from standard input: arguments are seen by
    all who list processes, and a URI may have a password.

    \b
    gmqttctl set_parameter federation-upstream origin '{"uri": "mqtt://origin.example.com"}'
    gmqttctl set_parameter federation-upstream origin - < origin.json
    """
    request = pb.Parameter(component=component, name=name)
    text = _read_input("JSON", sys.stdin.buffer) if value == STANDARD_INPUT else value
    json_format.ParseDict(_read_json("JSON", text), request.value)
    _warn(_call(connection, ParameterServiceStub, "Set", request).warnings)


@click.command()
@connection_options
@component_argument
@click.argument("name")
def clear_parameter(connection: dict[str, str], component: str, name: str) -> None:
    """Delete an upstream or an upstream set."""
    _call(connection, ParameterServiceStub, "Clear", pb.ParameterKey(component=component, name=name))


@click.command()
@connection_options
@json_option
def list_parameters(connection: dict[str, str], as_json: bool) -> None:
    """List upstreams and upstream sets. User names and passwords in URIs are shown as ***."""
    answer = _call(connection, ParameterServiceStub, "List", pb.ListParametersRequest())
    _warn(answer.warnings)
    _print_items(answer.parameters, ("component", "name", "value", "read_only"), as_json)


@click.command()
@connection_options
@click.option("--priority", type=int, default=0, show_default=True, help="The highest one that matches applies.")
@click.option(
    "--apply-to",
    type=click.Choice(["topics", "queues"]),
    help="What the pattern is for.  [default: queues for $share/GROUP/FILTER, topics for all others]",
)
@click.argument("name")
@click.argument("pattern")
@click.argument("definition", metavar="JSON")
def set_policy(
    connection: dict[str, str], priority: int, apply_to: str | None, name: str, pattern: str, definition: str
) -> None:
    """Create or replace a policy. PATTERN is a topic filter, or $share/GROUP/FILTER of shared groups that get a queue.

    \b
    gmqttctl set_policy sensors 'sensors/#' '{"federation-upstream-set": "all"}' --priority 10
    gmqttctl set_policy jobs '$share/+/jobs/#' '{"federation-upstream-set": "all", "max-length": 10000}'
    """
    request = pb.Policy(name=name, pattern=pattern, apply_to=apply_to or "", priority=priority)
    value = _read_json("JSON", definition)
    if not isinstance(value, dict):
        raise click.BadParameter("is not an object of JSON", param_hint="JSON")
    json_format.ParseDict(value, request.definition)
    _warn(_call(connection, PolicyServiceStub, "Set", request).warnings)


@click.command()
@connection_options
@click.argument("name")
def clear_policy(connection: dict[str, str], name: str) -> None:
    """Delete a policy."""
    _call(connection, PolicyServiceStub, "Clear", pb.PolicyKey(name=name))


@click.command()
@connection_options
@json_option
def list_policies(connection: dict[str, str], as_json: bool) -> None:
    """List policies, the one that applies first in front."""
    found = _call(connection, PolicyServiceStub, "List", Empty()).policies
    _print_items(found, ("name", "pattern", "apply-to", "priority", "definition", "read_only"), as_json)


@click.group()
def policy() -> None:
    """Policies of links."""


@policy.command()
@connection_options
@click.argument("topic")
@json_option
def explain(connection: dict[str, str], topic: str, as_json: bool) -> None:
    """Show which policy applies to a topic, or to a shared group $share/GROUP/FILTER, why, which links carry it, and what the
    policy names and nothing defines."""
    found = _call(connection, PolicyServiceStub, "Explain", pb.ExplainRequest(topic=topic))
    if as_json:
        _print_json(as_values(found))
        return
    if not found.policies:
        click.echo("no policy matches: it is not federated")
        return
    rows = [("applies" if match.applies else "-", match.name, match.pattern, match.reason) for match in found.policies]
    _print_table(("", "policy", "pattern", "why"), rows)
    links = [(link.id, link.upstream, " ".join(link.uris)) for link in found.links]
    click.echo()
    if links:
        _print_table(("link", "upstream", "uri"), links)
    for text in found.missing:
        click.echo(f"missing: {printable(text)}")


@click.group()
def definitions() -> None:
    """Definitions of links as one file."""


@definitions.command()
@connection_options
@output_option
def export(connection: dict[str, str], output: Path | None) -> None:
    """Write all definitions that were made by calls, with their passwords."""
    found = _call(connection, DefinitionsServiceStub, "Export", Empty())
    text = json.dumps(_document(found), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_private(output, text)


@definitions.command("import")
@connection_options
@click.argument("file", type=click.File("rb"))
def import_file(connection: dict[str, str], file: Any) -> None:
    """Create or replace the definitions in FILE (- for standard input), all or none. Others stay."""
    value = _read_json("FILE", _read_input("FILE", file))
    request = pb.AllDefinitions()
    try:
        json_format.ParseDict(check_object(value, request.DESCRIPTOR, ""), request)
    except (ApiError, json_format.ParseError) as error:
        text = f"not a file of `gmqttctl definitions export`: {error}; see import-rabbitmq for one of RabbitMQ"
        raise click.ClickException(f"FILE: {text}") from None
    _warn(_call(connection, DefinitionsServiceStub, "Import", request).warnings)
    click.echo(f"{len(request.parameters)} parameters, {len(request.policies)} policies", err=True)


def _call(connection: dict[str, str], stub: Callable[[Any], Any], method: str, request: Any) -> Any:
    """Raises CommandError."""
    with NodeCalls(read_connection(connection), MISSING) as calls:
        return calls.call(stub, method, request)


def _warn(warnings: Iterable[str]) -> None:
    for text in warnings:
        click.echo(f"warning: {printable(text)}", err=True)


def _read_input(what: str, file: IO[bytes]) -> bytes:
    data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise click.ClickException(f"{what}: more than {FILE_BYTES_MAX} bytes")
    return data


def _read_json(what: str, text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint=what) from None


def _document(found: pb.AllDefinitions) -> dict[str, Any]:
    items = {
        "parameters": [as_values(item) for item in found.parameters],
        "policies": [as_values(item) for item in found.policies],
    }
    for item in (*items["parameters"], *items["policies"]):
        del item["read_only"]
    return items


def _print_items(found: Iterable[Any], columns: tuple[str, ...], as_json: bool) -> None:
    items = [as_values(item) for item in found]
    if as_json:
        _print_json(items)
    else:
        head = tuple(column.replace("_", " ") for column in columns)
        _print_table(head, [tuple(_cell(item[column]) for column in columns) for item in items])


def _cell(value: object) -> str:
    if isinstance(value, bool):  # the column "read only"
        return "file" if value else ""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    for line in aligned([head, *(tuple(printable(cell) for cell in row) for row in rows)]):
        click.echo(line.rstrip())
