"""The commands of `gmqttctl` for links, the queues of shared groups, and topic mappings."""

# not a core: commands
from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import click

from broker.api.transcoding import as_values
from broker.errors import MqttError
from broker.routing.names import check_topic_filter, check_topic_name
from federation.links.pb import link_status_pb2 as pb
from federation.links.pb.link_status_pb2_grpc import FederationLinksStub, GroupQueuesStub
from federation.links.status import DOWN, FIGURES, has_state
from federation.topics.mapping import MappingError, TopicMapping
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import CommandError
from gmqttctl.node_calls import NodeCalls
from gmqttctl.text import aligned, printable

MISSING: Final = "it has no links; turn its plugin links on"
NO_LINKS: Final = (
    "no links: a policy makes them, for the upstreams that it names (gmqttctl list_policies, list_parameters)"
)
WATCH_SECONDS: Final = 2.0
COLUMNS: Final = tuple(figure.name for figure in FIGURES if figure.is_column)
HEAD: Final = (
    *("status", "upstream", "type", "id", "node", "seconds"),
    *(name.replace("_", " ") for name in COLUMNS),
    "uri",
)


@click.command()
@connection_options
@click.option("--only-down", is_flag=True, help="Only links that are blocked, shutdown, error or invalid.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: an object, with --watch one on each line.")
@click.option("--watch", is_flag=True, help=f"Look again every {WATCH_SECONDS:g} seconds until Ctrl-C.")
def federation_status(connection: dict[str, str], only_down: bool, as_json: bool, watch: bool) -> None:
    """Show the links of all nodes, those that are down first, with their error and what comes next."""
    request = pb.ListLinksRequest(state=DOWN if only_down else "")
    with NodeCalls(read_connection(connection), MISSING) as calls, suppress(KeyboardInterrupt):
        while True:
            try:
                found = calls.call(FederationLinksStub, "List", request)
            except CommandError as error:
                if not watch:
                    raise
                click.echo(f"gmqttctl: {error}", err=True)
            else:
                if watch and not as_json and sys.stdout.isatty():
                    click.clear()
                _show(found, as_json, None if watch else 2, status_lines(found, time.time(), only_down))
            if not watch:
                return
            time.sleep(WATCH_SECONDS)


@click.command()
@connection_options
@click.argument("link_id", metavar="ID")
def restart_federation_link(connection: dict[str, str], link_id: str) -> None:
    """Connect a link anew, on the node that runs it; a link for queues on all nodes."""
    with NodeCalls(read_connection(connection), MISSING) as calls:
        found = calls.call(FederationLinksStub, "Restart", pb.RestartLinkRequest(id=link_id))
    nodes = ", ".join(name for name in found.nodes if name)
    click.echo(f"link {printable(link_id)} is restarted{' on ' * bool(nodes)}{printable(nodes)}")


@click.command()
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_queues(connection: dict[str, str], as_json: bool) -> None:
    """List the queues of shared groups on one node."""
    with NodeCalls(read_connection(connection), MISSING) as calls:
        found = calls.call(GroupQueuesStub, "List", pb.ListGroupQueuesRequest())
    _show(found, as_json, 2, queue_lines(found))


def _show(found: Any, as_json: bool, indent: int | None, lines: list[str]) -> None:
    """Print the answer of a node as JSON, or its lines for people."""
    click.echo(json.dumps(as_values(found), indent=indent, ensure_ascii=False) if as_json else "\n".join(lines))


def status_lines(found: pb.ListLinksResponse, unix_time: float, only_down: bool = False) -> list[str]:
    """The answer of a node for people. `only_down`: it was asked for such links."""
    lines = [f"no answer from node {printable(name)}: its links are missing here" for name in found.unanswered]
    if not found.links:
        return [*lines, "no link is down" if only_down else NO_LINKS]
    links = sorted(found.links, key=lambda link: not has_state(link.status, DOWN))
    rows: list[Sequence[str]] = [HEAD]
    rows += [_row(link, unix_time) for link in links]
    lines += aligned(rows)
    for link in links:
        # What works and has nothing to say is one line of the table.
        texts = [text for text in (link.error if has_state(link.status, DOWN) else "", *link.notes) if text]
        if has_state(link.status, DOWN):
            texts.append(f"it {link.next_step}")
        if texts:
            lines.append(f"{link.id} {printable(link.upstream)} {link.status}: {printable('; '.join(texts))}")
    return lines


def _row(link: Any, unix_time: float) -> list[str]:
    since = link.since.seconds + link.since.nanos / 1e9
    cells = (
        link.status,
        link.upstream,
        link.type,
        link.id,
        link.node or "-",
        str(max(0, int(unix_time - since))),
        *(str(getattr(link, name)) for name in COLUMNS),
        link.uri or "-",
    )
    return [printable(cell) for cell in cells]


QUEUES_HEAD: Final = ("group", "policy", "messages", "bytes", "oldest", "members", "remote", "upstreams", "dropped")


def queue_lines(found: pb.ListGroupQueuesResponse) -> list[str]:
    """The answer of a node for people."""
    if not found.queues:
        return ["no queues: a policy with apply-to queues makes them"]
    rows: list[Sequence[str]] = [QUEUES_HEAD]
    for queue in found.queues:
        cells = (
            queue.group,
            queue.policy or "-",
            str(queue.messages),
            str(queue.bytes),
            f"{queue.oldest_seconds:.0f} s" if queue.HasField("oldest_seconds") else "-",
            str(queue.members),
            str(queue.remote_consumers),
            str(queue.upstreams),
            str(queue.dropped),
        )
        rows.append([printable(cell) for cell in cells])
    return aligned(rows)


NOTHING: Final = "-"

Row = tuple[str, str, str]
"""(what it is, its name at the upstream, its name here); NOTHING where it does not cross the link."""


@click.group()
def mapping() -> None:
    """Topic mappings of links."""


@mapping.command()
@click.argument("rules", nargs=-1, required=True, metavar="'UPSTREAM -> LOCAL'...")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic of the upstream.")
@click.option("--local-topic", "local_topics", multiple=True, metavar="NAME", help="A topic of this cluster.")
@click.option("--filter", "filters", multiple=True, metavar="FILTER", help="A filter that clients here subscribe to.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def preview(
    rules: tuple[str, ...],
    topics: tuple[str, ...],
    local_topics: tuple[str, ...],
    filters: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show what becomes of topics and filters. No node is asked.

    gmqttctl mapping preview 'a/+/b/# -> x/{1}/{#}' --topic a/1/b/c --filter 'x/#'
    """
    try:
        found = rows(TopicMapping(rules), topics, local_topics, filters)
    except (MappingError, MqttError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(
            json.dumps([{"kind": kind, "upstream": upstream, "local": local} for kind, upstream, local in found])
        )
        return
    for line in aligned([("", "upstream", "local"), *found]):
        click.echo(line)


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
