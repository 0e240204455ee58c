"""The command `gmqttctl`: clients, links and event logs of a federation, and the pipelines that read them.

Each group of commands is a module that is imported when it is used: `gmqttctl log` works without Spark.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

import click

from pipeline.errors import HOW_TO_INSTALL, PipelineError

EXIT_FAILED: Final = 1
OWN: Final = ("broker", "federation", "pipeline")  # packages of this project

# Name of the command -> where it is, and its line in the help.
COMMANDS: Final = {
    "clear_parameter": ("federation.definitions.commands:clear_parameter", "Delete an upstream or an upstream set."),
    "clear_policy": ("federation.definitions.commands:clear_policy", "Delete a policy of links."),
    "definitions": ("federation.definitions.commands:definitions", "Export and import the definitions of links."),
    "federation_status": ("federation.links.status_commands:federation_status", "Show the links of all nodes."),
    "import-mosquitto": (
        "federation.definitions.imports.commands:import_mosquitto",
        "Make definitions of links from bridges of mosquitto.",
    ),
    "import-rabbitmq": (
        "federation.definitions.imports.commands:import_rabbitmq",
        "Make definitions of links from RabbitMQ's federation.",
    ),
    "list_clients": ("federation.client_commands:list_clients", "List the clients of a node."),
    "list_parameters": ("federation.definitions.commands:list_parameters", "List upstreams and upstream sets."),
    "list_queues": ("federation.links.queue_commands:list_queues", "List the queues of shared groups."),
    "list_policies": ("federation.definitions.commands:list_policies", "List the policies of links."),
    "log": ("pipeline.log_commands:log", "Look at event logs, follow and export them."),
    "mapping": ("federation.links.mapping_command:mapping", "Try the topic mapping of a link."),
    "pipeline": (
        "pipeline.pipeline_commands:pipeline",
        "Run jobs over the event logs: archive, rollup, alerts and others.",
    ),
    "policy": ("federation.definitions.commands:policy", "Explain which policy of links a topic has."),
    "replay": ("pipeline.replay_command:replay", "Publish logged or archived messages again."),
    "restart_federation_link": (
        "federation.links.status_commands:restart_federation_link",
        "Connect a link anew.",
    ),
    "set_parameter": ("federation.definitions.commands:set_parameter", "Write an upstream or an upstream set."),
    "set_policy": ("federation.definitions.commands:set_policy", "Write a policy of links."),
}


class Commands(click.Group):
    """Imports a command when it is used. An error of a pipeline, and a missing package, is one line."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        place = COMMANDS.get(name)
        if place is None:
            return None
        module, attribute = place[0].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(context)])

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except PipelineError as error:
            fault = str(error)
        except ModuleNotFoundError as error:
            name = (error.name or "").partition(".")[0]
            if name in OWN:
                raise
            fault = f"this command needs the package {name}, which is not installed. To install it: {HOW_TO_INSTALL}"
        click.echo(f"gmqttctl: {fault}", err=True)
        sys.exit(EXIT_FAILED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gmqttd", prog_name="gmqttctl", message="%(prog)s %(version)s")
def main() -> None:
    """Clients, links and event logs of a federation, and pipelines that read the logs."""


if __name__ == "__main__":  # for spark-submit
    main()
