"""Whoever's messages are being routed, as far as it can be asked to wait (docs/decisions/0003-publishers-are-held.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from broker.timers import Timed

if TYPE_CHECKING:
    from broker.session.session import Session


@mypyc_attr(allow_interpreted_subclasses=True)
class Publisher(Timed):
    """A client's connection, or the event stream of another node.

    owner    the shell's handle, opaque here: it stops reading while `held` is above zero, and resumes what was left
    session  of a client; None for another node
    held     how many full receivers (or congested nodes) ask to wait
    """

    def __init__(self, owner: object) -> None:
        super().__init__()
        self.owner = owner
        self.session: Session | None = None
        self.held = 0
