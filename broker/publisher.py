"""A source of messages that can be held: it is not read for a while (docs/decisions/0003-publishers-are-held.md)."""

# compiled with mypyc
from __future__ import annotations

from mypy_extensions import mypyc_attr

from broker.timers import Timed


@mypyc_attr(allow_interpreted_subclasses=True)
class Publisher(Timed):
    """A client's connection, or the event stream of another node.

    owner  the shell's handle, opaque here: the shell does not read while `held` is above zero
    held   number of reasons to wait: full receivers, congested nodes, a slice of work that is over
    """

    def __init__(self, owner: object) -> None:
        super().__init__()
        self.owner = owner
        self.held = 0


class NodePublisher(Publisher):
    """The event stream of another node."""

    def __init__(self, name: str) -> None:
        super().__init__(None)
        self.name = name


def source_of(publisher: Publisher | None, own_name: str) -> str:
    """Return the name of the node whose message it is."""
    return publisher.name if isinstance(publisher, NodePublisher) else own_name
