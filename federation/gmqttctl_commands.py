"""The commands that this package adds to `gmqttctl` (entry point `gmqttctl.commands`)."""

from __future__ import annotations

from typing import Final

from gmqttctl.command_list import CommandList

COMMANDS: Final = CommandList(
    {
        "clear_parameter": (
            "federation.definitions.commands:clear_parameter",
            "Delete an upstream or an upstream set.",
        ),
        "clear_policy": ("federation.definitions.commands:clear_policy", "Delete a policy of links."),
        "definitions": ("federation.definitions.commands:definitions", "Export and import the definitions of links."),
        "drain": ("federation.sessions.commands:drain", "Give the clients and sessions of a node to other nodes."),
        "federation_status": ("federation.links.commands:federation_status", "Show the links of all nodes."),
        "import-mosquitto": (
            "federation.definitions.imports.commands:import_mosquitto",
            "Make definitions of links from bridges of mosquitto.",
        ),
        "import-rabbitmq": (
            "federation.definitions.imports.commands:import_rabbitmq",
            "Make definitions of links from RabbitMQ's federation.",
        ),
        "keys": ("federation.key_commands:keys", "List and rotate the keys that encrypt the gossip."),
        "list_clients": ("federation.client_commands:list_clients", "List the clients of a node."),
        "list_members": ("federation.member_commands:list_members", "List the members of the federation."),
        "list_parameters": ("federation.definitions.commands:list_parameters", "List upstreams and upstream sets."),
        "list_queues": ("federation.links.commands:list_queues", "List the queues of shared groups."),
        "list_policies": ("federation.definitions.commands:list_policies", "List the policies of links."),
        "mapping": ("federation.links.commands:mapping", "Try the topic mapping of a link."),
        "policy": ("federation.definitions.commands:policy", "Explain which policy of links a topic has."),
        "restart_federation_link": ("federation.links.commands:restart_federation_link", "Connect a link anew."),
        "session": ("federation.sessions.commands:session", "Show where the session of a client is."),
        "set_parameter": ("federation.definitions.commands:set_parameter", "Write an upstream or an upstream set."),
        "set_policy": ("federation.definitions.commands:set_policy", "Write a policy of links."),
        "set_tags": ("federation.member_commands:set_tags", "Change the tags that a node tells other members."),
        "undrain": ("federation.sessions.commands:undrain", "Let a node that is drained take clients again."),
    }
)
