"""The commands of `gmqttctl` for definitions of links; set_parameter and its like with the arguments of rabbitmqctl."""

# not a core: a command
from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Final

import click
from google.protobuf import json_format

from broker.api.errors import ApiError
from broker.api.strict_json import check_object
from broker.api.transcoding import as_values
from federation.definitions.entry import PARAMETERS, UPSTREAM, UPSTREAM_SET
from federation.definitions.imports.commands import from_mosquitto, from_rabbitmq, output_option, write_private
from federation.definitions.pb import definitions_pb2 as pb
from federation.services import DEFINITIONS, POLICIES
from federation.services import PARAMETERS as PARAMETER_SERVICE
from gmqttctl.command import Command, Group
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.listing import changing, confirm, listing, yes_option
from gmqttctl.node_calls import NodeCalls
from gmqttctl.output import Column, Item, Output, output_options
from gmqttctl.service import Service
from gmqttctl.text import printable

FILE_BYTES_MAX: Final = 4 * 2**20
"""A node takes requests of this size."""

STANDARD_INPUT: Final = "-"

component_argument = click.argument("component", metavar="COMPONENT", type=click.Choice(PARAMETERS))


def compact(name: str) -> Column:
    """A column with a value of JSON."""
    return Column(name, lambda item: json.dumps(item[name], separators=(",", ":"), ensure_ascii=False))


def read_only(item: Item) -> str:
    return "file" if item["read_only"] else ""


PARAMETER_COLUMNS: Final = (Column("name"), Column("component"), compact("value"), Column("read only", read_only))
POLICY_COLUMNS: Final = (
    *(Column("name"), Column("pattern"), Column("apply-to", "apply-to"), Column("priority")),
    *(compact("definition"), Column("read only", read_only)),
)
MATCH_COLUMNS: Final = (
    *(Column("policy", "name"), Column("applies", lambda item: "applies" if item["applies"] else "")),
    *(Column("pattern"), Column("why", "reason")),
)
CARRIER_COLUMNS: Final = (Column("link", "id"), Column("upstream"), Column("uri", lambda item: " ".join(item["uris"])))


def parameter_group(name: str, component: str, what: str, value: str) -> click.Group:
    """`upstreams` or `upstream-sets`."""

    @click.group(name, cls=Group, help=f"The {what}s of links. In effect at once on all nodes of the cluster.")
    def group() -> None: ...

    group.add_command(
        listing(
            "list",
            f"List the {what}s. User names and passwords in URIs are shown as ***.",
            PARAMETER_SERVICE,
            "List",
            "parameters",
            tuple(column for column in PARAMETER_COLUMNS if column.head != "component"),
            f"gmqttctl {name} list",
            empty=f"no {what}s",
            notes=warning_notes,
            fixed={"component": component},
        )
    )

    @group.command(
        "set",
        example=f"gmqttctl {name} set NAME '{value}'\ngmqttctl {name} set NAME - < definition.json",
        help=f"Create or replace the {what} NAME. With - for JSON it is read from standard input: arguments are seen by all "
        "who list processes, and a URI may have a password.",
    )
    @connection_options
    @click.argument("name")
    @click.argument("value", metavar="JSON")
    def set_(connection: dict[str, str], name: str, value: str) -> None:
        _set_parameter(connection, component, name, value)

    @group.command("delete", example=f"gmqttctl {name} delete NAME --yes", help=f"Delete the {what} NAME.")
    @connection_options
    @yes_option
    @click.argument("name")
    def delete(connection: dict[str, str], is_sure: bool, name: str) -> None:
        confirm(f"Delete the {what} {name}, and end its links?", is_sure)
        _call(connection, PARAMETER_SERVICE, "Clear", pb.ParameterKey(component=component, name=name))

    return group


def warning_notes(values: dict[str, Any]) -> list[str]:
    return [f"warning: {text}" for text in values["warnings"]]


upstreams = parameter_group("upstreams", UPSTREAM, "upstream", '{"uri": "mqtt://origin.example.com"}')
upstream_sets = parameter_group("upstream-sets", UPSTREAM_SET, "upstream set", '[{"upstream": "origin"}]')


@click.command(cls=Command, example="gmqttctl set_parameter federation-upstream origin - < origin.json")
@connection_options
@component_argument
@click.argument("name")
@click.argument("value", metavar="JSON")
def set_parameter(connection: dict[str, str], component: str, name: str, value: str) -> None:
    """Create or replace an upstream or an upstream set, as rabbitmqctl does: `upstreams set` and `upstream-sets set`."""
    _set_parameter(connection, component, name, value)


def _set_parameter(connection: dict[str, str], component: str, name: str, value: str) -> None:
    request = pb.Parameter(component=component, name=name)
    text = _read_input("JSON", sys.stdin.buffer) if value == STANDARD_INPUT else value
    json_format.ParseDict(_read_json("JSON", text), request.value)
    _warn(_call(connection, PARAMETER_SERVICE, "Set", request).warnings)


