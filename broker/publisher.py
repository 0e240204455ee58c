"""Whoever's messages are being routed, as far as it can be asked to wait (docs/decisions/0003-publishers-are-held.md)."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from broker.timers import Timed


@mypyc_attr(allow_interpreted_subclasses=True)
class Publisher(Timed):
    """A client's connection, or the event stream of another node.

    owner  the shell's handle, opaque here: it stops reading while `held` is above zero, and resumes afterwards
    held   for how many reasons it has to wait: full receivers, congested nodes, a slice of work that is used up
    """

    def __init__(self, owner: object) -> None:
        super().__init__()
        self.owner = owner
        self.held = 0
