"""The command `gmqttctl mapping`: what the topic mapping of a link does, before it is written into an upstream."""

from __future__ import annotations

import json
from typing import Final

import click

from broker.errors import MqttError
from broker.routing.names import check_topic_filter, check_topic_name
from federation.topics.mapping import MappingError, TopicMapping

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
    widths = [max(len(row[column]) for row in [("", "upstream", ""), *found]) for column in range(2)]
    click.echo(f"{'':{widths[0]}}  {'upstream':{widths[1]}}  local")
    for kind, upstream, local in found:
        click.echo(f"{kind:{widths[0]}}  {upstream:{widths[1]}}  {local}")


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
