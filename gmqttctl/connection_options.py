"""The options of `gmqttctl` that say where the nodes are. They become options of the data source."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

import click

from gmqttctl.connection import CONNECTION_NAMES

DEFAULT_SERVER: Final = "127.0.0.1:8084"

Command = TypeVar("Command", bound=Callable[..., Any])


def connection_options(command: Command) -> Command:
    """Adds the options. The command gets them as `connection`, a dict of options of the data source."""

    @click.option(
        "--servers",
        default=DEFAULT_SERVER,
        show_default=True,
        envvar="GMQTTCTL_SERVERS",
        metavar="HOST:PORT,…",
        help="gRPC APIs of nodes. The other nodes are found by asking these.",
    )
    @click.option("--token", envvar="GMQTTCTL_TOKEN", help="Sent with each call, for an API that asks for it.")
    @click.option("--tls", is_flag=True, default=None, help="Connect with TLS.")
    @click.option("--tls-ca-file", "tlsCaFile", metavar="FILE", help="Authorities (PEM) instead of the system's.")
    @click.option("--tls-cert-file", "tlsCertFile", metavar="FILE", help="Client certificate (PEM).")
    @click.option("--tls-key-file", "tlsKeyFile", metavar="FILE", help="Key of the client certificate (PEM).")
    @wraps(command)
    def with_connection(**arguments: Any) -> Any:
        given = {name: arguments.pop(name) for name in CONNECTION_NAMES}
        connection = {name: "true" if value is True else value for name, value in given.items() if value is not None}
        return command(connection=connection, **arguments)

    return with_connection  # type: ignore[return-value]  # it takes more options than the command
