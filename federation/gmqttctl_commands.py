"""The commands that this package adds to `gmqttctl` (entry point `gmqttctl.commands`)."""

from __future__ import annotations

from typing import Final

from gmqttctl.command_list import CommandList

COMMANDS: Final = CommandList(
    "The federation",
    {
        "backup": ("federation.backup_commands:backup", "Write what a node keeps to a file, while it runs."),
        "definitions": (
            "federation.definitions.commands:definitions",
            "Definitions of links: export, import, from other brokers.",
        ),
        "doctor": ("federation.status_commands:doctor", "One archive for a report of a fault, without secrets."),
        "drain": ("federation.sessions.commands:drain", "Give the clients and sessions of a node to other nodes."),
        "explain": (
            "federation.explain_command:explain",
            "Who gets the messages of a topic, through what, by which rule.",
        ),
        "health": ("federation.status_commands:health", "May clients be sent to a node? The exit status says it."),
        "keys": ("federation.key_commands:keys", "Keys that encrypt the gossip: list, install, use, remove."),
        "links": ("federation.links.commands:links", "Links to other domains: list, restart."),
        "mapping": ("federation.links.commands:mapping", "Try the topic mapping of a link."),
        "members": ("federation.member_commands:members", "Members: list, join, leave, force-leave, tags."),
        "peers": ("federation.member_commands:peers", "Event streams to other nodes."),
        "policies": ("federation.definitions.commands:policies", "Policies of links: list, set, delete, explain."),
        "queues": ("federation.links.commands:queues", "Queues of shared groups."),
        "restore": ("federation.backup_commands:restore", "Bring a backup to a machine, before its node is started."),
        "sessions": (
            "federation.sessions.commands:sessions",
            "Sessions: list, show where one is, move it to another node.",
        ),
        "status": (
            "federation.status_commands:status",
            "A node and its cluster on one screen; the exit status says health.",
        ),
        "undrain": ("federation.sessions.commands:undrain", "Let a node that is drained take clients again."),
        "upgrade": ("federation.upgrade_command:upgrade", "Start the nodes of a cluster again, one after the other."),
        "upstream-sets": ("federation.definitions.commands:upstream_sets", "Sets of upstreams: list, set, delete."),
        "upstreams": ("federation.definitions.commands:upstreams", "Upstreams of links: list, set, delete."),
        # As in RabbitMQ, whose arguments these have.
        "clear_parameter": ("federation.definitions.commands:clear_parameter", ""),
        "list_parameters": ("federation.definitions.commands:list_parameters", ""),
        "set_parameter": ("federation.definitions.commands:set_parameter", ""),
    },
    {
        "clients move": "sessions move",
        "clear_policy": "policies delete --yes",
        "federation_status": "links list",
        "import-mosquitto": "definitions from-mosquitto",
        "import-rabbitmq": "definitions from-rabbitmq",
        "list_members": "members list",
        "list_policies": "policies list",
        "list_queues": "queues list",
        "policy": "policies",
        "restart_federation_link": "links restart",
        "session": "sessions show",
        "set_policy": "policies set",
        "set_tags": "members tags",
    },
)
