"""The command `gmqttctl explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import click

from federation.services import POLICIES
from gmqttctl.command import Command
from gmqttctl.connection import Connection, read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import CommandError, NotServed
from gmqttctl.listing import request_of
from gmqttctl.node_calls import NodeCalls
from gmqttctl.output import Column, Item, Output, output_options
from gmqttctl.service import TOPICS
from gmqttctl.topic_commands import verdict

RECEIVER_COLUMNS: Final = (
    Column("client", "client_id"),
    Column("node"),
    Column("filter", "topic_filter"),
    Column("qos"),
    Column("state"),
    Column("reads", lambda item: verdict(item["read"])),
    Column("rule", lambda item: item["read"]["reason"]),
    Column("link of", "link_domain"),
)


@click.command(cls=Command, example="gmqttctl explain sensors/1/temperature --client sensor-1")
@connection_options
@output_options
@click.option("--client", "client_id", metavar="ID", help="Also: may this client publish to the topic, and read it?")
@click.option("--user", "username", metavar="NAME", help="Its user name, where it has no session on the node.")
@click.argument("topic_name", metavar="TOPIC")
def explain(connection: dict[str, str], output: Output, **given: str | None) -> None:
    """Show who gets a message that is published to TOPIC at the first server that answers: which clients, by which subscription
    and rule, which shared groups, through which nodes and links. The clients of another node are told where it is among the
    servers."""
    servers = read_connection(connection)

    def show() -> None:
        with NodeCalls(servers) as calls:
            found = calls.values(TOPICS, "Explain", request_of(given))
            try:
                found["policy"] = calls.values(POLICIES, "Explain", {"topic": given["topic_name"]})
            except NotServed:
                found["policy"] = None  # the plugin is off
            found["other_nodes"] = other_nodes(servers, calls.address, found, request_of(given))
        if not output.is_for_people:
            output.show(found, "receivers", RECEIVER_COLUMNS, "")
            return
        rows = [
            {"node": each["node_name"], **receiver}
            for each in (found, *found["other_nodes"])
            for receiver in each["receivers"]
        ]
        empty = f"no client of {found['node_name'] or 'this node'} has a subscription that matches"
        output.show({"rows": rows}, "rows", RECEIVER_COLUMNS, empty, explanation_lines(found))

    output.repeat(show)


def other_nodes(servers: Connection, asked: str, found: Item, request: Item) -> list[Item]:
    """Ask the nodes with subscriptions that are among the servers."""
    names = {node["node_name"] for node in found["nodes"]} | {
        name for group in found["groups"] for name in group["nodes"]
    }
    answers: dict[str, Item] = {}
    for server in servers.servers if names else ():
        if server == asked:
            continue
        try:
            with NodeCalls(replace(servers, servers=(server,))) as calls:
                answer = calls.values(TOPICS, "Explain", request)
        except CommandError:
            continue  # it is among those whose clients are not told
        if answer["node_name"] in names:
            answers[answer["node_name"]] = answer
    return list(answers.values())


def explanation_lines(found: dict[str, Any]) -> Sequence[str]:
    """Return lines of what is not in the table of receivers."""
    lines = []
    told = {each["node_name"] for each in found["other_nodes"]}
    for each in (found, *found["other_nodes"]):
        if each["receivers_count"] > len(each["receivers"]):
            more = each["receivers_count"] - len(each["receivers"])
            lines.append(f"… and {more} more subscriptions at {each['node_name'] or 'the node'}")
    for group in found["groups"]:
        nodes = f"; members on the nodes {', '.join(group['nodes'])} too" if group["nodes"] else ""
        lines.append(f"group {group['group']}: one member gets each message{nodes}")
    for node in found["nodes"]:
        how = "" if node["reached"] else "; its event stream is down: they wait here"
        whose = "" if node["node_name"] in told else "; --server with its address tells its clients"
        lines.append(f"node {node['node_name']}: has subscriptions, gets each message{how}{whose}")
    if not found["nodes"]:
        lines.append("other nodes: none has a subscription")
    for link in (found["policy"] or {}).get("links", ()):
        applying = [policy["name"] for policy in found["policy"]["policies"] if policy["applies"]]
        lines.append(f"link {link['id']} to {link['upstream']}: carries it, by the policy {', '.join(applying)}")
    if found["retained"]:
        lines.append("there is a retained message: gmqttctl retained get shows it")
    asked = [what for what in ("publish", "read") if found.get(what) is not None]
    return lines + [f"may {what}: {verdict(found[what])}; {found[what]['reason']}" for what in asked]
