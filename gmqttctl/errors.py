"""Errors that end a command with one line, and the exit statuses. Each text names the option or the node, and what would be
right."""

from __future__ import annotations

from typing import Final

EXIT_FAILED: Final = 1  # a node refused a request or failed, or the command did
EXIT_USAGE: Final = 2  # as click's
EXIT_NO_ANSWER: Final = 3
EXIT_NOT_ALLOWED: Final = 4
EXIT_NOT_FOUND: Final = 5
EXIT_NOT_HEALTHY: Final = 6

EXIT_STATUSES: Final = {
    0: "success; of `status` and `health`: all is well",
    EXIT_FAILED: "a node refused the request, or the command failed",
    EXIT_USAGE: "the command line is wrong",
    EXIT_NO_ANSWER: "no node answers",
    EXIT_NOT_ALLOWED: "the node does not know the token, or the token may not do this",
    EXIT_NOT_FOUND: "there is no client, definition … of this name",
    EXIT_NOT_HEALTHY: "the node answers, and `status` or `health` says what is wrong",
}
"""Status -> meaning, for people."""


class CommandError(Exception):
    """Base of the errors that `gmqttctl` shows without a trace."""

    exit_status = EXIT_FAILED


class OptionError(CommandError):
    """The value of an option is not right."""

    exit_status = EXIT_USAGE

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f'option {name}: "{value}" {reason}')
        self.name = name


class NodeError(CommandError):
    """A node refused a request, or failed."""

    def __init__(self, node: str, text: str) -> None:
        super().__init__(f"node {node}: {text}")
        self.node = node
        self.text = text


class NoAnswer(NodeError):
    """The node does not answer."""

    exit_status = EXIT_NO_ANSWER


class NotServed(NodeError):
    """The node does not have the service: its plugin is off."""


class NotNow(NodeError):
    """The node answers that it cannot do this now: it starts, or what it needs is away."""


class Refused(CommandError):
    """The node refused a call; the text is the node's."""


class NotAllowed(Refused):
    """The node does not know the token, or the token does not suffice."""

    exit_status = EXIT_NOT_ALLOWED


class NotFound(Refused):
    """There is no such thing."""

    exit_status = EXIT_NOT_FOUND
