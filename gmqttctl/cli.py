"""The command `gmqttctl`: its commands are those that installed packages add by the entry point `gmqttctl.commands`.

A module of a command is imported when the command is used: `gmqttctl --help` imports none, `gmqttctl log` works without Spark.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

import click

from gmqttctl.command_list import CommandList
from gmqttctl.errors import CommandError

ENTRY_POINT: Final = "gmqttctl.commands"
HOW_TO_INSTALL: Final = "gmqttctl.how_to_install"  # of the command that was named; a key of click's context
EXIT_FAILED: Final = 1


@cache
def installed() -> dict[str, CommandList]:
    """Name of a command -> the list that it is in."""
    lists: list[CommandList] = [entry.load() for entry in entry_points(group=ENTRY_POINT)]
    return {name: each for each in lists for name in each.commands}


class Commands(click.Group):
    """Imports a command when it is used. A CommandError and a package that an extra brings are one line."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(installed())

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if not installed():
            raise CommandError(f"no package adds commands (entry point {ENTRY_POINT}): install gmqttd again")
        if name not in installed():
            return None
        found = installed()[name]
        context.meta[HOW_TO_INSTALL] = found.how_to_install
        module, attribute = found.commands[name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, installed()[name].commands[name][1]) for name in self.list_commands(context)])

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except CommandError as error:
            fault = str(error)
        except ModuleNotFoundError as error:
            how_to_install = context.meta.get(HOW_TO_INSTALL)
            if not how_to_install:
                raise
            name = (error.name or "").partition(".")[0]
            fault = f"this command needs the package {name}, which is not installed. To install it: {how_to_install}"
        click.echo(f"gmqttctl: {fault}", err=True)
        sys.exit(EXIT_FAILED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gmqttd", prog_name="gmqttctl", message="%(prog)s %(version)s")
def main() -> None:
    """Clients, links and event logs of a federation, and pipelines that read the logs."""


if __name__ == "__main__":  # for spark-submit
    main()
