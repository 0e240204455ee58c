"""Errors that end a command with one line. Each text names the option or the node, and what would be right."""

from __future__ import annotations


class CommandError(Exception):
    """Base of the errors that `gmqttctl` shows without a trace."""


class OptionError(CommandError):
    """The value of an option is not right."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f'option {name}: "{value}" {reason}')


class NodeError(CommandError):
    """A node refused a request, or failed."""

    def __init__(self, node: str, text: str) -> None:
        super().__init__(f"node {node}: {text}")
        self.node = node
        self.text = text
