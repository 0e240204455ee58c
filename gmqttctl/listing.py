"""Commands from a table: a call of the API, the parameters that are fields of its request, what a person sees of the answer.

A parameter of click has the name of the request's field; one that was not given is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from gmqttctl.command import Command
from gmqttctl.connection import read_connection, read_one_server
from gmqttctl.connection_options import connection_options
from gmqttctl.output import Column, Output, output_options
from gmqttctl.service import Service
from gmqttctl.text import printable

PAGE_SIZE: Final = 1000
yes_option = click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")


def request_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request: what was given."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value not in (None, "", ())
    }


def listing(
    name: str,
    help_text: str,
    service: Service,
    method: str,
    items: str,
    columns: Sequence[Column],
    example: str,
    params: Sequence[click.Parameter] = (),
    empty: str = "none",
    key: Sequence[str] = (),
    notes: Callable[[dict[str, Any]], Sequence[str]] = lambda values: (),
    fixed: Mapping[str, Any] | None = None,
) -> Command:
    """A command that lists. `fixed` are fields of the request beside those of parameters. `key` are the fields that tell items
    of a list with pages apart: between two pages items come and go, and one may move to the next page. `notes` are lines below
    the table."""

    @connection_options
    @output_options
    def run(connection: dict[str, str], output: Output, **given: Any) -> None:
        from gmqttctl.node_calls import NodeCalls

        given.update(fixed or {})
        with NodeCalls(read_connection(connection)) as calls:

            def show() -> None:
                values = _all_pages(calls, given) if key else calls.values(service, method, request_of(given))
                output.show(values, items, columns, empty, notes(values))

            output.repeat(show)

    def _all_pages(calls: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[tuple[str, ...], Any] = {}
        request = {**request_of(given), "page_size": PAGE_SIZE, "page": 0}
        while True:
            request["page"] += 1
            page = calls.values(service, method, request)[items]
            found.update((tuple(str(item[name]) for name in key), item) for item in page)
            if len(page) < PAGE_SIZE:
                return {items: list(found.values())}

    return _made(name, help_text, example, params, run)


def showing(
    name: str,
    help_text: str,
    service: Service,
    method: str,
    columns: Sequence[Column],
    example: str,
    params: Sequence[click.Parameter] = (),
    inside: str = "",
    is_known: Callable[[dict[str, Any]], bool] | None = None,
) -> Command:
    """A command that shows one thing: the answer, or what is `inside` of it. With `is_known`, other servers are asked where the
    first one does not know it; standard error tells which one did."""

    @connection_options
    @output_options
    def run(connection: dict[str, str], output: Output, **given: Any) -> None:
        from gmqttctl.node_calls import NodeCalls, ask_until_known

        servers = read_connection(connection)

        def show() -> None:
            if is_known is None:
                with NodeCalls(servers) as calls:
                    values = calls.values(service, method, request_of(given))
            else:
                values, told = ask_until_known(servers, service, method, request_of(given), is_known)
                if told:
                    click.echo(f"gmqttctl: {printable(told)}", err=True)
            output.show_one(values[inside] if inside else values, columns)

        output.repeat(show)

    return _made(name, help_text, example, params, run)


def changing(
    name: str,
    help_text: str,
    service: Service,
    method: str,
    example: str,
    params: Sequence[click.Parameter] = (),
    done: str = "",
    asks: str = "",
    is_of_one_server: bool = False,
    known_by: str = "",
) -> Command:
    """A command that changes something. `done` is said afterwards; `asks` is asked before, unless --yes is given: both may name
    parameters, as `{client_id}`. `is_of_one_server`: what changes is that of the node that is asked. `known_by`: the field of
    `Get` of the service, which is called before, where `method` takes an unknown thing for done."""

    @connection_options
    def run(connection: dict[str, str], is_sure: bool = False, **given: Any) -> None:
        from gmqttctl.node_calls import NodeCalls

        servers = read_one_server(connection) if is_of_one_server else read_connection(connection)
        if asks:
            confirm(asks.format(**given), is_sure)
        with NodeCalls(servers) as calls:
            if known_by:
                calls.call(service, "Get", {known_by: given[known_by]})
            calls.call(service, method, request_of(given))
        if done:
            click.echo(printable(done.format(**given)))

    return _made(name, help_text, example, params, yes_option(run) if asks else run)


def confirm(question: str, is_sure: bool) -> None:
    """Ask on a terminal. Raises click.UsageError where there is none, and click.Abort for another answer than yes."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Give --yes: there is no terminal to ask")
    click.confirm(question, abort=True)


def _made(name: str, help_text: str, example: str, params: Sequence[click.Parameter], run: Any) -> Command:
    made = click.command(name, cls=Command, help=help_text, example=example)(run)
    made.params[:0] = params
    return made
