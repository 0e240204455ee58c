"""The commands that this package adds to `gmqttctl` (entry point `gmqttctl.commands`)."""

from __future__ import annotations

from typing import Final

from gmqttctl.command_list import CommandList

COMMANDS: Final = CommandList(
    "A node",
    {
        "acl": ("gmqttctl.topic_commands:acl", "May a client publish to a topic, and read it? Which rule says so."),
        "cert": ("gmqttctl.local_commands:cert", "Certificates by which nodes trust each other."),
        "config": ("gmqttctl.local_commands:config", "Configuration: show, check, diff."),
        "publish": ("gmqttctl.topic_commands:publish", "Publish a message."),
        "retained": ("gmqttctl.topic_commands:retained", "Retained messages: list, get, delete."),
        "tokens": ("gmqttctl.token_commands:tokens", "Tokens of the API of a node: list, create, delete."),
        "top": ("gmqttctl.top_command:top", "Rates, what waits, the busiest topics and clients, live."),
        "topics": ("gmqttctl.topic_commands:topics", "What is published, as a tree of topics by traffic."),
        "trace": ("gmqttctl.trace_command:trace", "Packets of a client, a topic filter or an address as they pass."),
        "accounts": ("gmqttctl.node_commands:accounts", "Accounts of clients: list, set, delete."),
        "clients": ("gmqttctl.node_commands:clients", "Clients of a node: list, show, kick, release."),
        "completion": ("gmqttctl.context_commands:completion", "Complete commands in bash, zsh and fish."),
        "context": ("gmqttctl.context_commands:context", "Remember servers and tokens under a name."),
        "log-level": ("gmqttctl.node_commands:log_level", "Change the level of the log of a node."),
        "subscribe": ("gmqttctl.topic_commands:subscribe", "Print messages as they come."),
        "subscriptions": ("gmqttctl.node_commands:subscriptions", "Subscriptions of a node: list, search."),
    },
    {"list_clients": "clients list"},
)
