"""The seam between sessions and copies of the stores of other nodes."""

# compiled with mypyc
from __future__ import annotations

from mypy_extensions import mypyc_attr

from federation.sessions.wire import SessionFrame


@mypyc_attr(allow_interpreted_subclasses=True)
class LostHomes:
    """Has copies of the sessions of homes that are lost."""

    def asked_until(self, node: str) -> float:
        """Return until when clients at home here wait for the answer of the node, which may have adopted their sessions; 0.0
        for not at all."""
        raise AssertionError("a subclass implements this")

    def wanted(self, client_id: str, node: str, now: float) -> None:
        """The client connects to the node: its session is to be here, where there is a copy and its home is away."""
        raise AssertionError("a subclass implements this")

    def heard(self, node: str) -> None:
        """The node lives, and says something of its sessions."""
        raise AssertionError("a subclass implements this")

    def moved(self, homes: list[str], now: float) -> None:
        """A session arrives at a node that these were homes before: what waits for lost ones goes to who has adopted them."""
        raise AssertionError("a subclass implements this")

    def kept_alone(self) -> str:
        """Return a home that is away and not adopted, whose store may be nowhere but here; "" for none."""
        raise AssertionError("a subclass implements this")

    def receive(self, name: str, frame: SessionFrame, now: float) -> None:
        """A frame about a store came from the node. Raises FrameError, TypeError and ValueError."""
        raise AssertionError("a subclass implements this")
