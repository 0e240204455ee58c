"""The seam between a broker and other nodes that may have the session of a client (`Context.ownership`; None without them).

One node owns a client identifier: the home of its session. A node that is not asks the others before it lets the client in.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from broker.routing.subscriber import Subscriber

CLAIM_SECONDS_MAX: Final = 15.0  # that a client waits for other nodes, however often they are asked


@mypyc_attr(allow_interpreted_subclasses=True)
class Claimant:
    """A client that waits until this node is its home."""

    def is_open(self) -> bool:
        """Return whether the client still waits."""
        raise AssertionError("a subclass implements this")

    def claimed(self) -> None:
        """The node is the home; the session is there, if another node had one."""
        raise AssertionError("a subclass implements this")

    def outclaimed(self, text: str) -> None:
        """Another node has the client by now, or keeps the session for another user: refuse the client."""
        raise AssertionError("a subclass implements this")


@mypyc_attr(allow_interpreted_subclasses=True)
class Elsewhere:
    """The other nodes, for the clients of a node that takes none (`Context.elsewhere`)."""

    def reference(self, client_id: str) -> str:
        """Return the address at which the client finds another node, "" when none is known."""
        raise AssertionError("a subclass implements this")


@mypyc_attr(allow_interpreted_subclasses=True)
class Ownership:
    """Of one node among others."""

    def claim(self, claimant: Claimant, client_id: str, username: str, clean_start: bool, now: float) -> bool:
        """Become the home of the client. True: it is. False: others are asked, and the claimant is told."""
        raise AssertionError("a subclass implements this")

    def may_be_elsewhere(self) -> bool:
        """Return whether a node that is not reached may have a session of a client that has none here."""
        raise AssertionError("a subclass implements this")

    def abandoned(self, client_id: str) -> None:
        """The client was not let in after its claim."""
        raise AssertionError("a subclass implements this")

    def opened(self, session: Subscriber) -> None:
        """A connection serves the session, which may have become durable, or durable no more."""
        raise AssertionError("a subclass implements this")

    def ended(self, session: Subscriber) -> None:
        """The session ends on this node."""
        raise AssertionError("a subclass implements this")

    def departing_sessions(self) -> list[Subscriber]:
        """Return the sessions that are on their way to another node: in the store, and not in `Broker.sessions`."""
        raise AssertionError("a subclass implements this")
