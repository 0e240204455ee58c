"""The commands of `gmqttctl` for links, the queues of shared groups, and topic mappings."""

from __future__ import annotations

from typing import Final

import click

from broker.errors import MqttError
from broker.routing.names import check_topic_filter, check_topic_name
from federation.links.status import DOWN, FIGURES, has_state
from federation.services import LINKS, QUEUES
from federation.topics.mapping import MappingError, TopicMapping
from gmqttctl.command import Group
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.listing import listing
from gmqttctl.output import Column, Item, Output, output_options
from gmqttctl.text import age, printable

NO_LINKS: Final = "no links: a policy makes them, for the upstreams that it names (gmqttctl policies, upstreams)"
LINK_COLUMNS: Final = (
    Column("id"),
    Column("status"),
    Column("upstream"),
    Column("type"),
    Column("node"),
    Column("since", lambda item: age(item.get("since"))),
    *(Column(figure.name.replace("_", " "), figure.name) for figure in FIGURES if figure.is_column),
    Column("uri"),
    Column("direction", is_wide=True),
    Column("mapping", is_wide=True),
    Column("policies", lambda item: [policy["name"] for policy in item["policies"]], is_wide=True),
    Column("subscriptions", is_wide=True),
    Column("reconnects", is_wide=True),
    Column("lag", lambda item: "" if item.get("lag_seconds") is None else f"{item['lag_seconds']:.1f} s", is_wide=True),
)


@click.group(cls=Group)
def links() -> None:
    """The links of all nodes to other domains and brokers."""


@links.command("list", example="gmqttctl links list --only-down")
@connection_options
@output_options
@click.option("--only-down", is_flag=True, help="Only links that are blocked, shutdown, error or invalid.")
def list_links(connection: dict[str, str], output: Output, only_down: bool) -> None:
    """List the links of all nodes, those that are down first, with their error and what comes next."""
    from gmqttctl.node_calls import NodeCalls

    with NodeCalls(read_connection(connection)) as calls:

        def show() -> None:
            found = calls.values(LINKS, "List", {"state": DOWN} if only_down else {})
            found["links"].sort(key=lambda link: not has_state(link["status"], DOWN))
            output.show(found, "links", LINK_COLUMNS, "no link is down" if only_down else NO_LINKS, link_notes(found))

        output.repeat(show)


def link_notes(found: Item) -> list[str]:
    """Return the lines below the table of an answer. A link that works and has nothing to say is one line of the table."""
    lines = [f"no answer from node {name}: its links are missing here" for name in found["unanswered"]]
    for link in found["links"]:
        is_down = has_state(link["status"], DOWN)
        texts = [text for text in (link["error"] if is_down else "", *link["notes"]) if text]
        if is_down:
            texts.append(f"it {link['next_step']}")
        if texts:
            lines.append(f"{link['id']} {link['upstream']} {link['status']}: {'; '.join(texts)}")
    return lines


@links.command(example="gmqttctl links restart 5f0c21aa")
@connection_options
@click.argument("link_id", metavar="ID")
def restart(connection: dict[str, str], link_id: str) -> None:
    """Connect a link anew, on the node that runs it; a link for queues on all nodes."""
    from gmqttctl.node_calls import NodeCalls

    with NodeCalls(read_connection(connection)) as calls:
        found = calls.call(LINKS, "Restart", {"id": link_id})
    nodes = ", ".join(name for name in found.nodes if name)
    click.echo(f"link {printable(link_id)} is restarted{' on ' * bool(nodes)}{printable(nodes)}")


@click.group(cls=Group)
def queues() -> None:
    """The queues of shared groups."""


queues.add_command(
    listing(
        "list",
        "List the queues of shared groups on one node.",
        QUEUES,
        "List",
        "queues",
        (
            Column("group"),
            Column("policy"),
            Column("messages"),
            Column("bytes"),
            Column(
                "oldest",
                lambda item: f"{item['oldest_seconds']:.0f} s" if item.get("oldest_seconds") is not None else "",
            ),
            Column("members"),
            Column("remote", "remote_consumers"),
            Column("upstreams"),
            Column("dropped"),
            Column("node", is_wide=True),
            Column("max length", is_wide=True),
            Column("max bytes", "max_length_bytes", is_wide=True),
        ),
        "gmqttctl queues list",
        empty="no queues: a policy with apply-to queues makes them",
    )
)


NOTHING: Final = "-"

Row = tuple[str, str, str]
"""(what it is, its name at the upstream, its name here); NOTHING where it does not cross the link."""


@click.group(cls=Group)
def mapping() -> None:
    """Topic mappings of links."""


@mapping.command(example="gmqttctl mapping preview 'a/+/b/# -> x/{1}/{#}' --topic a/1/b/c --filter 'x/#'")
@click.argument("rules", nargs=-1, required=True, metavar="'UPSTREAM -> LOCAL'...")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic of the upstream.")
@click.option("--local-topic", "local_topics", multiple=True, metavar="NAME", help="A topic of this cluster.")
@click.option("--filter", "filters", multiple=True, metavar="FILTER", help="A filter that clients here subscribe to.")
@output_options
def preview(
    rules: tuple[str, ...],
    topics: tuple[str, ...],
    local_topics: tuple[str, ...],
    filters: tuple[str, ...],
    output: Output,
) -> None:
    """Show what becomes of topics and filters. No node is asked."""
    try:
        found = rows(TopicMapping(rules), topics, local_topics, filters)
    except (MappingError, MqttError) as error:
        raise click.ClickException(str(error)) from None
    items = [{"kind": kind, "upstream": upstream, "local": local} for kind, upstream, local in found]
    output.show({"mapped": items}, "mapped", (Column("kind"), Column("upstream"), Column("local")), "")


def rows(
    mapped: TopicMapping, topics: tuple[str, ...], local_topics: tuple[str, ...], filters: tuple[str, ...]
) -> list[Row]:
    """The rules as filters, then each topic and filter with its name on the other side. Raises MqttError for a topic or
    filter that is none."""
    found: list[Row] = [("rule", _text(rule.upstream.filter), _text(rule.local.filter)) for rule in mapped.rules]
    for topic in topics:
        name = topic.encode()
        check_topic_name(name)
        found.append(("topic", topic, _text(mapped.map_in(name))))
    for topic in local_topics:
        name = topic.encode()
        check_topic_name(name)
        found.append(("topic", _text(mapped.map_out(name)), topic))
    for text in filters:
        topic_filter = text.encode()
        check_topic_filter(topic_filter)
        upstream = mapped.map_filter_out(topic_filter)
        found += [("filter", _text(each), text) for each in upstream]
        if not upstream:
            found.append(("filter", NOTHING, text))
    return found


def _text(name: bytes | None) -> str:
    return NOTHING if name is None else name.decode()
