"""The commands of `gmqttctl` for topics: retained messages, publishing, who gets what and why, traffic."""

from __future__ import annotations

import base64
import sys
from contextlib import suppress
from typing import Any, Final

import click

from gmqttctl.command import Command, Group
from gmqttctl.connection import read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import CommandError
from gmqttctl.listing import changing, listing, request_of, showing
from gmqttctl.output import Column, Item, Output, format_options, output_options
from gmqttctl.service import ACCESS, PUBLISHING, RETAINED, TOPICS
from gmqttctl.text import printable, size
from gmqttctl.traffic_tree import tree_rows

MESSAGE_BYTES_MAX: Final = 3 * 2**20  # a node takes requests of 4 MiB
PAYLOAD_SHOWN: Final = 60  # characters in a table


def topic_argument() -> click.Argument:
    return click.Argument(["topic_name"], metavar="TOPIC")


def payload_text(item: Item) -> str:
    """The payload for people: text, or hexadecimal digits."""
    return str(item["payload"]) if item["payload"] or not item["payload_raw"] else f"0x{_raw(item).hex()}"


def _raw(item: Item) -> bytes:
    return base64.b64decode(item["payload_raw"])


def short_payload(item: Item) -> str:
    text = payload_text(item)
    return text if len(text) <= PAYLOAD_SHOWN else f"{text[:PAYLOAD_SHOWN]}…"


def expires(item: Item) -> str:
    seconds = item.get("expires_seconds")
    return "never" if seconds is None else f"{seconds:.0f} s"


RETAINED_COLUMNS: Final = (
    Column("topic", "topic_name"),
    Column("payload", short_payload),
    Column("bytes", "payload_bytes"),
    Column("qos"),
    Column("expires", expires),
    Column("published by", "client_id", is_wide=True),
)


@click.group(cls=Group)
def retained() -> None:
    """Retained messages, which are the same on all nodes of a federation."""


retained.add_command(
    listing(
        "list",
        "List the retained messages whose topic matches FILTER; without it all but those below $SYS.",
        RETAINED,
        "List",
        "messages",
        RETAINED_COLUMNS,
        "gmqttctl retained list 'sensors/#'",
        (click.Argument(["topic_filter"], default="", metavar="[FILTER]"),),
        empty="no retained messages",
        key=("topic_name",),
    )
)
retained.add_command(
    changing(
        "delete",
        "Delete the retained message of a topic, on all nodes.",
        RETAINED,
        "Delete",
        "gmqttctl retained delete sensors/1/temperature --yes",
        (topic_argument(),),
        done="the retained message of {topic_name} is deleted",
        asks="Delete the retained message of {topic_name}?",
    )
)
retained.add_command(
    showing(
        "get",
        "Show the retained message of a topic.",
        RETAINED,
        "Get",
        (
            Column("topic", "topic_name"),
            Column("payload", payload_text),
            *RETAINED_COLUMNS[2:-1],
            Column("published by", "client_id"),
        ),
        "gmqttctl retained get sensors/1/temperature",
        (topic_argument(),),
    )
)


@click.command(cls=Command, example="gmqttctl publish sensors/1/temperature 21.5 --qos 1 --retain")
@connection_options
@click.option("--qos", type=click.IntRange(0, 2), default=0, show_default=True, help="Quality of Service.")
@click.option("--retain", is_flag=True, help="Keep it as the retained message of the topic.")
@click.option("--expiry", type=click.IntRange(1), help="Seconds after which it is not delivered any more.")
@click.option("--content-type", help="Content Type of the message.")
@click.option("--response-topic", metavar="TOPIC", help="Response Topic of the message.")
@click.argument("topic", metavar="TOPIC")
@click.argument("payload", default="-")
def publish(
    connection: dict[str, str],
    qos: int,
    retain: bool,
    expiry: int | None,
    content_type: str | None,
    response_topic: str | None,
    topic: str,
    payload: str,
) -> None:
    """Publish a message as the node, to subscribers on all nodes. PAYLOAD is text; without it, or with -, it is standard
    input, whatever its bytes are."""
    from gmqttctl.node_calls import NodeCalls

    data = payload.encode(errors="surrogateescape") if payload != "-" else sys.stdin.buffer.read(MESSAGE_BYTES_MAX + 1)
    if len(data) > MESSAGE_BYTES_MAX:
        raise CommandError(f"the payload has more than {MESSAGE_BYTES_MAX} bytes, which the API does not take")
    given = {"message_expiry": expiry, "content_type": content_type, "response_topic": response_topic}
    request = {
        "topic_name": topic,
        "payload_raw": base64.b64encode(data).decode(),
        "qos": qos,
        "retained": retain,
        **request_of(given),
    }
    with NodeCalls(read_connection(connection)) as calls:
        calls.call(PUBLISHING, "Publish", request)


