"""The error of a command of `gmqttd`, and the exit statuses. 0 is success, also after a requested stop."""

from __future__ import annotations

from typing import IO, Any, Final

import click

EXIT_FAILED: Final = 1  # the last line on standard error gives the reason
EXIT_BAD_CONFIGURATION: Final = 2  # a retry without changes fails again


class CommandFault(click.ClickException):
    """The command cannot be done. The text says why, without secrets."""

    exit_code = EXIT_FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"gmqttd: {self.message}", err=True)
