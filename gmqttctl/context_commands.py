"""The commands `gmqttctl context` and `completion`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from gmqttctl.command import Command, Group
from gmqttctl.connection import Given
from gmqttctl.connection_options import TOKEN_FILE, server_options
from gmqttctl.contexts import file_path, read_contexts, write_contexts
from gmqttctl.errors import CommandError
from gmqttctl.output import Column, Output, output_options


@click.group(cls=Group)
def context() -> None:
    """Names for servers and the tokens that they take."""


@context.command(example="gmqttctl context add prod --server 10.0.0.1:8084,10.0.0.2:8084 --token-file ~/prod.token")
@server_options
@click.argument("name")
def add(name: str, **given: Any) -> None:
    """Make a context, or replace it. The first one is the current one."""
    values = {key: "true" if value is True else str(value) for key, value in given.items() if value is not None}
    for key in ("tokenFile", "tlsCaFile", "tlsCertFile", "tlsKeyFile"):
        if key in values:
            values[key] = str(Path(values[key]).expanduser().absolute())
    Given({key: value for key, value in values.items() if key != TOKEN_FILE}).connection()
    contexts = read_contexts()
    contexts.by_name[name] = values
    contexts.current = contexts.current or name
    write_contexts(contexts)
    click.echo(f"{file_path()}: context {name}{' is the current one' if contexts.current == name else ''}")


@context.command(example="gmqttctl context use prod")
@click.argument("name")
def use(name: str) -> None:
    """Make a context the current one."""
    contexts = read_contexts()
    contexts.get(name)
    contexts.current = name
    write_contexts(contexts)


@context.command(example="gmqttctl context delete prod")
@click.argument("name")
def delete(name: str) -> None:
    """Delete a context."""
    contexts = read_contexts()
    contexts.get(name)
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = ""
    write_contexts(contexts)


@context.command("list", example="gmqttctl context list")
@output_options
def list_(output: Output) -> None:
    """List the contexts."""
    contexts = read_contexts()
    wanted = os.environ.get("GMQTTCTL_CONTEXT") or contexts.current
    items = [{"name": name, "current": name == wanted, **values} for name, values in sorted(contexts.by_name.items())]
    columns = (
        Column("name"),
        Column("current", lambda item: "*" if item["current"] else ""),
        Column("servers"),
        Column("token file", TOKEN_FILE),
        Column("tls"),
    )
    output.show({"contexts": items}, "contexts", columns, "no contexts: gmqttctl context add makes one")


@click.command(
    cls=Command,
    example='eval "$(gmqttctl completion bash)"    # in ~/.bashrc\n'
    'eval "$(gmqttctl completion zsh)"    # in ~/.zshrc, below compinit\n'
    "gmqttctl completion fish | source    # in ~/.config/fish/config.fish",
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print what makes a shell complete commands and options, for its start-up file."""
    found = get_completion_class(shell)
    if found is None:
        raise CommandError(f"click has no completion for {shell}")
    click.echo(found(click.get_current_context().find_root().command, {}, "gmqttctl", "_GMQTTCTL_COMPLETE").source())