@click.command(cls=Command, example="gmqttctl subscribe 'sensors/#' --retained\ngmqttctl subscribe '#' -n 10 -o json")
@connection_options
@format_options
@click.option("--retained", is_flag=True, help="Also retained messages that match, first.")
@click.option("-n", "--count", type=click.IntRange(1), help="End after so many messages.  [default: at Ctrl-C]")
@click.argument("topic_filter", metavar="FILTER")
def subscribe(connection: dict[str, str], output: Output, count: int | None, **given: Any) -> None:
    """Print the messages of the whole federation that match FILTER as they come: topic and payload, as JSON one on each line.
    The rules of clients do not count here: it takes a token of the role write."""
    from broker.api.transcoding import as_values
    from gmqttctl.node_calls import NodeCalls

    missing = 0
    with NodeCalls(read_connection(connection)) as calls, suppress(KeyboardInterrupt):
        for number, message in enumerate(calls.stream(TOPICS, "Watch", request_of(given)), 1):
            values = as_values(message)
            if output.is_for_people:
                output.line(f"{printable(values['topic_name'])} {printable(payload_text(values))}")
            elif output.format == "name":
                output.line(printable(values["topic_name"]))
            else:
                output.document(values)
            if int(values["missing"]) > missing:
                missing = int(values["missing"])
                click.echo(f"gmqttctl: {missing} messages are missing: they came faster than they were read", err=True)
            if number == count:
                break


def verdict(access: Item | None) -> str:
    return "" if access is None else "allowed" if access["allowed"] else "refused"


@click.group(cls=Group)
def acl() -> None:
    """Show who may do what."""


acl.add_command(
    listing(
        "rules",
        "List the rules of the acl_file of one node, those of users first.",
        ACCESS,
        "ListRules",
        "rules",
        (Column("rule", "topic_filter"), Column("access"), Column("of", "kind"), Column("user", "username")),
        "gmqttctl acl rules",
        empty="no acl_file: clients may publish and read everything",
        key=("kind", "username", "access", "topic_filter"),
    )
)
ACCESS_COLUMNS: Final = (Column("action"), Column("verdict", verdict), Column("rule", "reason"))


@acl.command(example="gmqttctl acl test sensor-1 sensors/1/temperature --user site1")
@connection_options
@output_options
@click.option("--user", "username", metavar="NAME", help="Its user name, where it has no session on the node.")
@click.argument("client_id")
@click.argument("topic_name", metavar="TOPIC")
def test(connection: dict[str, str], output: Output, **given: str | None) -> None:
    """Show whether a client may publish to a topic and read it, and by which rule of which file."""
    from gmqttctl.node_calls import NodeCalls

    with NodeCalls(read_connection(connection)) as calls:
        found = calls.values(TOPICS, "Explain", request_of(given))
    access = [{"action": action, **found[action]} for action in ("publish", "read")]
    output.show({"access": access}, "access", ACCESS_COLUMNS, "")


seconds_option = click.option(
    "--seconds", type=click.IntRange(1, 10), default=2, show_default=True, help="How long messages are counted."
)


@click.command(cls=Command, example="gmqttctl topics 'sensors/#' --depth 3 --seconds 10")
@connection_options
@output_options
@seconds_option
@click.option("--depth", type=click.IntRange(1), default=2, show_default=True, help="Levels of the topics.")
@click.argument("topic_filter", metavar="[FILTER]", default="")
def topics(connection: dict[str, str], output: Output, depth: int, **given: Any) -> None:
    """Show what is published on one node as a tree of topics, the busiest first. It is counted while the command runs."""
    from gmqttctl.node_calls import NodeCalls

    with NodeCalls(read_connection(connection)) as calls:

        def show() -> None:
            found = calls.values(TOPICS, "Traffic", {**request_of(given), "limit": 1000})
            if not output.is_for_people:
                output.show(found, "topics", (Column("topic", "topic_name"),), "")
                return
            rows = {"rows": tree_rows(found["topics"], depth)}
            seconds = found["seconds"]
            columns = (
                Column("topic", lambda row: "  " * row["level"] + row["name"]),
                Column("messages/s", lambda row: f"{row['messages'] / seconds:.1f}"),
                Column("bytes/s", lambda row: size(round(row["bytes"] / seconds))),
                Column("topics", lambda row: row["topics"]),
            )
            left_out = found["topics_count"] - len(found["topics"])
            notes = [f"… and {left_out} quieter topics"] if left_out else []
            output.show(rows, "rows", columns, f"no message in {seconds:.0f} s", notes)

        output.repeat(show)
