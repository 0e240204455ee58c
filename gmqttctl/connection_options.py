"""The options of `gmqttctl` that say where the nodes are. They become options of the data source."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from gmqttctl.connection import CONNECTION_NAMES
from gmqttctl.contexts import read_contexts
from gmqttctl.errors import OptionError

DEFAULT_SERVER: Final = "127.0.0.1:8084"
TOKEN_FILE: Final = "tokenFile"
CONTEXT: Final = "context_name"
FLAGS: Final = {
    "servers": "--server",
    "token": "--token",
    TOKEN_FILE: "--token-file",
    "tls": "--tls",
    "tlsCaFile": "--tls-ca-file",
    "tlsCertFile": "--tls-cert-file",
    "tlsKeyFile": "--tls-key-file",
}
"""Name of an option of the data source -> that of the commands."""

Command = TypeVar("Command", bound=Callable[..., Any])


def flag_of(name: str) -> str:
    """An option of the data source as errors of commands name it."""
    return FLAGS.get(name, f"option {name}")


def server_options(command: Command) -> Command:
    """Adds the options that a context keeps."""
    for option in (
        click.option("--tls-key-file", "tlsKeyFile", metavar="FILE", help="Key of the client certificate (PEM)."),
        click.option("--tls-cert-file", "tlsCertFile", metavar="FILE", help="Client certificate (PEM)."),
        click.option("--tls-ca-file", "tlsCaFile", metavar="FILE", help="Authorities (PEM) instead of the system's."),
        click.option("--tls", is_flag=True, default=None, help="Connect with TLS."),
        click.option("--token-file", TOKEN_FILE, metavar="FILE", help="Its first line is the token."),
        click.option(
            "--server",
            "--servers",
            "servers",
            envvar="GMQTTCTL_SERVERS",
            metavar="HOST:PORT,…",
            help=f"gRPC APIs of nodes; the first that takes a connection is asked.  [default: {DEFAULT_SERVER}]",
        ),
    ):
        command = option(command)
    return command


def connection_options(command: Command) -> Command:
    """Adds the options. The command gets them as `connection`, a dict of options of the data source."""

    @click.option(
        "--context",
        CONTEXT,
        envvar="GMQTTCTL_CONTEXT",
        metavar="NAME",
        help="Servers and token of this context.  [default: the current one, without --server]",
    )
    @click.option("--token", envvar="GMQTTCTL_TOKEN", help="Sent with each call, for an API that asks for it.")
    @server_options
    @wraps(command)
    def with_connection(context_name: str | None, **arguments: Any) -> Any:
        names = (*CONNECTION_NAMES, TOKEN_FILE)
        source = click.get_current_context().get_parameter_source
        environment = [name for name in (CONTEXT, *names) if source(name) is ParameterSource.ENVIRONMENT]
        given = {name: arguments.pop(name) for name in names}
        given = {name: "true" if value is True else value for name, value in given.items() if value is not None}
        return command(connection=_connection(context_name, given, environment), **arguments)

    return with_connection  # type: ignore[return-value]  # it takes more options than the command


def _connection(context_name: str | None, given: dict[str, str], environment: Container[str]) -> dict[str, str]:
    """Options that were given go before the context. A context that is not named does not mix with other servers: its
    token would go to them. Where the command line says which cluster is meant, what the environment says of another one
    does not count; `environment` are the names of what comes from there. Raises CommandError."""
    if context_name and CONTEXT not in environment:
        given = {name: value for name, value in given.items() if name not in environment}
    elif "servers" in given and "servers" not in environment:
        context_name = None
    found: dict[str, str] = {}
    if context_name or "servers" not in given:
        contexts = read_contexts()
        name = context_name or contexts.current
        if name:
            found = dict(contexts.get(name))
    if "token" in given:
        found.pop(TOKEN_FILE, None)
    found = {"servers": DEFAULT_SERVER, **found, **given}
    file = found.pop(TOKEN_FILE, "")
    if file:
        found["token"] = read_token(file)
    return found


def read_token(file: str) -> str:
    """Raises OptionError."""
    try:
        lines = Path(file).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(TOKEN_FILE, file, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not lines or not lines[0].strip():
        raise OptionError(TOKEN_FILE, file, "has no token in its first line")
    return lines[0].strip()