@click.command(cls=Command, example="gmqttctl clear_parameter federation-upstream origin")
@connection_options
@component_argument
@click.argument("name")
def clear_parameter(connection: dict[str, str], component: str, name: str) -> None:
    """Delete an upstream or an upstream set, as rabbitmqctl does, without a question."""
    _call(connection, PARAMETER_SERVICE, "Clear", pb.ParameterKey(component=component, name=name))


list_parameters = listing(
    "list_parameters",
    "List upstreams and upstream sets, as rabbitmqctl does.",
    PARAMETER_SERVICE,
    "List",
    "parameters",
    PARAMETER_COLUMNS,
    "gmqttctl list_parameters",
    empty="no parameters",
    notes=warning_notes,
)


@click.group(cls=Group)
def policies() -> None:
    """Policies say which topics have links, and which shared groups have a queue."""


policies.add_command(
    listing(
        "list",
        "List policies, the one that applies first in front.",
        POLICIES,
        "List",
        "policies",
        POLICY_COLUMNS,
        "gmqttctl policies list",
        empty="no policies",
    )
)
policies.add_command(
    changing(
        "delete",
        "Delete a policy.",
        POLICIES,
        "Clear",
        "gmqttctl policies delete sensors --yes",
        (click.Argument(["name"]),),
        asks="Delete the policy {name}, and end its links?",
    )
)


@policies.command(
    "set",
    example="""gmqttctl policies set sensors 'sensors/#' '{"federation-upstream-set": "all"}' --priority 10
    gmqttctl policies set jobs '$share/+/jobs/#' '{"federation-upstream-set": "all", "max-length": 10000}'""",
)
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
    """Create or replace a policy. PATTERN is a topic filter, or $share/GROUP/FILTER of shared groups that get a queue."""
    request = pb.Policy(name=name, pattern=pattern, apply_to=apply_to or "", priority=priority)
    value = _read_json("JSON", definition)
    if not isinstance(value, dict):
        raise click.BadParameter("is not an object of JSON", param_hint="JSON")
    json_format.ParseDict(value, request.definition)
    _warn(_call(connection, POLICIES, "Set", request).warnings)


@policies.command(example="gmqttctl policies explain sensors/1")
@connection_options
@output_options
@click.argument("topic")
def explain(connection: dict[str, str], output: Output, topic: str) -> None:
    """Show which policy applies to a topic, or to a shared group $share/GROUP/FILTER, why, which links carry it, and what the
    policy names and nothing defines."""
    with NodeCalls(read_connection(connection)) as calls:
        found = calls.values(POLICIES, "Explain", {"topic": topic})
    if not output.is_for_people:
        output.document(found)
        return
    output.show(found, "policies", MATCH_COLUMNS, "no policy matches: it is not federated")
    if found["policies"]:
        output.line("")
        if found["links"]:
            output.show(found, "links", CARRIER_COLUMNS, "")
        for text in found["missing"]:
            output.line(f"missing: {printable(text)}")


@click.group(cls=Group)
def definitions() -> None:
    """Definitions of links as one file, and from files of other brokers."""


definitions.add_command(from_mosquitto)
definitions.add_command(from_rabbitmq)


@definitions.command(example="gmqttctl definitions export --file links.json")
@connection_options
@output_option
def export(connection: dict[str, str], output: Path | None) -> None:
    """Write all definitions that were made by calls, with their passwords."""
    found = _call(connection, DEFINITIONS, "Export")
    text = exported(found)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_private(output, text)


@definitions.command("import", example="gmqttctl definitions import - < links.json")
@connection_options
@click.argument("file", type=click.File("rb"))
def import_file(connection: dict[str, str], file: Any) -> None:
    """Create or replace the definitions in FILE (- for standard input), all or none. Others stay."""
    value = _read_json("FILE", _read_input("FILE", file))
    request = pb.AllDefinitions()
    try:
        json_format.ParseDict(check_object(value, request.DESCRIPTOR, ""), request)
    except (ApiError, json_format.ParseError) as error:
        text = (
            f"not a file of `gmqttctl definitions export`: {error}; see `definitions from-rabbitmq` for one of RabbitMQ"
        )
        raise click.ClickException(f"FILE: {text}") from None
    _warn(_call(connection, DEFINITIONS, "Import", request).warnings)
    click.echo(f"{len(request.parameters)} parameters, {len(request.policies)} policies", err=True)


def _call(connection: dict[str, str], service: Service, method: str, request: Any = None) -> Any:
    """Raises CommandError."""
    with NodeCalls(read_connection(connection)) as calls:
        return calls.call(service, method, request)


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


def exported(found: pb.AllDefinitions) -> str:
    """The file of an export."""
    return json.dumps(_document(found), indent=2, ensure_ascii=False) + "\n"


def _document(found: pb.AllDefinitions) -> dict[str, Any]:
    items = {
        "parameters": [as_values(item) for item in found.parameters],
        "policies": [as_values(item) for item in found.policies],
    }
    for item in (*items["parameters"], *items["policies"]):
        del item["read_only"]
    return items
