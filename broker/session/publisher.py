"""Whoever's messages are being routed, as far as it can be asked to wait (docs/decisions/0003-publishers-are-held.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from broker.flow import Flow, make_flow
from broker.timers import Timed

if TYPE_CHECKING:
    from broker.routing.route import Route
    from broker.session.session import Session


@mypyc_attr(allow_interpreted_subclasses=True)
class Publisher(Timed):
    """A client's connection, or the event stream of another node.

    owner    the shell's handle, opaque here: it stops reading while `held` is above zero, and resumes what was left
    session  of a client; None for another node
    held     how many full receivers (or congested nodes) ask to wait
    flow     what its messages look like when each comes alone, and where they go; None until two had the same topic
    """

    def __init__(self, owner: object) -> None:
        super().__init__()
        self.owner = owner
        self.session: Session | None = None
        self.held = 0
        self.flow: Flow | None = None
        self._last_route: Route | None = None  # of the last message that came alone

    def learn_flow(self, route: Route, generation: int, version: int, data: bytes, start: int, payload_at: int) -> None:
        """data[start:] is one PUBLISH of QoS 0 that came alone and goes to `route`; its payload is data[payload_at:]."""
        if route.plain:
            if route is self._last_route:  # the second one: there will be more
                self.flow = make_flow(route, generation, version, data, start, payload_at)
            self._last_route = route
