"""The output of a command: a table for people, JSON, YAML or names, once or again and again.

Commands hand over the values of an answer as REST has them; columns say which of them a person sees, and how.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar

import click

from gmqttctl.errors import CommandError
from gmqttctl.text import aligned, printable

FORMATS: Final = ("table", "wide", "json", "yaml", "name")
WATCH_SECONDS: Final = 2.0
CELL_CHARACTERS_MAX: Final = 160  # of a table; -o wide shows all
NOTHING: Final = "-"
GOOD: Final = frozenset(("alive", "running", "streaming", "connected", "here", "serving", "ok", "applies", "allowed"))
BAD: Final = frozenset(("failed", "error", "invalid", "shutdown", "refused", "wrong", "no answer", "blocked"))
BETWEEN: Final = frozenset(("suspected", "leaving", "away", "backoff", "draining", "drained", "starting", "behind"))

Item = Mapping[str, Any]
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Column:
    """head     above the column
    value    the name of a field, or a function of the item; "" for the head with underscores
    is_wide  only with -o wide
    """

    head: str
    value: str | Callable[[Item], object] = ""
    is_wide: bool = False

    def text(self, item: Item) -> str:
        """The cell: on one line, without control characters, NOTHING for what is absent or empty."""
        found = item.get(self.value or self.head.replace(" ", "_")) if isinstance(self.value, str) else self.value(item)
        if isinstance(found, bool):
            found = "yes" if found else ""
        elif isinstance(found, Mapping):
            found = " ".join(f"{name}={value}" for name, value in sorted(found.items()))
        elif isinstance(found, list):
            found = ", ".join(map(str, found))
        return NOTHING if found is None or found == "" else printable(str(found))


def _cut(text: str, limit: int | None) -> str:
    """One long name does not make all rows long."""
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"


class Output:
    """format   one of FORMATS
    watches  whether the command shows its answer again and again
    color    None: where standard output is a terminal
    """

    def __init__(self, output_format: str, watches: bool, color: bool | None) -> None:
        self.format = output_format
        self.watches = watches
        self.color = color

    @property
    def is_for_people(self) -> bool:
        return self.format in ("table", "wide")

    def repeat(self, show: Callable[[], None]) -> None:
        """Call `show` once; with --watch each WATCH_SECONDS until Ctrl-C, also while no node answers."""
        if not self.watches:
            show()
            return
        with suppress(KeyboardInterrupt):
            while True:
                if self.is_for_people and sys.stdout.isatty():
                    click.clear()
                try:
                    show()
                except CommandError as error:
                    click.echo(f"gmqttctl: {printable(str(error))}", err=True)
                time.sleep(WATCH_SECONDS)

    def show(self, values: Item, items: str, columns: Sequence[Column], empty: str, notes: Iterable[str] = ()) -> None:
        """Show an answer with a list of items, by the name of its field. `empty` is said in place of a table without rows,
        `notes` are lines below it."""
        if self.format == "name":
            for item in values[items]:
                self.line(columns[0].text(item))
        elif self.is_for_people:
            for line in self.table(values[items], columns) if values[items] else [empty]:
                self.line(line)
            for line in notes:
                self.line(printable(line))
        else:
            self.document(values)

    def show_one(self, values: Item, columns: Sequence[Column]) -> None:
        """Show one thing: each column is a line."""
        if self.format == "name":
            self.line(columns[0].text(values))
        elif self.is_for_people:
            width = max(len(column.head) for column in columns)
            for column in columns:
                if not column.is_wide or self.format == "wide":
                    self.line(f"{column.head.ljust(width)}  {self.painted(column.text(values))}")
        else:
            self.document(values)

    def show_text(self, values: Any, lines: Callable[[Any], Iterable[str]]) -> None:
        """Show an answer that is more than one table: `lines` makes the text for people."""
        if self.is_for_people or self.format == "name":
            for line in lines(values):
                self.line(line)
        else:
            self.document(values)

    def table(self, items: Sequence[Item], columns: Sequence[Column]) -> list[str]:
        shown = [column for column in columns if not column.is_wide or self.format == "wide"]
        limit = CELL_CHARACTERS_MAX if self.format == "table" else None
        rows = [[_cut(column.text(item), limit) for column in shown] for item in items]
        return aligned([[column.head for column in shown], *rows], self.painted)

    def painted(self, cell: str) -> str:
        """A cell with the color of the state that it names. The word says it too."""
        word = cell.strip()
        color = "green" if word in GOOD else "red" if word in BAD else "yellow" if word in BETWEEN else ""
        return click.style(cell, fg=color) if color else cell

    def document(self, values: Item) -> None:
        """The whole answer as JSON or YAML; with --watch JSON has one line for each."""
        is_unicode = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
        if self.format == "yaml":
            import yaml

            text = yaml.safe_dump(dict(values), allow_unicode=is_unicode, sort_keys=False, explicit_start=self.watches)
            self.line(text.rstrip("\n"))
        else:
            self.line(json.dumps(values, indent=None if self.watches else 2, ensure_ascii=not is_unicode))

    def line(self, text: str) -> None:
        click.echo(text, color=self.color)


def format_options(command: Command) -> Command:
    """Adds the options of how answers are shown, for commands that show one after the other, each as one line of JSON. The
    command gets them as `output`."""

    @click.option(
        "-o",
        "--output",
        "output_format",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        envvar="GMQTTCTL_OUTPUT",
        help="wide: all columns, whole; name: only names.",
    )
    @click.option("--json", "as_json", is_flag=True, hidden=True)
    @click.option("--no-color", is_flag=True, help="No colors on a terminal; as NO_COLOR.")
    @wraps(command)
    def with_output(output_format: str, as_json: bool, no_color: bool, **arguments: Any) -> Any:
        color = False if no_color or os.environ.get("NO_COLOR") else None
        return command(output=Output("json" if as_json else output_format, True, color), **arguments)

    return with_output  # type: ignore[return-value]  # it takes more options than the command


def output_options(command: Command) -> Command:
    """Adds the options of what a command shows, once or with --watch again and again. The command gets them as `output`."""

    @format_options
    @click.option("-w", "--watch", is_flag=True, help=f"Look again every {WATCH_SECONDS:g} seconds until Ctrl-C.")
    @wraps(command)
    def with_watch(output: Output, watch: bool, **arguments: Any) -> Any:
        output.watches = watch
        return command(output=output, **arguments)

    return with_watch  # type: ignore[return-value]  # it takes more options than the command
