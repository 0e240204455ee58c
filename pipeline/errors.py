"""Errors of data source `mqtt`. Each text names the option or the node, and what would be right."""

from __future__ import annotations

from typing import Final

from gmqttctl.errors import EXIT_NO_ANSWER, CommandError, NodeError, OptionError

__all__ = [
    "HOW_TO_INSTALL",
    "DataLoss",
    "NoAnswer",
    "NoEventLog",
    "NodeAway",
    "NodeError",
    "NotTrusted",
    "OptionError",
    "OutOfRange",
    "PipelineError",
    "WrongLog",
]

# What Spark and the commands on it need.
HOW_TO_INSTALL: Final = "pip install 'gmqttd[pipeline]' (in a checkout: pip install '.[pipeline]')"


class PipelineError(CommandError):
    """An error that stops a pipeline."""


class NoAnswer(OptionError):
    """None of `servers` answers."""

    exit_status = EXIT_NO_ANSWER


class DataLoss(PipelineError):
    """Records that the query did not read are gone, and failOnDataLoss is true."""


class NodeAway(NodeError):
    """The node does not answer."""

    exit_status = EXIT_NO_ANSWER


class NotTrusted(NodeAway):
    """The node was not asked: the token is not for each address that a member may have."""


class NoEventLog(NodeError):
    """The node answers, and has no event log."""


class WrongLog(NodeError):
    """The node's log has another id."""


class OutOfRange(NodeError):
    """The node's log does not have that offset."""
