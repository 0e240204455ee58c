"""The commands `gmqttctl status`, `health` and `doctor`."""

# not a core: commands
from __future__ import annotations

import io
import json
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from broker import __version__
from broker.server.form import version_text
from federation.links.commands import LINK_COLUMNS
from federation.member_commands import by_node, node_state, round_trip
from federation.services import LINKS, MEMBERSHIP, PARAMETERS, PEERS, POLICIES, QUEUES, SESSIONS
from gmqttctl.command import Command
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import EXIT_NOT_HEALTHY, CommandError, NoAnswer, NotNow, NotServed
from gmqttctl.node_calls import NodeCalls
from gmqttctl.output import Column, Item, Output, output_options
from gmqttctl.private_output import private_output
from gmqttctl.service import CLIENTS, NODE, SUBSCRIPTIONS, TRACES, Service
from gmqttctl.text import duration, printable, size

LOOK_SECONDS: Final = 1.0
PAGE: Final = {"page_size": 1000}
# What `status` asks for. Plugins that the node does not have are left out.
STATUS_CALLS: Final = {
    "node": (NODE, "Get"),
    "alarms": (NODE, "Alarms"),
    "members": (MEMBERSHIP, "ListMembers"),
    "peers": (PEERS, "ListPeers"),
    "copies": (SESSIONS, "GetCopies"),
    "links": (LINKS, "List"),
}
# What `doctor` asks for. No secret is in these answers: URIs are without passwords, the configuration without secrets.
DOCTOR_CALLS: Final[dict[str, tuple[Service, str, dict[str, Any]]]] = {
    **{name: (service, method, {}) for name, (service, method) in STATUS_CALLS.items()},
    "configuration": (NODE, "GetConfiguration", {}),
    "gossip": (MEMBERSHIP, "GetHealth", {}),
    "drain": (SESSIONS, "GetDrain", {}),
    "clients": (CLIENTS, "List", PAGE),
    "subscriptions": (SUBSCRIPTIONS, "List", PAGE),
    "traces": (TRACES, "List", {}),
    "parameters": (PARAMETERS, "List", {}),
    "policies": (POLICIES, "List", {}),
    "queues": (QUEUES, "List", {}),
}


def wait_option(command: Any) -> Any:
    return click.option(
        "--wait",
        "wait_seconds",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="Look each second until all is well, so long at most.",
    )(command)


def ask(calls: NodeCalls) -> dict[str, Any]:
    """The answers, by name; those of plugins that the node does not have are missing. `alarms` is the list. `notes` says what
    a node that is older than this command does not tell."""
    found: dict[str, Any] = {}
    for name, (service, method) in STATUS_CALLS.items():
        try:
            found[name] = calls.values(service, method)
        except NotServed:
            if name == "node":
                raise
    alarms, node = found.get("alarms"), found["node"]
    found["notes"] = []
    if alarms is None:  # the node is older, and says only why no clients should be sent to it
        alarms = {"alarms": [{"level": "error", "text": reason} for reason in node["not_ready"]]}
        found["notes"] = [f"gmqttd {node['version']} is older than this gmqttctl: its alarms are not known"]
    found["alarms"] = alarms["alarms"]
    return found


def until_well(look: Callable[[], list[str]], wait_seconds: float | None) -> list[str]:
    """Return what `look` says is wrong; with a time to wait, look until nothing is, and the node answers all."""
    until = time.monotonic() + (wait_seconds or 0.0)
    while True:
        try:
            wrong = look()
        except (NoAnswer, NotNow):
            if time.monotonic() >= until:
                raise
        else:
            if not wrong or time.monotonic() >= until:
                return wrong
        time.sleep(LOOK_SECONDS)


@click.command(cls=Command, example="gmqttctl status\ngmqttctl status --wait 60 && echo all is well")
@connection_options
@output_options
@wait_option
def status(connection: dict[str, str], output: Output, wait_seconds: float | None) -> None:
    """Show a node and what it sees of its cluster on one screen: members, streams, copies, links, and what is wrong. Exit
    status 6 when something is."""
    wrong: list[str] = []

    def show() -> None:
        found: dict[str, Any] = {}

        def look() -> list[str]:
            with NodeCalls(read_connection(connection)) as calls:  # anew: a server that answered may be gone
                found.update(ask(calls))
            return [alarm["text"] for alarm in found["alarms"]]

        wrong[:] = until_well(look, wait_seconds)
        if output.is_for_people:
            show_status(output, found)
        elif output.format == "name":
            for name in by_node(found.get("members", {}).get("members", ())) or [found["node"]["node_name"]]:
                output.line(printable(name))
        else:
            output.document(found)

    output.repeat(show)
    if wrong:
        sys.exit(EXIT_NOT_HEALTHY)


