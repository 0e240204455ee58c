"""The click classes of all commands: an example in the help, a command that a group runs when none is named."""

from __future__ import annotations

from typing import Any, Final

import click

HELP_OPTIONS: Final = ("-h", "--help")


def first_sentence(command: click.Command) -> str:
    """What a list of commands says about one: all of the first sentence of its help."""
    text = " ".join((command.short_help or command.help or "").partition("\n\n")[0].split())
    return text.partition(". ")[0].removesuffix(".") + "." if text else ""


class Command(click.Command):
    """`example` has one command line on each of its lines."""

    def __init__(self, *arguments: Any, example: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.example = example

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        if self.example:
            with formatter.section("Example"):
                for line in self.example.splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line.strip()}\n")

    def get_short_help_str(self, limit: int = 0) -> str:
        return first_sentence(self)


class Group(click.Group):
    """`default` is the command that runs when none is named, `list` where there is one."""

    command_class = Command

    def __init__(self, *arguments: Any, default: str = "list", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.default = default

    def get_short_help_str(self, limit: int = 0) -> str:
        return first_sentence(self)

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        names_none = not arguments or (arguments[0].startswith("-") and arguments[0] not in HELP_OPTIONS)
        if names_none and self.default in self.commands and not context.resilient_parsing:
            arguments = [self.default, *arguments]
        return super().parse_args(context, arguments)
