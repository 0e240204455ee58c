"""The commands that this package adds to `gmqttctl` (entry point `gmqttctl.commands`)."""

from __future__ import annotations

from typing import Final

from gmqttctl.command_list import CommandList
from pipeline.errors import HOW_TO_INSTALL

COMMANDS: Final = CommandList(
    "Event logs",
    {
        "log": ("pipeline.log_commands:log", "Look at event logs, follow and export them."),
        "pipeline": (
            "pipeline.pipeline_commands:pipeline",
            "Run jobs over the event logs: archive, rollup, alerts and others.",
        ),
        "replay": ("pipeline.replay_command:replay", "Publish logged or archived messages again."),
    },
    how_to_install=HOW_TO_INSTALL,
)
