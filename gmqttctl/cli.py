"""The command `gmqttctl`: its commands are those that installed packages add by the entry point `gmqttctl.commands`.

A module of a command is imported when the command is used: `gmqttctl --help` imports none, `gmqttctl log` works without Spark.
"""

from __future__ import annotations

import errno
import importlib
import sys
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

import click

from gmqttctl.command import HELP_OPTIONS
from gmqttctl.command_list import CommandList
from gmqttctl.connection_options import flag_of
from gmqttctl.errors import EXIT_FAILED, CommandError, OptionError
from gmqttctl.text import printable

ENTRY_POINT: Final = "gmqttctl.commands"
HOW_TO_INSTALL: Final = "gmqttctl.how_to_install"  # of the command that was named; a key of click's context


@cache
def lists() -> list[CommandList]:
    return [entry.load() for entry in sorted(entry_points(group=ENTRY_POINT), key=lambda entry: entry.name)]


@cache
def installed() -> dict[str, CommandList]:
    """Name of a command -> the list that it is in."""
    return {name: each for each in lists() for name in each.commands}


def escape_what_the_locale_lacks() -> None:
    """From now on a character that the locale cannot write is escaped, and no error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


class Commands(click.Group):
    """Imports a command when it is used. A CommandError and a package that an extra brings are one line."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(name for name, found in installed().items() if found.commands[name][1])

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

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        try:
            return super().parse_args(context, arguments)
        except click.NoSuchOption as error:
            text = f"No such option {error.option_name!r} before the command. Options come behind it: gmqttctl status -o json"
            raise click.UsageError(text, context) from error

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        aliases = {name: words for found in lists() for name, words in found.aliases.items()}
        for count in (2, 1):
            name = " ".join(arguments[:count])
            if name in aliases:
                arguments = [*aliases[name].split(), *arguments[count:]]
                break
        name, known = arguments[0], self.list_commands(context)
        if installed() and name not in installed() and not name.startswith("-") and not context.resilient_parsing:
            near = get_close_matches(name, known)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", context)
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for found in lists():
            rows = [(name, text) for name, (_, text) in sorted(found.commands.items()) if text]
            with formatter.section(found.title):
                formatter.write_dl(rows)

    def invoke(self, context: click.Context) -> Any:
        escape_what_the_locale_lacks()
        status = EXIT_FAILED
        try:
            return super().invoke(context)
        except OptionError as error:
            fault, status = str(error).replace(f"option {error.name}", flag_of(error.name), 1), error.exit_status
        except CommandError as error:
            fault, status = str(error), error.exit_status
        except OSError as error:
            if error.errno == errno.EPIPE:  # click ends without a word
                raise
            fault = f"{error.filename or 'the output'}: {error.strerror or error}"
        except ModuleNotFoundError as error:
            how_to_install = context.meta.get(HOW_TO_INSTALL)
            if not how_to_install:
                raise
            name = (error.name or "").partition(".")[0]
            fault = f"this command needs the package {name}, which is not installed. To install it: {how_to_install}"
        click.echo(f"gmqttctl: {printable(fault)}", err=True)
        sys.exit(status)


@click.group(cls=Commands, context_settings={"help_option_names": list(HELP_OPTIONS)})
@click.version_option(package_name="gmqttd", prog_name="gmqttctl", message="%(prog)s %(version)s")
def main() -> None:
    """Members, clients, links and event logs of a federation, and pipelines that read the logs.

    `gmqttctl COMMAND --help` shows an example of each command.
    """


if __name__ == "__main__":  # for spark-submit
    main()
