"""The commands `gmqttctl members` and `peers`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

from federation.services import MEMBERSHIP, PEERS
from federation.tags import TAG_DRAINING
from gmqttctl.command import Group
from gmqttctl.connection import read_one_server
from gmqttctl.connection_options import connection_options
from gmqttctl.listing import changing, listing
from gmqttctl.output import Column, Item
from gmqttctl.text import age, printable, size


def member_state(item: Item) -> str:
    state: str = "suspected" if item["suspected"] else item["status"].removeprefix("STATUS_").lower()
    return TAG_DRAINING if state == "alive" and TAG_DRAINING in item["tags"] else state


def round_trip(item: Item) -> str:
    seconds = item.get("round_trip_seconds")
    return "" if seconds is None else f"{seconds * 1000:.1f} ms"


def by_node(members: Iterable[Item]) -> dict[str, list[Item]]:
    """The members by the name of their node: more than one where a node has workers. A node of an earlier version does not tell
    it."""
    found: dict[str, list[Item]] = {}
    for member in members:
        found.setdefault(member.get("node_name") or member["name"], []).append(member)
    return found


def node_state(members: list[Item]) -> str:
    """The state of a node with these members; with workers, how many of them are alive."""
    states = [member_state(member) for member in members]
    if len(set(states)) == 1:
        return states[0]
    return f"{states.count('alive')} of {len(states)} workers alive"


MEMBER_COLUMNS: Final = (
    Column("node", "name"),
    Column("address", "addr"),
    Column("worker of", lambda item: "" if item["node_name"] == item["name"] else item["node_name"], is_wide=True),
    Column("status", member_state),
    Column("since", lambda item: age(item.get("since"))),
    Column("round trip", round_trip),
    Column("zone"),
    Column("tags"),
    Column("gossip", "gossip_version", is_wide=True),
    Column("serf", "serf_version", is_wide=True),
)
PEER_COLUMNS: Final = (
    Column("node", "node_name"),
    Column("state", lambda item: "behind" if item["behind"] else item["state"]),
    Column("stream"),
    Column("address", "addr"),
    Column("waiting", lambda item: size(int(item["outbox_bytes"]))),
    Column("oldest", lambda item: f"{item['outbox_seconds']:.1f} s"),
    Column("round trip", round_trip),
    Column("dropped", lambda item: sum(map(int, item["dropped"].values()))),
    Column("reason"),
    Column("tls", is_wide=True),
    Column("events sent", is_wide=True),
    Column("resent", "events_resent", is_wide=True),
    Column("streams lost", is_wide=True),
    Column("retained equal", is_wide=True),
    Column("store", "store_id", is_wide=True),
)


@click.group(cls=Group)
def members() -> None:
    """The members of the federation, as one node sees them."""


members.add_command(
    listing(
        "list",
        "List the members of the federation, as one node sees them.",
        MEMBERSHIP,
        "ListMembers",
        "members",
        MEMBER_COLUMNS,
        "gmqttctl members list -o wide",
    )
)
members.add_command(
    changing(
        "join",
        "Join the nodes with the gossip addresses HOST into one federation with this node. One that answers is enough.",
        MEMBERSHIP,
        "Join",
        "gmqttctl members join 192.0.2.1:8902",
        (click.Argument(["hosts"], nargs=-1, required=True, metavar="HOST[:PORT]..."),),
        done="joined",
    )
)
members.add_command(
    changing(
        "leave",
        "Let this node leave the federation. It goes on serving its own clients; one with workers refuses.",
        MEMBERSHIP,
        "Leave",
        "gmqttctl members leave --server 192.0.2.1:8084 --yes",
        done="the node has left",
        asks="Let this node leave the federation?",
        is_of_one_server=True,
    )
)
members.add_command(
    changing(
        "force-leave",
        "Turn the failed node NODE into one that has left: nothing is kept for it any more.",
        MEMBERSHIP,
        "ForceLeave",
        "gmqttctl members force-leave node3 --yes",
        (
            click.Argument(["node_name"], metavar="NODE"),
            click.Option(["--prune"], is_flag=True, help="Also forget the node at once."),
        ),
        done="the members are told that {node_name} has left; one that is alive says so, and stays",
        asks="Take {node_name} for gone, with what waits for it?",
    )
)


@members.command(example="gmqttctl members tags rack=b7 --delete old")
@connection_options
@click.option("--delete", "names", multiple=True, metavar="NAME", help="A tag to delete first; may be repeated.")
@click.argument("tags", nargs=-1, metavar="[NAME=VALUE]...")
def tags(connection: dict[str, str], names: tuple[str, ...], tags: tuple[str, ...]) -> None:
    """Change tags of one node, which keeps them until its process ends, and show all of them."""
    from gmqttctl.node_calls import NodeCalls

    given: dict[str, str] = {}
    for text in tags:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{text!r} is no NAME=VALUE")
        given[name] = value
    with NodeCalls(read_one_server(connection)) as calls:
        found = calls.call(MEMBERSHIP, "SetTags", {"tags": given, "delete": list(names)})
    for name, value in sorted(found.tags.items()):
        click.echo(f"{printable(name)}={printable(value)}")


@click.group(cls=Group)
def peers() -> None:
    """The event streams of one node to the others."""


peers.add_command(
    listing(
        "list",
        "List the nodes that events are sent to, how the streams go, and what waits.",
        PEERS,
        "ListPeers",
        "peers",
        PEER_COLUMNS,
        "gmqttctl peers list --watch",
        empty="no other node",
    )
)
