"""The error of a command of `gmqttd`."""

from __future__ import annotations

from typing import IO, Any

import click

from broker.server.exit_status import EXIT_FAILED


class CommandFault(click.ClickException):
    """The command cannot be done. The text says why, without secrets."""

    exit_code = EXIT_FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"gmqttd: {self.message}", err=True)
