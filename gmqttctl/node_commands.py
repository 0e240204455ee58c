"""The commands of `gmqttctl` for one node: its clients, subscriptions, accounts and log."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from gmqttctl.command import Group
from gmqttctl.listing import changing, listing, showing
from gmqttctl.output import Column, Item
from gmqttctl.service import ACCESS, ACCOUNTS, CLIENTS, NODE, SUBSCRIPTIONS
from gmqttctl.text import age

QUEUE_PREFIX: Final = "$queue/"  # of a session that is the queue of a shared group
PROTOCOLS: Final = {3: "3.1", 4: "3.1.1", 5: "5.0"}
MATCH_NAME, MATCH_FILTER = 1, 2  # of SubMatchType
EXPIRY_NEVER: Final = 4_294_967_295


def client_argument() -> click.Argument:
    return click.Argument(["client_id"])


def client_state(item: Item) -> str:
    if item["client_id"].startswith(QUEUE_PREFIX):
        return "queue"
    return "away" if item.get("disconnected_at") else "connected"


def client_since(item: Item) -> str:
    return age(item.get("disconnected_at") or item.get("connected_at"))


def expiry(item: Item) -> str:
    seconds = item["session_expiry"]
    return "never" if seconds == EXPIRY_NEVER else f"{seconds} s"


CLIENT_COLUMNS: Final = (
    Column("client", "client_id"),
    Column("user", "username"),
    Column("address", "remote_addr"),
    Column("mqtt", lambda item: PROTOCOLS.get(item["version"])),
    Column("state", client_state),
    Column("since", client_since),
    Column("in flight", "inflight_len"),
    Column("queued", "queue_len"),
    Column("dropped", "message_dropped"),
    Column("link of", "link_domain"),
    Column("subscriptions", "subscriptions_current", is_wide=True),
    Column("session expiry", expiry, is_wide=True),
    Column("keep alive", lambda item: f"{item['keep_alive']} s", is_wide=True),
    Column("received", "packets_received_nums", is_wide=True),
    Column("sent", "packets_send_nums", is_wide=True),
    Column("bytes received", "packets_received_bytes", is_wide=True),
    Column("bytes sent", "packets_send_bytes", is_wide=True),
)


@click.group(cls=Group)
def clients() -> None:
    """The clients with a session on one node. `sessions move` moves one to another node."""


clients.add_command(
    listing(
        "list",
        "List the clients with a session on one node, whose client id begins with PREFIX.",
        CLIENTS,
        "List",
        "clients",
        CLIENT_COLUMNS,
        "gmqttctl clients list --connected sensor-",
        (
            click.Argument(["client_id"], default="", metavar="[PREFIX]"),
            click.Option(["--user", "username"], metavar="NAME", help="Only clients of this user."),
            click.Option(["--address", "remote_addr"], metavar="PREFIX", help="Only addresses that begin so."),
            click.Option(
                ["--connected/--away", "connected"], default=None, help="Only clients that are connected, or away."
            ),
            click.Option(
                ["--link/--no-link", "link"], default=None, help="Only links, those of the node too, or no links."
            ),
        ),
        empty="no clients",
        key=("client_id",),
    )
)
clients.add_command(
    showing(
        "show",
        "Show one client. Of several servers, the one that has its session is found.",
        CLIENTS,
        "Get",
        tuple(Column(column.head, column.value) for column in CLIENT_COLUMNS),
        "gmqttctl clients show sensor-17",
        (client_argument(),),
        inside="client",
        is_known=lambda values: True,  # a node without its session refuses
    )
)
clients.add_command(
    changing(
        "kick",
        "Disconnect a client of a node. It may connect again; with --clean its session ends.",
        CLIENTS,
        "Delete",
        "gmqttctl clients kick sensor-17 --yes",
        (
            client_argument(),
            click.Option(
                ["--clean", "clean_session"], is_flag=True, help="Also end the session, with what waits for the client."
            ),
        ),
        done="{client_id} is disconnected",
        asks="Disconnect {client_id}?",
        known_by="client_id",
    )
)
clients.add_command(
    changing(
        "release",
        "Let the next client take up the session that a link of another domain has made, whoever its user is.",
        CLIENTS,
        "Release",
        "gmqttctl clients release north --yes",
        (client_argument(),),
        done="the session of {client_id} is released",
        asks="Let any client take up the session of {client_id}?",
    )
)

SUBSCRIPTION_COLUMNS: Final = (
    Column("client", "client_id"),
    Column("filter", "topic_name"),
    Column("qos"),
    Column("id", lambda item: item["id"] or ""),
    Column("no local", is_wide=True),
    Column("retain as published", is_wide=True),
    Column("retain handling", is_wide=True),
)


@click.group(cls=Group)
def subscriptions() -> None:
    """The subscriptions of the clients of one node."""


subscriptions.add_command(
    listing(
        "list",
        "List all subscriptions of one node.",
        SUBSCRIPTIONS,
        "List",
        "subscriptions",
        SUBSCRIPTION_COLUMNS,
        "gmqttctl subscriptions list",
        empty="no subscriptions",
        key=("client_id", "topic_name"),
    )
)


def limit_option() -> click.Option:
    return click.Option(
        ["--limit"], type=click.IntRange(1, 1000), default=1000, show_default=True, help="At most so many."
    )


def search(name: str, help_text: str, match: int, argument: str, example: str) -> click.Command:
    return listing(
        name,
        help_text,
        SUBSCRIPTIONS,
        "Filter",
        "subscriptions",
        SUBSCRIPTION_COLUMNS,
        example,
        (
            click.Argument(["topic_name"], metavar=argument),
            click.Option(["--client", "client_id"], metavar="ID", help="Only those of this client."),
            limit_option(),
        ),
        empty="no subscriptions",
        fixed={"match_type": match},
    )


subscriptions.add_command(
    search(
        "matching",
        "List the subscriptions whose filter matches the topic TOPIC.",
        MATCH_FILTER,
        "TOPIC",
        "gmqttctl subscriptions matching sensors/1/temperature",
    )
)
subscriptions.add_command(
    search(
        "of", "List the subscriptions to FILTER itself.", MATCH_NAME, "FILTER", "gmqttctl subscriptions of 'sensors/#'"
    )
)
subscriptions.add_command(
    listing(
        "client",
        "List the subscriptions of one client.",
        SUBSCRIPTIONS,
        "Filter",
        "subscriptions",
        SUBSCRIPTION_COLUMNS,
        "gmqttctl subscriptions client sensor-17",
        (client_argument(), limit_option()),
        empty="no subscriptions",
    )
)


@click.group(cls=Group)
def accounts() -> None:
    """The accounts of clients that log in with a password, in the password_file of one node."""


ACCOUNT_COLUMNS: Final = (Column("user", "username"), Column("role"))
accounts.add_command(
    listing(
        "list",
        "List the accounts.",
        ACCOUNTS,
        "List",
        "accounts",
        ACCOUNT_COLUMNS,
        "gmqttctl accounts list",
        empty="no accounts",
        key=("username",),
    )
)


accounts.add_command(
    listing(
        "locked-out",
        "List who is refused without a check after failed logins: a user name from one address, or all of an address.",
        ACCESS,
        "ListLockedOut",
        "locked_out",
        (
            Column("address"),
            Column("user", lambda item: item["username"] or "all"),
            Column("for", lambda item: f"{item['seconds']:.0f} s"),
        ),
        "gmqttctl accounts locked-out --watch",
        empty="nobody is locked out",
    )
)


def read_password(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value != "-":
        return value
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\n")


accounts.add_command(
    changing(
        "set",
        "Make an account, or set its password or its role. Clients of an account that has changed are disconnected.",
        ACCOUNTS,
        "Update",
        "gmqttctl accounts set site1",
        (
            click.Argument(["username"], metavar="USER"),
            click.Option(
                ["--password"],
                default="-",
                callback=read_password,
                help="Other users of the machine may see it. Without it, it is asked for, or the first line of standard input; "
                "empty: it stays.",
            ),
            click.Option(["--role"], help="link or link:DOMAIN: clients of the account may be links of other domains."),
        ),
        done="{username} is written",
    )
)
accounts.add_command(
    changing(
        "delete",
        "Delete an account, and disconnect its clients.",
        ACCOUNTS,
        "Delete",
        "gmqttctl accounts delete site1 --yes",
        (click.Argument(["username"], metavar="USER"),),
        done="{username} is deleted",
        asks="Delete the account {username}?",
        known_by="username",
    )
)

log_level: Any = changing(
    "log-level",
    "Change the level of the log of a node, until its next reload or restart.",
    NODE,
    "SetLogLevel",
    "gmqttctl log-level debug",
    (click.Argument(["level"], type=click.Choice(("debug", "info", "warn", "error"))),),
)