def show_status(output: Output, found: Item) -> None:
    """The answers for people."""
    node = found["node"]
    name = printable(node["node_name"]) or "node"
    up = duration(node["uptime_seconds"])
    output.line(f"{name}  gmqttd {node['version']} {node['form']}, up {up}, {', '.join(node['listeners'])}")
    output.line(
        f"clients {node['clients_connected']} connected, {node['sessions']} sessions, {node['subscriptions']} subscriptions, "
        f"{node['retained_messages']} retained, {node['messages_waiting']} waiting, "
        f"{sum(map(int, node['dropped'].values()))} dropped"
    )
    copies = found.get("copies")
    if copies is not None and copies["wanted"]:
        keepers = ", ".join(keeper["node_name"] for keeper in copies["keepers"])
        output.line(f"copies {copies['whole']} of {copies['wanted']} whole, at {printable(keepers) or 'no node'}")
    nodes = by_node(found.get("members", {}).get("members", ()))
    if nodes:
        peers = {peer["node_name"]: peer for peer in found.get("peers", {}).get("peers", ())}
        output.line("")
        for line in output.table([node_row(name, of_node, peers) for name, of_node in nodes.items()], NODE_COLUMNS):
            output.line(line)
    links = found.get("links", {}).get("links", ())
    if links:
        output.line("")
        for line in output.table(links, LINK_COLUMNS):
            output.line(line)
    output.line("")
    for note in found["notes"]:
        output.line(printable(note))
    for alarm in found["alarms"]:
        output.line(f"{output.painted('wrong')}: {printable(alarm['text'])}")
    if not found["alarms"]:
        output.line(f"{output.painted('ok')}: all is well")


NODE_COLUMNS: Final = (
    Column("node", "name"),
    Column("workers"),
    Column("status"),
    Column("zone"),
    Column("round trip", round_trip),
    Column("stream"),
    Column("waiting"),
)


def node_row(name: str, members: list[Item], peers: dict[str, Item]) -> Item:
    """One node in the table: the sums of its members and of the streams to them, and the longest way."""
    streams = [peers[member["name"]] for member in members if member["name"] in peers]
    states = list(dict.fromkeys(stream["state"] for stream in streams))
    times = [member["round_trip_seconds"] for member in members if member.get("round_trip_seconds") is not None]
    return {
        "name": name,
        "workers": len(members) if len(members) > 1 else "",
        "status": node_state(members),
        "zone": members[0]["zone"],
        "round_trip_seconds": max(times, default=None),
        "stream": ", ".join(states),
        "waiting": size(sum(int(stream["outbox_bytes"]) for stream in streams)) if streams else "",
    }


@click.command(cls=Command, example="gmqttctl health --wait 30")
@connection_options
@wait_option
def health(connection: dict[str, str], wait_seconds: float | None) -> None:
    """Say whether clients may be sent to a node, as /readyz does. Exit status 6 with the reasons when they may not."""

    def look() -> list[str]:
        with NodeCalls(read_connection(connection)) as calls:
            return list(calls.call(NODE, "Get").not_ready)

    wrong = until_well(look, wait_seconds)
    for text in wrong:
        click.echo(printable(text))
    if wrong:
        sys.exit(EXIT_NOT_HEALTHY)
    click.echo("ok")


@click.command(cls=Command, example="gmqttctl doctor --server 10.0.0.1:8084,10.0.0.2:8084 --file report.tar.gz")
@connection_options
@click.option(
    "-f",
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    default="gmqttd-report.tar.gz",
    show_default=True,
    help="Written anew, readable by its owner only.",
)
def doctor(connection: dict[str, str], file: Path) -> None:
    """Write one archive for a report of a fault: what each of the servers says about itself. It has names and addresses of
    clients and their subscriptions, and no message, no password, no token and no key."""
    servers = read_connection(connection)
    parts = {"gmqttctl.txt": f"gmqttctl {__version__} {version_text()}\npython {sys.version}\n"}
    answered = 0
    for server in servers.servers:
        with NodeCalls(replace(servers, servers=(server,))) as calls:
            for name, (service, method, request) in DOCTOR_CALLS.items():
                try:
                    values = calls.values(service, method, request)
                    answered += 1
                except CommandError as error:
                    values = {"error": str(error)}
                folder = server.replace(":", "_").replace("/", "_")
                parts[f"{folder}/{name}.json"] = json.dumps(values, indent=2)
                if values.keys() == {"error"} and name == "node":
                    click.echo(f"gmqttctl: {printable(str(values['error']))}", err=True)
                    break
    if not answered:
        raise NoAnswer(", ".join(servers.servers), "no server answers, so there is nothing to write")
    write_archive(file, parts)
    click.echo(f"{file}: {len(parts)} files of {len(servers.servers)} nodes. Look at it before you send it")


def write_archive(file: Path, parts: dict[str, str]) -> None:
    """Raises CommandError."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in parts.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"gmqttd-report/{name}")
            entry.size, entry.mtime = len(content), int(time.time())
            archive.addfile(entry, io.BytesIO(content))
    with private_output(file) as opened:
        opened.write(data.getvalue())
