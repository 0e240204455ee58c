"""Errors that the membership tells its callers."""

from __future__ import annotations


class JoinFailed(Exception):
    """None of the hosts of a join answered. `errors`: the reason by host, as given."""

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__("; ".join(f"{host}: {text}" for host, text in errors.items()) or "no hosts were given")
        self.errors = errors


class NotRunning(Exception):
    """The membership has not started yet, or has stopped; the call may be repeated."""

    def __init__(self) -> None:
        super().__init__("the federation of this node is not running (yet)")
