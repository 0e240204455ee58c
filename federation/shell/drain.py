"""The drain of a node as operators ask for it: other members hear of it by a tag, and the log tells its steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from federation.errors import NotRunning
from federation.membership import FederationMembership
from federation.node import Node
from federation.sessions.drain import DRAINED, DRAINING, SERVING, Drain, DrainRefused
from federation.tags import DRAINING_OVER, TAG_DRAINING


class DrainControl:
    """`changed` is called after each call: deadlines, and output for clients.

    Of a worker, whose drain outlives its process:

    note_rate    is called with the rate of each drain that begins, and with 0 when it ends
    note_rates   likewise for all workers of the node, by index
    wanted_rate  the rate that was noted last
    """

    def __init__(
        self,
        node: Node,
        membership: FederationMembership,
        now: Callable[[], float],
        changed: Callable[[], None],
        log: Any,
    ) -> None:
        self._node = node
        self._membership = membership
        self._now = now
        self._changed = changed
        self._log = log
        self._logged = SERVING
        self.note_rate: Callable[[int], None] = lambda rate: None
        self.note_rates: Callable[[list[int]], None] = lambda rates: None
        self.wanted_rate: Callable[[], int] | None = None

    @property
    def drain(self) -> Drain:
        """Raises DrainRefused where sessions stay on their nodes."""
        if self._node.drain is None:
            raise DrainRefused("plugins.federation.session_scope is node: sessions stay on this node")
        return self._node.drain

    def begin(self, rate: int) -> Drain:
        """Raises DrainRefused, and NotRunning."""
        drain = self.drain
        was_serving = drain.state == SERVING
        self._membership.members()  # raises NotRunning
        drain.begin(rate, self._now())
        self.note_rate(rate)
        if was_serving:
            self._membership.set_state_tags({TAG_DRAINING: "1"})
            left = {"clients": drain.clients_left(), "sessions": drain.sessions_left()}
            self._log.info("drain begins: this node takes no clients", rate=rate, **left)
            self._logged = DRAINING
        self._changed()
        return drain

    def over(self) -> None:
        """This worker has all that others had for it, and does not come back: they are told with its leave."""
        self._membership.set_state_tags({TAG_DRAINING: DRAINING_OVER})

    def end(self) -> Drain:
        """Raises DrainRefused, and NotRunning."""
        drain = self.drain
        self.note_rate(0)
        if drain.state != SERVING:
            left = {"clients": drain.clients_left(), "sessions": drain.sessions_left()}
            self._membership.set_state_tags({})
            drain.end(self._now())
            self._log.info("drain ended by the API: this node takes clients again", **left)
            self._logged = SERVING
            self._changed()
        return drain

    def move(self, client_id: str, node: str) -> str:
        """The name of the node that gets the session. Raises DrainRefused, and NotRunning."""
        self._membership.members()  # raises NotRunning
        name = self.drain.move(client_id, node, self._now())
        self._log.info("session moved by the API", client_id=client_id, node=name)
        self._changed()
        return name

    def look(self) -> None:
        """Time has passed: the drain may be over; that of the node may have begun or ended without this worker."""
        drain = self._node.drain
        if drain is not None and self.wanted_rate is not None:
            wanted = self.wanted_rate()
            if wanted != (0 if drain.state == SERVING else drain.rate):
                with suppress(DrainRefused, NotRunning):  # the other nodes are not known yet
                    if wanted:
                        self.begin(wanted)
                    else:
                        self.end()
        if drain is not None and drain.state == DRAINED and self._logged != DRAINED:
            self._logged = DRAINED
            given = {"clients_closed": drain.clients_closed, "sessions_given": drain.sessions_given}
            self._log.info("drained: other nodes have all clients and sessions; this node may be stopped", **given)
