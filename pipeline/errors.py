"""Errors of data source `mqtt`. Each text names the option or the node, and what would be right."""

from __future__ import annotations

from typing import Final

# What Spark and the commands on it need.
HOW_TO_INSTALL: Final = "pip install 'gmqttd[pipeline]' (in a checkout: pip install '.[pipeline]')"


class PipelineError(Exception):
    """Base of the errors of this package."""


class OptionError(PipelineError):
    """The value of an option is not right."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f'option {name}: "{value}" {reason}')


class NoAnswer(OptionError):
    """None of `servers` answers."""


class DataLoss(PipelineError):
    """Records that the query did not read are gone, and failOnDataLoss is true."""


class NodeError(PipelineError):
    """A node refused a request, or failed."""

    def __init__(self, node: str, text: str) -> None:
        super().__init__(f"node {node}: {text}")
        self.node = node
        self.text = text


class NodeAway(NodeError):
    """The node does not answer."""


class NoEventLog(NodeError):
    """The node answers, and has no event log."""


class WrongLog(NodeError):
    """The node's log has another id."""


class OutOfRange(NodeError):
    """The node's log does not have that offset."""
