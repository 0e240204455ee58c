"""The command `gmqttctl upgrade`: the nodes of a cluster are drained and started again, one after the other."""

# not a core: a command
from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import click

from federation.services import SESSIONS
from federation.sessions.drain import DRAINED, RATE_DEFAULT, RATE_MAX, SERVING
from federation.status_commands import ask
from gmqttctl.command import Command
from gmqttctl.connection import Connection, read_connection
from gmqttctl.connection_options import connection_options
from gmqttctl.errors import CommandError, NoAnswer, NotNow
from gmqttctl.listing import confirm, yes_option
from gmqttctl.node_calls import NodeCalls
from gmqttctl.service import NODE
from gmqttctl.text import printable

LOOK_SECONDS: Final = 0.5
PLACES: Final = ("{node}", "{host}", "{server}")

Restart = Callable[[str, str], None]
"""(name of a node, address of its API). Raises CommandError."""


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """rate     clients and sessions a second that a node gives away
    seconds  for each step: draining, being back, being whole again
    """

    rate: int
    seconds: float


class Upgrade:
    """One node at a time: all is well, drain, restart, all is well again. `say` is told each step."""

    def __init__(self, connection: Connection, restart: Restart, plan: UpgradePlan, say: Callable[[str], None]) -> None:
        self._connection = connection
        self._restart = restart
        self._plan = plan
        self._say = say
        self._noted: set[str] = set()  # what is not known of older nodes is said once

    def run(self) -> None:
        """Raises CommandError at the first node that does not come through; a node that was not restarted serves again."""
        names = {server: self._name_of(server) for server in self._connection.servers}
        if len(names) < 2:
            raise CommandError("--server names one node; name the API of each node of the cluster")
        twice = {name for name in names.values() if list(names.values()).count(name) > 1}
        if twice:
            raise CommandError(f"--server names the node {printable(', '.join(sorted(twice)))} twice")
        for server, name in names.items():
            self._say(f"{name}: waits until all nodes are well")
            self._wait_well(names)
            before = self._started_at(server)
            try:
                self._drain(server, name)
                self._say(f"{name}: restart")
                self._restart(name, server)
            except (CommandError, KeyboardInterrupt):
                with suppress(CommandError):
                    if self._started_at(server) == before:
                        self._calls(server, lambda calls: calls.call(SESSIONS, "Undrain"))
                raise
            self._wait_back(server, name, before)
            self._say(f"{name}: is back")
        self._say("waits until all nodes are well")
        self._wait_well(names)
        self._say("all nodes are upgraded")

    def _calls(self, server: str, what: Callable[[NodeCalls], Any]) -> Any:
        with NodeCalls(replace(self._connection, servers=(server,))) as calls:
            return what(calls)

    def _name_of(self, server: str) -> str:
        return str(self._calls(server, lambda calls: calls.call(NODE, "Get").node_name))

    def _started_at(self, server: str) -> Any:
        return self._calls(server, lambda calls: calls.values(NODE, "Get")["started_at"])

    def _wait_well(self, names: dict[str, str]) -> None:
        """Until no node sees a fault, and each sees all others."""
        until = time.monotonic() + self._plan.seconds
        while True:
            wrong = [
                f"{name}: {text}" for server, name in names.items() for text in self._wrong(server, name, len(names))
            ]
            if not wrong:
                return
            if time.monotonic() >= until:
                raise CommandError(f"not all is well after {self._plan.seconds:g} s: {'; '.join(wrong)}")
            time.sleep(LOOK_SECONDS)

    def _wrong(self, server: str, name: str, count: int) -> list[str]:
        try:
            found = self._calls(server, ask)
        except (NoAnswer, NotNow) as error:
            return [error.text]
        for note in found["notes"]:
            if name not in self._noted:
                self._noted.add(name)
                self._say(f"{name}: {note}")
        members = found.get("members", {}).get("members", [])
        alive = sum(member["status"] == "STATUS_ALIVE" for member in members)
        alarms = [alarm["text"] for alarm in found["alarms"]]
        return [*alarms, *([] if alive >= count else [f"it sees {alive} of {count} members"])]

    def _drain(self, server: str, name: str) -> None:
        status = self._calls(server, lambda calls: calls.call(SESSIONS, "Drain", {"rate": self._plan.rate}))
        until = time.monotonic() + self._plan.seconds
        while status.state != DRAINED:
            if status.state == SERVING:
                raise CommandError(f"the drain of {name} was ended meanwhile")
            if time.monotonic() >= until:
                left = f"{status.clients_left} clients and {status.sessions_left} sessions are left"
                raise CommandError(
                    f"{name} is not drained after {self._plan.seconds:g} s: {left}; --seconds gives more time"
                )
            self._say(f"{name}: drains, {status.clients_left} clients and {status.sessions_left} sessions are left")
            time.sleep(LOOK_SECONDS)
            status = self._calls(server, lambda calls: calls.call(SESSIONS, "GetDrain"))

    def _wait_back(self, server: str, name: str, before: Any) -> None:
        until = time.monotonic() + self._plan.seconds
        while True:
            why = "it runs since before"
            try:
                if self._started_at(server) != before:
                    return
            except (NoAnswer, NotNow) as error:
                why = error.text
            if time.monotonic() >= until:
                raise CommandError(f"{name} is not back after {self._plan.seconds:g} s: {why}")
            time.sleep(LOOK_SECONDS)


def restart_by(command: str) -> Restart:
    """Runs a command line with the places of a node in it."""

    def restart(name: str, server: str) -> None:
        line = command
        for place, value in zip(PLACES, (name, server.rpartition(":")[0], server), strict=True):
            line = line.replace(place, shlex.quote(value))
        done = subprocess.run(line, shell=True, check=False)
        if done.returncode:
            raise CommandError(f"{printable(name)}: the exit status of `{printable(line)}` is {done.returncode}")

    return restart


@click.command(
    cls=Command,
    example="gmqttctl upgrade --server n1:8084,n2:8084,n3:8084 --restart 'ssh {host} sudo systemctl restart gmqttd'",
)
@connection_options
@yes_option
@click.option(
    "--restart",
    "command",
    required=True,
    metavar="COMMAND",
    help="Run by the shell for each node, and ends when the node is started again. {node} is its name, {host} and {server} "
    "the host and the address of its API.",
)
@click.option(
    "--rate",
    type=click.IntRange(1, RATE_MAX),
    default=RATE_DEFAULT,
    show_default=True,
    help="Clients and sessions a second that a node gives away.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=600.0,
    show_default=True,
    help="For each step of a node: draining, being back, being whole.",
)
def upgrade(connection: dict[str, str], is_sure: bool, command: str, rate: int, seconds: float) -> None:
    """Start all nodes of a cluster again, one after the other, for example with a new version: wait until all nodes are well,
    drain one, run COMMAND, wait until it is back and all nodes are well. It ends at the first fault, and a node that was not
    restarted serves again."""
    servers = read_connection(connection)
    confirm(f"Restart {len(servers.servers)} nodes one after the other?", is_sure)
    Upgrade(servers, restart_by(command), UpgradePlan(rate, seconds), lambda text: click.echo(printable(text))).run()
