"""The commands that this package adds to `gmqttctl` (entry point `gmqttctl.commands`)."""

from __future__ import annotations

from typing import Final

from gmqttctl.command_list import CommandList

COMMANDS: Final = CommandList(
    "A node",
    {
        "accounts": ("gmqttctl.node_commands:accounts", "Accounts of clients: list, set, delete."),
        "clients": ("gmqttctl.node_commands:clients", "Clients of a node: list, show, kick, release."),
        "completion": ("gmqttctl.context_commands:completion", "Complete commands in bash, zsh and fish."),
        "context": ("gmqttctl.context_commands:context", "Remember servers and tokens under a name."),
        "log-level": ("gmqttctl.node_commands:log_level", "Change the level of the log of a node."),
        "subscriptions": ("gmqttctl.node_commands:subscriptions", "Subscriptions of a node: list, search."),
    },
    {"list_clients": "clients list"},
)
