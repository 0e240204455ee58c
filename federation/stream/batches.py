"""What leaves together for one other node, and through what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from federation.stream.sender import PeerSender


@mypyc_attr(allow_interpreted_subclasses=True)
class Outlet:
    """The shell of one sender."""

    def flush_at(self, now: float) -> None:
        """Write what the sender wants sent."""
        raise AssertionError("an outlet that writes nothing")


class Outlets:
    """The senders that want to be asked for batches at the end of this turn, each once."""

    __slots__ = ("ready",)

    def __init__(self) -> None:
        self.ready: list[PeerSender] = []

    def take_ready(self) -> list[PeerSender]:
        ready = self.ready
        if ready:
            self.ready = []
        return ready


class Batch:
    """What travels together: `count` events, ids from first_id. `events` are their frames; `single` are the encoded
    events of the plain stream instead, None for a batch."""

    __slots__ = ("count", "events", "first_id", "single")

    def __init__(self, first_id: int, count: int, events: bytes, single: list[bytes] | None) -> None:
        self.first_id = first_id
        self.count = count
        self.events = events
        self.single = single

    def leave_out(self, next_event_id: int) -> None:
        """Single events below that id are done there. A gmqttd knows the last 100 only, and would do older ones again;
        who reads batches steps over them."""
        done = next_event_id - self.first_id
        if self.single is not None and done > 0:
            self.single = self.single[done:]
            self.count -= done
            self.first_id = next_event_id
