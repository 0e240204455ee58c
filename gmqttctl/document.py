"""docs/cli.md, from the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from gmqttctl.cli import lists, main
from gmqttctl.command import Command
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import EXIT_STATUSES
from gmqttctl.output import output_options

INTRODUCTION: Final = """# gmqttctl

The operator's command calls the gRPC API of a node (`api.grpc` of its configuration), the same calls as
[REST](rest.md) has, and shows the answer. It is made by `scripts/build_docs` from the commands.

    $ gmqttctl context add prod --server 10.0.0.1:8084,10.0.0.2:8084 --token-file ~/prod.token
    $ gmqttctl status
    n1  gmqttd 0.1.0 compiled, up 3d 2h, 10.0.0.1:1883
    clients 12 connected, 14 sessions, 20 subscriptions, 5 retained, 0 waiting, 0 dropped
    copies 1 of 1 whole, at n2

    node  workers  status  zone  round trip  stream     waiting
    n1    -        alive   -     -           -          -
    n2    -        alive   -     0.4 ms      streaming  0 B

    ok: all is well
    $ gmqttctl explain a/b --client reader
    client  node  filter  qos  state      reads    rule                          link of
    reader  n1    a/#       0  connected  allowed  acl_file: topic readwrite #   -
    other nodes: none has a subscription
    may publish: allowed; acl_file: topic readwrite #
    may read: allowed; acl_file: topic readwrite #

`gmqttctl top` shows rates, the busiest topics and the fullest queues as they change, `gmqttctl doctor` writes one archive
for a report of a fault.

A command is a noun and a verb; without a verb it lists. Of several servers the first one that takes a connection
is asked, and no other one for a call that it did not answer; `backup`, `members leave` and `members tags` want one. A context
keeps the servers, the file of the token and the files of TLS under a name, in `~/.config/gmqttctl/contexts.yml`, which has
no secret itself. What an option says goes before the environment (`GMQTTCTL_SERVERS`, `GMQTTCTL_TOKEN`,
`GMQTTCTL_CONTEXT`, `GMQTTCTL_OUTPUT`), and this before the current context; where servers are given, the current context is
not used, so that its token goes to no other cluster. For the same reason `--context` leaves `GMQTTCTL_SERVERS` and
`GMQTTCTL_TOKEN` out, and `--server` leaves `GMQTTCTL_CONTEXT` out.

`-o json` and `-o yaml` give what REST answers, `-o name` one name on each line, `-o wide` all columns. Control characters,
line ends and marks of direction in names of clients and topics are shown as escapes. What destroys something asks; scripts
give `--yes`. `gmqttctl completion bash|zsh|fish` makes a shell complete commands. The names of rabbitmqctl
(`set_parameter`, `list_policies` …) and those of earlier versions work too.
"""


def cli_markdown() -> str:
    """The whole page."""
    rows = "".join(f"| {status} | {meaning} |\n" for status, meaning in EXIT_STATUSES.items())
    lines = [INTRODUCTION, "## Exit status\n", f"| status | meaning |\n| --- | --- |\n{rows}"]
    lines += ["## Options of each call\n", _options(_with_all_options, set())]
    common = {parameter.name for parameter in _with_all_options.params} | {"help"}
    for each in lists():
        lines.append(f"## {each.title}\n")
        for name in sorted(name for name, (_, text) in each.commands.items() if text):
            command = main.get_command(click.Context(main), name)
            assert command is not None
            lines += _of_command(name, command, common)
    return "\n".join(lines)


@click.command()
@connection_options
@output_options
def _with_all_options() -> None: ...


def _of_command(words: str, command: click.Command, common: set[str]) -> Iterator[str]:
    text = " ".join((command.help or "").split())
    if isinstance(command, click.Group):
        yield f"### {words}\n\n{text}\n"
        for name, inner in sorted(command.commands.items()):
            yield from _of_command(f"{words} {name}", inner, common)
        return
    context = click.Context(command, info_name=words)
    arguments = " ".join(part for part in command.collect_usage_pieces(context) if part != "[OPTIONS]")
    level = "####" if " " in words else "###"
    yield f"{level} {words} {arguments}".rstrip() + f"\n\n{text}\n"
    if isinstance(command, Command):
        yield "".join(f"    {line.strip()}\n" for line in command.example.splitlines())
    options = _options(command, common)
    if options:
        yield options


def _options(command: click.Command, without: set[str]) -> str:
    context = click.Context(command)
    records = [
        parameter.get_help_record(context)
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name not in without
    ]
    rows = [" | ".join((f"`{_cell(record[0])}`", _cell(record[1]))) for record in records if record is not None]
    return "| option | meaning |\n| --- | --- |\n" + "".join(f"| {row} |\n" for row in rows) if rows else ""


def _cell(text: str) -> str:
    """A bar within a cell is escaped."""
    return " ".join(text.split()).replace("|", "\\|")
